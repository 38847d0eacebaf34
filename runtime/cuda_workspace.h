// Device memory of one call: the caller's, or taken from the device's pool in the order of the stream, so that it works
// in the capture of a graph and is there for the next call as soon as the work before it is done.
#pragma once

#include <cstddef>

#include "runtime/cuda_types.h"

namespace attile {
inline namespace v1 {

class CudaWorkspace {
 public:
  // `given` of `given_bytes`, or null. The device's context is current. Throws Error(argument) when what is given is
  // too small, Error(resource) when there is no memory.
  CudaWorkspace(std::size_t bytes, int device, cu::Stream stream, void* given, std::size_t given_bytes);
  ~CudaWorkspace();
  CudaWorkspace(const CudaWorkspace&) = delete;
  CudaWorkspace& operator=(const CudaWorkspace&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  bool own_ = false;
  cu::Stream stream_;
};

}  // namespace v1
}  // namespace attile
