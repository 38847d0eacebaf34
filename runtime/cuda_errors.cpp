#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "runtime/cuda_driver.h"

namespace attile {
inline namespace v1 {

const CudaDriver* cuda_driver_if_open();

namespace {

using enum cu::Result;

constexpr const char* lost =
    "this process can use the device no longer and has to start anew; a pointer, length or stride that does not "
    "describe memory of this device is the usual cause";
constexpr const char* recompile = "clear the kernel cache with 'attile cache clear'";

struct Row {
  cu::Result result;
  ErrorKind kind;
  const char* name;  // for a driver that does not tell
  const char* remedy;
};
constexpr Row rows[] = {
    {invalid_value, ErrorKind::environment, "CUDA_ERROR_INVALID_VALUE", ""},
    {out_of_memory, ErrorKind::resource, "CUDA_ERROR_OUT_OF_MEMORY",
     "free memory of the device or make the problem smaller"},
    {not_initialized, ErrorKind::environment, "CUDA_ERROR_NOT_INITIALIZED",
     "a process that was forked after CUDA had been used cannot use it: fork before, or start a fresh process"},
    {deinitialized, ErrorKind::environment, "CUDA_ERROR_DEINITIALIZED", "the process is ending"},
    {stub_library, ErrorKind::environment, "CUDA_ERROR_STUB_LIBRARY",
     "this is the toolkit's stub, for linking only: take its folder out of LD_LIBRARY_PATH"},
    {device_unavailable, ErrorKind::environment, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "another process may hold the device exclusively: see nvidia-smi"},
    {no_device, ErrorKind::environment, "CUDA_ERROR_NO_DEVICE",
     "see nvidia-smi; in a container, start it with access to the GPUs; without a GPU use the CPU"},
    {invalid_device, ErrorKind::environment, "CUDA_ERROR_INVALID_DEVICE", "see 'attile doctor' for the devices"},
    {invalid_image, ErrorKind::environment, "CUDA_ERROR_INVALID_IMAGE", recompile},
    {invalid_context, ErrorKind::environment, "CUDA_ERROR_INVALID_CONTEXT", ""},
    {no_binary_for_gpu, ErrorKind::unsupported, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "compile for the architecture that 'attile doctor' shows for this device"},
    {ecc_uncorrectable, ErrorKind::environment, "CUDA_ERROR_ECC_UNCORRECTABLE", "the device's memory is faulty"},
    {invalid_ptx, ErrorKind::environment, "CUDA_ERROR_INVALID_PTX", recompile},
    {unsupported_ptx_version, ErrorKind::environment, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "NVRTC is newer than the driver: update the driver, or name an older libnvrtc in ATTILE_NVRTC"},
    {invalid_handle, ErrorKind::environment, "CUDA_ERROR_INVALID_HANDLE",
     "a stream or event is no longer valid, or belongs to another device"},
    {illegal_address, ErrorKind::environment, "CUDA_ERROR_ILLEGAL_ADDRESS", lost},
    {launch_out_of_resources, ErrorKind::resource, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "the kernel needs more registers, threads or shared memory than the device has: choose a smaller schedule"},
    {launch_timeout, ErrorKind::environment, "CUDA_ERROR_LAUNCH_TIMEOUT",
     "the device also drives a display, which limits the time of a kernel"},
    {context_is_destroyed, ErrorKind::environment, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
     "the device was reset in this process; start a fresh process"},
    {illegal_instruction, ErrorKind::environment, "CUDA_ERROR_ILLEGAL_INSTRUCTION", lost},
    {misaligned_address, ErrorKind::environment, "CUDA_ERROR_MISALIGNED_ADDRESS", lost},
    {launch_failed, ErrorKind::environment, "CUDA_ERROR_LAUNCH_FAILED", lost},
    {not_supported, ErrorKind::unsupported, "CUDA_ERROR_NOT_SUPPORTED", ""},
    {system_not_ready, ErrorKind::environment, "CUDA_ERROR_SYSTEM_NOT_READY",
     "on machines with NVSwitch, nvidia-fabricmanager must be running"},
    {system_driver_mismatch, ErrorKind::environment, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "the library and the kernel's module are of different driver releases: restart the machine, or install one"},
    {compat_not_supported_on_device, ErrorKind::environment, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "take the folder of the cuda-compat package out of LD_LIBRARY_PATH, or update the driver"},
    {stream_capture_unsupported, ErrorKind::environment, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "run the call once before the capture, so that everything is built and loaded"},
    {stream_capture_invalidated, ErrorKind::environment, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "the capture was spoilt by an earlier call and has to begin anew"},
    {unknown, ErrorKind::environment, "CUDA_ERROR_UNKNOWN",
     "see nvidia-smi and the kernel's log; 'nvidia-modprobe -u' creates /dev/nvidia-uvm where it is missing"},
};

const char* told(cu::Result (*ask)(cu::Result, const char**), cu::Result result) {
  const char* text = nullptr;
  return ask && ask(result, &text) == success && text ? text : "";
}

}  // namespace

Error cuda_error(cu::Result result, std::string_view attempted) {
  const CudaDriver* driver = cuda_driver_if_open();
  const Row* row = std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return r.result == result; });
  bool known = row != std::end(rows);
  std::string name = driver ? told(driver->get_error_name, result) : "";
  if (name.empty()) name = known ? row->name : "an unknown error";
  std::string text = fmt::format("{} failed: {} ({})", attempted, name, static_cast<int>(result));
  if (std::string words = driver ? told(driver->get_error_string, result) : ""; !words.empty()) text += ", " + words;
  std::string remedy = known ? row->remedy : "";
  // The variable that hides devices most often, and is easily forgotten.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible && (result == no_device || result == invalid_device))
    remedy = fmt::format("CUDA_VISIBLE_DEVICES is '{}': unset it or correct it", visible);
  return Error(known ? row->kind : ErrorKind::environment, "CUDA driver", text, remedy);
}

}  // namespace v1
}  // namespace attile
