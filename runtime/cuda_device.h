// The CUDA devices this process may use and their facts, and which context is current. Asked once per process; without
// driver or device there are simply none, with the reason at hand. Everything may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dsl/export.h"
#include "runtime/cuda_types.h"

namespace attile {
inline namespace v1 {

struct CudaDevice {
  int index = 0;  // as CUDA_VISIBLE_DEVICES counts
  cu::DeviceHandle handle = 0;
  std::string name;               // "NVIDIA H200"
  std::string uuid;               // "GPU-01234567-89ab-cdef-0123-456789abcdef", "MIG-..." for a slice of one
  int major = 0, minor = 0;       // compute capability
  int sms = 0;                    // of the slice where it is one, like all below
  std::int64_t memory_bytes = 0;  // in all, not free
  std::int64_t l2_bytes = 0;
  int shared_per_block = 0;        // without opting in
  int shared_per_block_optin = 0;  // the most a kernel can have
  int shared_per_sm = 0, shared_reserved_per_block = 0;
  int registers_per_sm = 0, registers_per_block = 0;
  int threads_per_sm = 0, threads_per_block = 0, blocks_per_sm = 0;
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  bool integrated = false;    // shares the host's memory
  bool memory_pools = false;  // allocates in stream order

  ATTILE_API std::string arch() const;  // "sm_90"
};

// 0 without a driver or a device.
ATTILE_API int cuda_device_count() noexcept;
// Why there is none, in one sentence; empty where there are devices.
ATTILE_API std::string cuda_absence();
ATTILE_API const std::vector<CudaDevice>& cuda_devices();
// Throws Error(environment) where there is no device at all, Error(argument) for an index that is not there.
ATTILE_API const CudaDevice& cuda_device(int index);

// The index of the device whose memory a pointer lies in; -1 for memory of the host.
ATTILE_API int cuda_device_of(const void* pointer);

// "GPU-01234567-89ab-..." from the driver's 16 bytes.
ATTILE_API std::string uuid_text(const cu::Uuid& uuid, bool mig);

// Makes a context of the device current for its own lifetime and leaves the caller's as found: the caller's current
// context where it belongs to the device, else the device's primary one (retained for the life of the process, as the
// CUDA runtime does). Stands on the stack of one thread.
class ATTILE_API CurrentContext {
 public:
  explicit CurrentContext(int device);
  explicit CurrentContext(cu::Context context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  cu::Context context() const noexcept { return context_; }

 private:
  cu::Context context_ = nullptr;
  bool pushed_ = false;
};

// The context that work on `stream` of this device belongs to: the stream's own, or for the default streams (null and
// the handles 1 and 2) the one CurrentContext(device) makes current. Throws Error(argument) for another device's
// stream.
ATTILE_API cu::Context context_for(int device, cu::Stream stream);

}  // namespace v1
}  // namespace attile
