// The tensors of a host call on a GPU: copied there, and the outputs back. For programs that have their data in host
// memory, such as the command line; nothing here is fast.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dsl/algorithm.h"
#include "runtime/device.h"
#include "runtime/tensor_ref.h"

namespace attile {
inline namespace v1 {

class ATTILE_API CudaTensors {
 public:
  // Copies every tensor of `host` (the memory from its first to its last element) to device `device`. Throws
  // Error(resource) when it has not enough memory.
  CudaTensors(const Algorithm& a, const Arguments& host, Device device);
  ~CudaTensors();
  CudaTensors(const CudaTensors&) = delete;
  CudaTensors& operator=(const CudaTensors&) = delete;

  // The same call with the tensors of the device.
  const Arguments& arguments() const { return arguments_; }
  // Waits for the device and copies the outputs to the host's memory. Throws Error(internal) where a kernel has written
  // beside a tensor.
  void copy_back();

 private:
  struct Copy {
    std::byte* host;    // first byte reached
    std::byte* device;  // its twin, between two guards
    std::size_t bytes;
    bool output;
  };
  std::vector<Copy> copies_;
  Arguments arguments_;
  Device device_;
};

}  // namespace v1
}  // namespace attile
