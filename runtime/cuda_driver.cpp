#include "runtime/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>

#include "runtime/shared_library.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr const char* file_name = "libcuda.so.1";
constexpr const char* needed_release = "install NVIDIA's driver 525 (CUDA 12.0) or newer";

// Where drivers put the library without telling the loader: WSL, containers, NixOS.
constexpr const char* other_folders[] = {"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
                                         "/run/opengl-driver/lib"};

// Set once the library is open, for texts of errors; the functions it names need no initialised driver.
std::atomic<const CudaDriver*> opened{nullptr};
void* library_handle = nullptr;

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::environment, "CUDA driver", what, remedy);
}

class Binder {
 public:
  explicit Binder(void* library) : library_(library) {}
  template <typename F>
  void need(const char* name, F& function) {
    if (!bind(library_, name, function)) missing_ = name;
  }
  template <typename F>
  void want(const char* name, F& function) {
    bind(library_, name, function);
  }
  const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

void bind_devices(Binder& b, CudaDriver& d) {
  b.need("cuInit", d.init);
  b.need("cuDriverGetVersion", d.driver_get_version);
  b.need("cuGetErrorName", d.get_error_name);
  b.need("cuGetErrorString", d.get_error_string);
  b.need("cuDeviceGetCount", d.device_get_count);
  b.need("cuDeviceGet", d.device_get);
  b.need("cuDeviceGetName", d.device_get_name);
  b.need("cuDeviceGetUuid_v2", d.device_get_uuid);
  b.need("cuDeviceGetAttribute", d.device_get_attribute);
  b.need("cuDeviceTotalMem_v2", d.device_total_mem);
  b.need("cuDevicePrimaryCtxRetain", d.primary_ctx_retain);
  b.need("cuDevicePrimaryCtxRelease_v2", d.primary_ctx_release);
  b.need("cuCtxGetCurrent", d.ctx_get_current);
  b.need("cuCtxSetCurrent", d.ctx_set_current);
  b.need("cuCtxPushCurrent_v2", d.ctx_push_current);
  b.need("cuCtxPopCurrent_v2", d.ctx_pop_current);
  b.need("cuCtxGetDevice", d.ctx_get_device);
  b.need("cuCtxSynchronize", d.ctx_synchronize);
}

void bind_modules(Binder& b, CudaDriver& d) {
  b.need("cuModuleLoadDataEx", d.module_load_data_ex);
  b.need("cuModuleUnload", d.module_unload);
  b.need("cuModuleGetFunction", d.module_get_function);
  b.need("cuFuncGetAttribute", d.func_get_attribute);
  b.need("cuFuncSetAttribute", d.func_set_attribute);
  b.want("cuFuncLoad", d.func_load);
  b.need("cuOccupancyMaxActiveBlocksPerMultiprocessor", d.occupancy_max_active_blocks);
  b.need("cuLaunchKernel", d.launch_kernel);
  b.need("cuLaunchKernelEx", d.launch_kernel_ex);
  b.need("cuTensorMapEncodeTiled", d.tensor_map_encode_tiled);
}

void bind_memory(Binder& b, CudaDriver& d) {
  b.need("cuMemGetInfo_v2", d.mem_get_info);
  b.need("cuMemAlloc_v2", d.mem_alloc);
  b.need("cuMemFree_v2", d.mem_free);
  b.need("cuMemAllocAsync", d.mem_alloc_async);
  b.need("cuMemFreeAsync", d.mem_free_async);
  b.need("cuDeviceGetDefaultMemPool", d.device_get_default_mem_pool);
  b.need("cuMemPoolSetAttribute", d.mem_pool_set_attribute);
  b.need("cuMemcpyHtoD_v2", d.memcpy_h2d);
  b.need("cuMemcpyDtoH_v2", d.memcpy_d2h);
  b.need("cuMemcpyDtoD_v2", d.memcpy_d2d);
  b.need("cuMemcpyHtoDAsync_v2", d.memcpy_h2d_async);
  b.need("cuMemcpyDtoHAsync_v2", d.memcpy_d2h_async);
  b.need("cuMemcpyDtoDAsync_v2", d.memcpy_d2d_async);
  b.need("cuMemsetD8Async", d.memset_d8_async);
  b.need("cuMemsetD32Async", d.memset_d32_async);
  b.need("cuPointerGetAttribute", d.pointer_get_attribute);
}

void bind_streams(Binder& b, CudaDriver& d) {
  b.need("cuStreamCreate", d.stream_create);
  b.need("cuStreamDestroy_v2", d.stream_destroy);
  b.need("cuStreamSynchronize", d.stream_synchronize);
  b.need("cuStreamWaitEvent", d.stream_wait_event);
  b.need("cuStreamGetCtx", d.stream_get_ctx);
  b.need("cuStreamIsCapturing", d.stream_is_capturing);
  b.need("cuStreamGetCaptureInfo_v2", d.stream_get_capture_info);
  b.need("cuEventCreate", d.event_create);
  b.need("cuEventDestroy_v2", d.event_destroy);
  b.need("cuEventRecord", d.event_record);
  b.need("cuEventQuery", d.event_query);
  b.need("cuEventSynchronize", d.event_synchronize);
  b.need("cuEventElapsedTime", d.event_elapsed_time);
}

OpenedLibrary find_library() {
  OpenedLibrary library = open_library(file_name);
  if (library.handle) return library;
  std::string faults = library.fault, looked = "the loader's search path";
  for (const char* folder : other_folders) {
    library = open_library(fmt::format("{}/{}", folder, file_name));
    if (library.handle) return library;
    looked += fmt::format(", {}", folder);
  }
  refuse(fmt::format("{} was not found ({}); looked in {}", file_name, faults, looked),
         "install NVIDIA's driver; in a container, start it with access to the GPUs; without a GPU use the CPU");
}

// In a child that was forked after the driver had been started.
std::atomic<bool> forked = false;

const CudaDriver* open_driver() {
  OpenedLibrary library = find_library();
  CudaDriver driver{};
  driver.path = library.path;
  Binder binder(library.handle);
  bind_devices(binder, driver);
  if (!binder.missing() && driver.driver_get_version(&driver.version) != cu::Result::success) driver.version = 0;
  bind_modules(binder, driver);
  bind_memory(binder, driver);
  bind_streams(binder, driver);
  if (binder.missing())
    refuse(fmt::format("{} (CUDA {}) is too old: it lacks {}", driver.path, cuda_version_text(driver.version),
                       binder.missing()),
           needed_release);
  library_handle = library.handle;
  auto* kept = new CudaDriver(driver);
  opened = kept;
  return kept;
}

// The library with all functions, not initialised.
const CudaDriver& opened_driver() {
  static const CudaDriver* driver = open_driver();
  return *driver;
}

const CudaDriver* start_driver() {
  const CudaDriver& driver = opened_driver();
  cuda_check(driver.init(0),
             fmt::format("starting the driver ({}, CUDA {})", driver.path, cuda_version_text(driver.version)));
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  return &driver;
}

}  // namespace

void* CudaDriver::symbol(const char* name) const { return dlsym(library_handle, name); }

const CudaDriver& cuda_driver() {
  static const CudaDriver* driver = start_driver();
  if (forked) throw cuda_error(cu::Result::not_initialized, "using CUDA in a forked process");
  return *driver;
}

// Null before the library is open; for cuda_errors.cpp.
const CudaDriver* cuda_driver_if_open() { return opened; }

CudaProbe probe_cuda_driver() {
  CudaProbe probe;
  try {
    const CudaDriver& driver = opened_driver();
    probe.path = driver.path;
    probe.version = driver.version;
    std::string file = resolved(driver.path);
    if (auto at = file.rfind(".so."); at != std::string::npos && file.substr(at + 4) != "1")
      probe.release = file.substr(at + 4);
    cuda_driver();
    probe.usable = true;
  } catch (const Error& error) {
    probe.fault = error.message();
    probe.fix = error.remedy();
  }
  return probe;
}

std::string cuda_version_text(int version) {
  if (version <= 0) return "unknown";
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace v1
}  // namespace attile
