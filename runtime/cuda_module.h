// Compiled code loaded into a context, and its kernels ready to be launched. Generated kernels take one parameter, a
// struct of 8-byte slots by value. An image is checked before the driver, which is not told its size, sees it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "dsl/export.h"
#include "runtime/cuda_types.h"

namespace attile {
inline namespace v1 {

struct CudaLaunch {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;  // blocks
  unsigned threads = 1;                         // of a block
  cu::Stream stream = nullptr;                  // null: the default stream
  // May begin before the kernel ahead in the stream has ended: it waits by itself (griddepcontrol.wait).
  bool programmatic = false;
};

class ATTILE_API CudaKernel {
 public:
  const std::string& name() const noexcept;
  int registers() const noexcept { return registers_; }
  int local_bytes() const noexcept { return local_bytes_; }    // a thread's, stack and spills
  int shared_bytes() const noexcept { return shared_bytes_; }  // of the text itself, without the dynamic part
  int max_threads() const noexcept { return max_threads_; }    // a block may have
  std::size_t dynamic_shared_bytes() const noexcept { return dynamic_shared_bytes_; }

  // Blocks that run on one SM at a time.
  int blocks_per_sm(int threads) const;

  // Starts the kernel in the context it was loaded in, on the caller's stream; waits for nothing. `arguments` is read
  // during the call. Throws Error(resource) or Error(environment) when the driver refuses.
  void launch(const CudaLaunch& launch, const void* arguments, std::size_t bytes) const;

 private:
  friend class CudaModule;
  struct Loaded;
  std::shared_ptr<const Loaded> loaded_;
  std::string name_;
  cu::Function function_ = nullptr;
  std::size_t dynamic_shared_bytes_ = 0;
  std::size_t parameter_bytes_ = 0;  // 0: not known
  int registers_ = 0, local_bytes_ = 0, shared_bytes_ = 0, max_threads_ = 0;
};

// Unloads its code when it and the last of its kernels are gone.
class ATTILE_API CudaModule {
 public:
  // Loads a cubin or PTX text into the context that is current. `origin` is for errors: "attention, compiled for sm_90a
  // by NVRTC 13.0". Throws Error(unsupported) when this device cannot run it, Error(environment) when the image is
  // damaged or newer than the driver.
  CudaModule(const std::string& image, std::string origin);

  // With `dynamic_shared_bytes` of shared memory beside that of the text; more than the device has is Error(resource).
  CudaKernel kernel(const std::string& name, std::size_t dynamic_shared_bytes) const;
  cu::Context context() const noexcept;

 private:
  std::shared_ptr<const CudaKernel::Loaded> loaded_;
};

}  // namespace v1
}  // namespace attile
