#include "runtime/nvml.h"

#include "runtime/shared_library.h"

namespace attile {
inline namespace v1 {
namespace {

// Of nvml.h: every function returns 0 for success; milliwatts.
using Device = void*;
struct Nvml {
  int (*init)() = nullptr;
  int (*handle_by_uuid)(const char* uuid, Device*) = nullptr;
  int (*power_limit)(Device, unsigned* milliwatts) = nullptr;
  bool usable = false;
};

const Nvml& nvml() {
  static const Nvml library = [] {
    Nvml n;
    const OpenedLibrary opened = open_library("libnvidia-ml.so.1");
    if (opened.handle == nullptr) return n;
    n.usable = bind(opened.handle, "nvmlInit_v2", n.init) &&
               bind(opened.handle, "nvmlDeviceGetHandleByUUID", n.handle_by_uuid) &&
               bind(opened.handle, "nvmlDeviceGetEnforcedPowerLimit", n.power_limit) && n.init() == 0;
    return n;
  }();
  return library;
}

}  // namespace

std::optional<int> gpu_power_limit_w(const std::string& uuid) {
  Device device = nullptr;
  unsigned milliwatts = 0;
  const Nvml& library = nvml();
  if (!library.usable || library.handle_by_uuid(uuid.c_str(), &device) != 0 ||
      library.power_limit(device, &milliwatts) != 0)
    return std::nullopt;
  return static_cast<int>(milliwatts / 1000);
}

}  // namespace v1
}  // namespace attile
