// How long work takes on a GPU, by the driver's events on a stream of its own. A kernel holds the stream until the host
// has queued the work, so that what is measured is the device's time, not the host's.
#pragma once

#include <functional>

#include "dsl/export.h"
#include "runtime/cuda_module.h"

namespace attile {
inline namespace v1 {

class ATTILE_API CudaTimer {
 public:
  // The most that one sample may queue: the driver makes the host wait beyond about a thousand launches.
  static constexpr int most_pieces = 200;

  // Throws Error(environment) without the device or NVRTC.
  explicit CudaTimer(int device);
  ~CudaTimer();
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;

  cu::Stream stream() const { return stream_; }
  // Seconds of one of `count` (1 to most_pieces) pieces of work, each put on stream() by a call of `queue`. Waits for
  // their end; throws what the device reports.
  double seconds(int count, const std::function<void()>& queue);

 private:
  int device_;
  CudaKernel hold_;
  cu::Stream stream_ = nullptr;
  cu::Event begin_ = nullptr, end_ = nullptr;
  double queueing_s_ = 20e-6;  // of one piece, on the host, as last seen
};

}  // namespace v1
}  // namespace attile
