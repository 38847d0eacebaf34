// Our own declarations against NVIDIA's headers, where a toolkit is present (tests/CMakeLists.txt looks for one).
#include "runtime/cuda_driver.h"
#include "runtime/nvrtc.h"
#include "tests/support/catch_compat.h"

#ifdef ATTILE_CUDA_HEADERS

#include <cuda.h>
#include <cudaTypedefs.h>
#include <nvrtc.h>

#include <type_traits>

namespace {

using namespace attile;

// Two types are passed alike: both pointers, both integers or enums of a size and sign, both floats, or both structs of
// a size and alignment.
template <typename A, typename B>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
    if constexpr (!(std::is_pointer_v<A> && std::is_pointer_v<B>))
      return false;
    else {
      using X = std::remove_cv_t<std::remove_pointer_t<A>>;
      using Y = std::remove_cv_t<std::remove_pointer_t<B>>;
      if constexpr (std::is_void_v<X> || std::is_void_v<Y>)
        return std::is_void_v<X> && std::is_void_v<Y>;
      else if constexpr (std::is_class_v<X> && std::is_class_v<Y>)
        return true;  // handles, and structs compared below
      else
        return alike<X, Y>();
    }
  } else if constexpr (std::is_floating_point_v<A> || std::is_floating_point_v<B>) {
    return std::is_same_v<A, B>;
  } else {
    return sizeof(A) == sizeof(B) && alignof(A) == alignof(B) && std::is_class_v<A> == std::is_class_v<B>;
  }
}

template <typename A, typename B>
struct Functions : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct Functions<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return alike<R, S>() && (alike<A, B>() && ...);
  }();
};

#define SAME(member, type) static_assert(Functions<decltype(CudaDriver::member), type>::value)
SAME(init, PFN_cuInit_v2000);
SAME(driver_get_version, PFN_cuDriverGetVersion_v2020);
SAME(get_error_name, PFN_cuGetErrorName_v6000);
SAME(get_error_string, PFN_cuGetErrorString_v6000);
SAME(device_get_count, PFN_cuDeviceGetCount_v2000);
SAME(device_get, PFN_cuDeviceGet_v2000);
SAME(device_get_name, PFN_cuDeviceGetName_v2000);
SAME(device_get_uuid, PFN_cuDeviceGetUuid_v11040);
SAME(device_get_attribute, PFN_cuDeviceGetAttribute_v2000);
SAME(device_total_mem, PFN_cuDeviceTotalMem_v3020);
SAME(primary_ctx_retain, PFN_cuDevicePrimaryCtxRetain_v7000);
SAME(primary_ctx_release, PFN_cuDevicePrimaryCtxRelease_v11000);
SAME(ctx_get_current, PFN_cuCtxGetCurrent_v4000);
SAME(ctx_set_current, PFN_cuCtxSetCurrent_v4000);
SAME(ctx_push_current, PFN_cuCtxPushCurrent_v4000);
SAME(ctx_pop_current, PFN_cuCtxPopCurrent_v4000);
SAME(ctx_get_device, PFN_cuCtxGetDevice_v2000);
SAME(ctx_synchronize, PFN_cuCtxSynchronize_v2000);
SAME(module_load_data_ex, PFN_cuModuleLoadDataEx_v2010);
SAME(module_unload, PFN_cuModuleUnload_v2000);
SAME(module_get_function, PFN_cuModuleGetFunction_v2000);
SAME(func_get_attribute, PFN_cuFuncGetAttribute_v2020);
SAME(func_set_attribute, PFN_cuFuncSetAttribute_v9000);
SAME(occupancy_max_active_blocks, PFN_cuOccupancyMaxActiveBlocksPerMultiprocessor_v6050);
SAME(launch_kernel, PFN_cuLaunchKernel_v4000);
SAME(launch_kernel_ex, PFN_cuLaunchKernelEx_v11060);
SAME(mem_get_info, PFN_cuMemGetInfo_v3020);
SAME(mem_alloc, PFN_cuMemAlloc_v3020);
SAME(mem_free, PFN_cuMemFree_v3020);
SAME(mem_alloc_async, PFN_cuMemAllocAsync_v11020);
SAME(mem_free_async, PFN_cuMemFreeAsync_v11020);
SAME(device_get_default_mem_pool, PFN_cuDeviceGetDefaultMemPool_v11020);
SAME(mem_pool_set_attribute, PFN_cuMemPoolSetAttribute_v11020);
SAME(memcpy_h2d, PFN_cuMemcpyHtoD_v3020);
SAME(memcpy_d2h, PFN_cuMemcpyDtoH_v3020);
SAME(memcpy_d2d, PFN_cuMemcpyDtoD_v3020);
SAME(memcpy_h2d_async, PFN_cuMemcpyHtoDAsync_v3020);
SAME(memcpy_d2h_async, PFN_cuMemcpyDtoHAsync_v3020);
SAME(memcpy_d2d_async, PFN_cuMemcpyDtoDAsync_v3020);
SAME(memset_d8_async, PFN_cuMemsetD8Async_v3020);
SAME(memset_d32_async, PFN_cuMemsetD32Async_v3020);
SAME(pointer_get_attribute, PFN_cuPointerGetAttribute_v4000);
SAME(stream_create, PFN_cuStreamCreate_v2000);
SAME(stream_destroy, PFN_cuStreamDestroy_v4000);
SAME(stream_synchronize, PFN_cuStreamSynchronize_v2000);
SAME(stream_wait_event, PFN_cuStreamWaitEvent_v3020);
SAME(stream_get_ctx, PFN_cuStreamGetCtx_v9020);
SAME(stream_is_capturing, PFN_cuStreamIsCapturing_v10000);
SAME(stream_get_capture_info, PFN_cuStreamGetCaptureInfo_v11030);
SAME(event_create, PFN_cuEventCreate_v2000);
SAME(event_destroy, PFN_cuEventDestroy_v4000);
SAME(event_record, PFN_cuEventRecord_v2000);
SAME(event_query, PFN_cuEventQuery_v2000);
SAME(event_synchronize, PFN_cuEventSynchronize_v2000);
SAME(event_elapsed_time, PFN_cuEventElapsedTime_v2000);
SAME(tensor_map_encode_tiled, PFN_cuTensorMapEncodeTiled_v12000);
#if CUDA_VERSION >= 12040
SAME(func_load, PFN_cuFuncLoad_v12040);
#endif

#define SAME_NVRTC(member, function) static_assert(Functions<decltype(Nvrtc::member), decltype(&function)>::value)
SAME_NVRTC(get_error_string, nvrtcGetErrorString);
SAME_NVRTC(get_version, nvrtcVersion);
SAME_NVRTC(get_num_supported_archs, nvrtcGetNumSupportedArchs);
SAME_NVRTC(get_supported_archs, nvrtcGetSupportedArchs);
SAME_NVRTC(create_program, nvrtcCreateProgram);
SAME_NVRTC(destroy_program, nvrtcDestroyProgram);
SAME_NVRTC(compile_program, nvrtcCompileProgram);
SAME_NVRTC(get_program_log_size, nvrtcGetProgramLogSize);
SAME_NVRTC(get_program_log, nvrtcGetProgramLog);
SAME_NVRTC(get_cubin_size, nvrtcGetCUBINSize);
SAME_NVRTC(get_cubin, nvrtcGetCUBIN);
SAME_NVRTC(get_ptx_size, nvrtcGetPTXSize);
SAME_NVRTC(get_ptx, nvrtcGetPTX);

#define EQUAL(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
using R = cu::Result;
EQUAL(R::success, CUDA_SUCCESS);
EQUAL(R::invalid_value, CUDA_ERROR_INVALID_VALUE);
EQUAL(R::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY);
EQUAL(R::not_initialized, CUDA_ERROR_NOT_INITIALIZED);
EQUAL(R::deinitialized, CUDA_ERROR_DEINITIALIZED);
EQUAL(R::stub_library, CUDA_ERROR_STUB_LIBRARY);
EQUAL(R::device_unavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
EQUAL(R::no_device, CUDA_ERROR_NO_DEVICE);
EQUAL(R::invalid_device, CUDA_ERROR_INVALID_DEVICE);
EQUAL(R::invalid_image, CUDA_ERROR_INVALID_IMAGE);
EQUAL(R::invalid_context, CUDA_ERROR_INVALID_CONTEXT);
EQUAL(R::no_binary_for_gpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
EQUAL(R::ecc_uncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
EQUAL(R::invalid_ptx, CUDA_ERROR_INVALID_PTX);
EQUAL(R::unsupported_ptx_version, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
EQUAL(R::invalid_handle, CUDA_ERROR_INVALID_HANDLE);
EQUAL(R::not_found, CUDA_ERROR_NOT_FOUND);
EQUAL(R::not_ready, CUDA_ERROR_NOT_READY);
EQUAL(R::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS);
EQUAL(R::launch_out_of_resources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
EQUAL(R::launch_timeout, CUDA_ERROR_LAUNCH_TIMEOUT);
EQUAL(R::context_is_destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
EQUAL(R::illegal_instruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
EQUAL(R::misaligned_address, CUDA_ERROR_MISALIGNED_ADDRESS);
EQUAL(R::launch_failed, CUDA_ERROR_LAUNCH_FAILED);
EQUAL(R::not_supported, CUDA_ERROR_NOT_SUPPORTED);
EQUAL(R::system_not_ready, CUDA_ERROR_SYSTEM_NOT_READY);
EQUAL(R::system_driver_mismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
EQUAL(R::compat_not_supported_on_device, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
EQUAL(R::stream_capture_unsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
EQUAL(R::stream_capture_invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
EQUAL(R::unknown, CUDA_ERROR_UNKNOWN);

using D = cu::DeviceAttribute;
EQUAL(D::max_threads_per_block, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
EQUAL(D::max_shared_per_block, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
EQUAL(D::warp_size, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
EQUAL(D::max_registers_per_block, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
EQUAL(D::clock_khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
EQUAL(D::sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
EQUAL(D::integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED);
EQUAL(D::memory_clock_khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
EQUAL(D::memory_bus_bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
EQUAL(D::l2_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
EQUAL(D::max_threads_per_sm, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
EQUAL(D::capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
EQUAL(D::capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
EQUAL(D::max_shared_per_sm, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
EQUAL(D::max_registers_per_sm, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
EQUAL(D::max_shared_per_block_optin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
EQUAL(D::max_blocks_per_sm, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
EQUAL(D::reserved_shared_per_block, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
EQUAL(D::memory_pools_supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);

using F = cu::FunctionAttribute;
EQUAL(F::max_threads_per_block, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
EQUAL(F::shared_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
EQUAL(F::constant_bytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
EQUAL(F::local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
EQUAL(F::registers, CU_FUNC_ATTRIBUTE_NUM_REGS);
EQUAL(F::binary_version, CU_FUNC_ATTRIBUTE_BINARY_VERSION);
EQUAL(F::max_dynamic_shared_bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
EQUAL(F::preferred_shared_carveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);

EQUAL(cu::PointerAttribute::context, CU_POINTER_ATTRIBUTE_CONTEXT);
EQUAL(cu::PointerAttribute::memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
EQUAL(cu::PointerAttribute::device_ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
EQUAL(cu::MemoryType::host, CU_MEMORYTYPE_HOST);
EQUAL(cu::MemoryType::device, CU_MEMORYTYPE_DEVICE);
EQUAL(cu::MemoryType::array, CU_MEMORYTYPE_ARRAY);
EQUAL(cu::MemoryType::unified, CU_MEMORYTYPE_UNIFIED);
EQUAL(cu::MemoryPoolAttribute::release_threshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
EQUAL(cu::CaptureStatus::none, CU_STREAM_CAPTURE_STATUS_NONE);
EQUAL(cu::CaptureStatus::active, CU_STREAM_CAPTURE_STATUS_ACTIVE);
EQUAL(cu::CaptureStatus::invalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
EQUAL(cu::JitOption::info_log, CU_JIT_INFO_LOG_BUFFER);
EQUAL(cu::JitOption::info_log_bytes, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
EQUAL(cu::JitOption::error_log, CU_JIT_ERROR_LOG_BUFFER);
EQUAL(cu::JitOption::error_log_bytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
EQUAL(cu::stream_non_blocking, CU_STREAM_NON_BLOCKING);
EQUAL(cu::event_default, CU_EVENT_DEFAULT);
EQUAL(cu::event_disable_timing, CU_EVENT_DISABLE_TIMING);
EQUAL(cu::LaunchAttributeId::cluster_dimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
EQUAL(cu::LaunchAttributeId::programmatic_stream_serialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
EQUAL(cu::TensorMapType::uint8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
EQUAL(cu::TensorMapType::float16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
EQUAL(cu::TensorMapType::float32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
EQUAL(cu::TensorMapType::bfloat16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
EQUAL(cu::TensorMapInterleave::none, CU_TENSOR_MAP_INTERLEAVE_NONE);
EQUAL(cu::TensorMapSwizzle::none, CU_TENSOR_MAP_SWIZZLE_NONE);
EQUAL(cu::TensorMapSwizzle::bytes32, CU_TENSOR_MAP_SWIZZLE_32B);
EQUAL(cu::TensorMapSwizzle::bytes64, CU_TENSOR_MAP_SWIZZLE_64B);
EQUAL(cu::TensorMapSwizzle::bytes128, CU_TENSOR_MAP_SWIZZLE_128B);
EQUAL(cu::TensorMapL2::none, CU_TENSOR_MAP_L2_PROMOTION_NONE);
EQUAL(cu::TensorMapL2::bytes64, CU_TENSOR_MAP_L2_PROMOTION_L2_64B);
EQUAL(cu::TensorMapL2::bytes128, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
EQUAL(cu::TensorMapL2::bytes256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
EQUAL(cu::TensorMapFill::zeros, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
EQUAL(cu::TensorMapFill::nan, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);

using N = NvrtcResult;
EQUAL(N::success, NVRTC_SUCCESS);
EQUAL(N::out_of_memory, NVRTC_ERROR_OUT_OF_MEMORY);
EQUAL(N::program_creation_failure, NVRTC_ERROR_PROGRAM_CREATION_FAILURE);
EQUAL(N::invalid_input, NVRTC_ERROR_INVALID_INPUT);
EQUAL(N::invalid_program, NVRTC_ERROR_INVALID_PROGRAM);
EQUAL(N::invalid_option, NVRTC_ERROR_INVALID_OPTION);
EQUAL(N::compilation, NVRTC_ERROR_COMPILATION);
EQUAL(N::builtin_operation_failure, NVRTC_ERROR_BUILTIN_OPERATION_FAILURE);
EQUAL(N::internal_error, NVRTC_ERROR_INTERNAL_ERROR);

#define PLACED(ours, a, theirs, b) \
  static_assert(offsetof(ours, a) == offsetof(theirs, b) && sizeof(ours::a) == sizeof(theirs::b))
template <typename A, typename B>
constexpr bool same_size = sizeof(A) == sizeof(B) && alignof(A) == alignof(B);
static_assert(same_size<cu::Uuid, CUuuid>);
// CUDA 12 asks for an alignment of 64.
static_assert(sizeof(cu::TensorMap) == sizeof(CUtensorMap) && alignof(cu::TensorMap) >= alignof(CUtensorMap));
static_assert(same_size<cu::LaunchConfig, CUlaunchConfig> && same_size<cu::LaunchAttribute, CUlaunchAttribute>);
static_assert(same_size<cu::DeviceHandle, CUdevice> && same_size<cu::Address, CUdeviceptr>);
PLACED(cu::LaunchConfig, grid_x, CUlaunchConfig, gridDimX);
PLACED(cu::LaunchConfig, block_z, CUlaunchConfig, blockDimZ);
PLACED(cu::LaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes);
PLACED(cu::LaunchConfig, stream, CUlaunchConfig, hStream);
PLACED(cu::LaunchConfig, attributes, CUlaunchConfig, attrs);
PLACED(cu::LaunchConfig, attribute_count, CUlaunchConfig, numAttrs);
PLACED(cu::LaunchAttribute, id, CUlaunchAttribute, id);
PLACED(cu::LaunchAttribute, value, CUlaunchAttribute, value);
PLACED(cu::LaunchAttribute, value.cluster, CUlaunchAttribute, value.clusterDim);
PLACED(cu::LaunchAttribute, value.programmatic_stream_serialization, CUlaunchAttribute,
       value.programmaticStreamSerializationAllowed);

}  // namespace

TEST_CASE("own declarations agree with NVIDIA's headers") { SUCCEED(); }

#else

TEST_CASE("own declarations agree with NVIDIA's headers") {
  ATTILE_SKIP("no CUDA headers were found at configuration");
}

#endif
