#include "tests/numeric/test_device.h"

#include <cstdlib>
#include <iostream>

#include "runtime/cuda_device.h"
#include "runtime/cuda_tensors.h"

namespace attile::test {

Device test_device() {
  static const Device device = [] {
    const char* text = std::getenv("ATTILE_TEST_DEVICE");
    const Device asked = text ? parse_device(text, "ATTILE_TEST_DEVICE") : Device{};
    if (asked.kind == Device::Kind::cuda && cuda_device_count() == 0) {
      std::cout << "test-skipped: " << cuda_absence() << std::endl;
      std::exit(0);
    }
    return asked;
  }();
  return device;
}

const Target& test_target() {
  static const Target target = target_of(test_device());
  return target;
}

void run_there(const Kernel& kernel, const Arguments& host) {
  if (test_device().kind == Device::Kind::cpu) return kernel.run(host);
  CudaTensors tensors(kernel.program().algorithm, host, test_device());
  kernel.run(tensors.arguments());
  tensors.copy_back();
}

}  // namespace attile::test
