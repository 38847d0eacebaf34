// The CUDA driver: libcuda.so.1, opened at the first use, never at start-up, so that a process may fork before. Every
// function is taken under the versioned name whose signature stands here, so a newer driver changes nothing.
// What the driver reports becomes an Error in one place, cuda_error().
#pragma once

#include <string>
#include <string_view>

#include "dsl/error.h"
#include "dsl/export.h"
#include "runtime/cuda_types.h"

namespace attile {
inline namespace v1 {

// Arguments are those of the function of cuda.h with the same words in its name. Null where said.
struct CudaDriver {
  using R = cu::Result;
  std::string path;  // the file that was opened
  int version = 0;   // newest CUDA it serves: 13000 is 13.0

  R (*init)(unsigned flags);
  R (*driver_get_version)(int* version);
  R (*get_error_name)(R, const char** name);
  R (*get_error_string)(R, const char** text);

  R (*device_get_count)(int* count);
  R (*device_get)(cu::DeviceHandle*, int ordinal);
  R (*device_get_name)(char* name, int bytes, cu::DeviceHandle);
  R (*device_get_uuid)(cu::Uuid*, cu::DeviceHandle);  // a MIG slice's own
  R (*device_get_attribute)(int* value, cu::DeviceAttribute, cu::DeviceHandle);
  R (*device_total_mem)(std::size_t* bytes, cu::DeviceHandle);
  R (*primary_ctx_retain)(cu::Context*, cu::DeviceHandle);
  R (*primary_ctx_release)(cu::DeviceHandle);

  R (*ctx_get_current)(cu::Context*);
  R (*ctx_set_current)(cu::Context);
  R (*ctx_push_current)(cu::Context);
  R (*ctx_pop_current)(cu::Context*);
  R (*ctx_get_device)(cu::DeviceHandle*);  // of the current context
  R (*ctx_synchronize)();                  // waits for all work of the current context

  R (*module_load_data_ex)(cu::Module*, const void* image, unsigned count, cu::JitOption* options, void** values);
  R (*module_unload)(cu::Module);
  R (*module_get_function)(cu::Function*, cu::Module, const char* name);
  R (*func_get_attribute)(int* value, cu::FunctionAttribute, cu::Function);
  R (*func_set_attribute)(cu::Function, cu::FunctionAttribute, int value);
  R (*func_load)(cu::Function);  // null before CUDA 12.4
  R (*occupancy_max_active_blocks)(int* blocks, cu::Function, int threads, std::size_t dynamic_shared_bytes);
  R (*launch_kernel)(cu::Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                     unsigned block_y, unsigned block_z, unsigned shared_bytes, cu::Stream, void** arguments,
                     void** extra);
  R (*launch_kernel_ex)(const cu::LaunchConfig*, cu::Function, void** arguments, void** extra);

  R (*mem_get_info)(std::size_t* free, std::size_t* total);
  R (*mem_alloc)(cu::Address*, std::size_t bytes);
  R (*mem_free)(cu::Address);
  R (*mem_alloc_async)(cu::Address*, std::size_t bytes, cu::Stream);
  R (*mem_free_async)(cu::Address, cu::Stream);
  R (*device_get_default_mem_pool)(cu::MemoryPool*, cu::DeviceHandle);
  R (*mem_pool_set_attribute)(cu::MemoryPool, cu::MemoryPoolAttribute, void* value);
  R (*memcpy_h2d)(cu::Address to, const void* from, std::size_t bytes);
  R (*memcpy_d2h)(void* to, cu::Address from, std::size_t bytes);
  R (*memcpy_d2d)(cu::Address to, cu::Address from, std::size_t bytes);
  R (*memcpy_h2d_async)(cu::Address to, const void* from, std::size_t bytes, cu::Stream);
  R (*memcpy_d2h_async)(void* to, cu::Address from, std::size_t bytes, cu::Stream);
  R (*memcpy_d2d_async)(cu::Address to, cu::Address from, std::size_t bytes, cu::Stream);
  R (*memset_d8_async)(cu::Address, unsigned char value, std::size_t count, cu::Stream);
  R (*memset_d32_async)(cu::Address, unsigned value, std::size_t count, cu::Stream);
  R (*pointer_get_attribute)(void* value, cu::PointerAttribute, cu::Address);

  R (*stream_create)(cu::Stream*, unsigned flags);
  R (*stream_destroy)(cu::Stream);
  R (*stream_synchronize)(cu::Stream);
  R (*stream_wait_event)(cu::Stream, cu::Event, unsigned flags);
  R (*stream_get_ctx)(cu::Stream, cu::Context*);
  R (*stream_is_capturing)(cu::Stream, cu::CaptureStatus*);
  R (*stream_get_capture_info)(cu::Stream, cu::CaptureStatus*, std::uint64_t* id, cu::Graph*,
                               const cu::GraphNode** dependencies, std::size_t* count);
  R (*event_create)(cu::Event*, unsigned flags);
  R (*event_destroy)(cu::Event);
  R (*event_record)(cu::Event, cu::Stream);
  R (*event_query)(cu::Event);
  R (*event_synchronize)(cu::Event);
  R (*event_elapsed_time)(float* ms, cu::Event start, cu::Event end);

  R (*tensor_map_encode_tiled)(cu::TensorMap*, cu::TensorMapType, std::uint32_t rank, void* address,
                               const std::uint64_t* extents, const std::uint64_t* strides, const std::uint32_t* box,
                               const std::uint32_t* element_strides, cu::TensorMapInterleave, cu::TensorMapSwizzle,
                               cu::TensorMapL2, cu::TensorMapFill);

  // Any other function of the library, by its exact name; null when there is none.
  ATTILE_API void* symbol(const char* name) const;
};

// The initialised driver. Throws Error(environment) when there is none, it is too old or it refuses to start (no
// device, a driver that does not fit the kernel...), saying where was looked and what to do; a later call looks again.
ATTILE_API const CudaDriver& cuda_driver();

// The same for `attile doctor`; never throws for the state of the machine.
struct CudaProbe {
  bool usable = false;
  std::string path;        // empty: no library
  std::string release;     // "580.159.04", as far as the file's name tells
  int version = 0;         // 13000 is CUDA 13.0
  std::string fault, fix;  // what keeps it from working
};
ATTILE_API CudaProbe probe_cuda_driver();

// "13.0" for 13000.
ATTILE_API std::string cuda_version_text(int version);

// The one place where a code of the driver becomes an Error: resource for memory and launch resources, unsupported for
// code this device or driver cannot run, environment for everything else. `attempted` reads on "...failed", such as
// "allocating 64 bytes". Works without a driver too.
ATTILE_API Error cuda_error(cu::Result result, std::string_view attempted);
inline void cuda_check(cu::Result result, std::string_view attempted) {
  if (result != cu::Result::success) throw cuda_error(result, attempted);
}

}  // namespace v1
}  // namespace attile
