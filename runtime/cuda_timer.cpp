#include "runtime/cuda_timer.h"

#include <algorithm>
#include <chrono>

#include "runtime/cuda_build.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr const char* hold_text = R"(// Runs for a number of nanoseconds.
struct Arguments { unsigned long long slots[1]; };
extern "C" __global__ void hold(const Arguments a) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - start < a.slots[0]);
}
)";
constexpr double longest_hold_s = 5e-3;

CudaKernel hold_kernel(int device) {
  EmittedKernel hold;
  hold.name = "hold";
  hold.text = hold_text;
  return CudaModule(build_cuda(hold, cuda_device(device).arch()).image, "the timer's kernel").kernel("hold", 0);
}

using Clock = std::chrono::steady_clock;

}  // namespace

CudaTimer::CudaTimer(int device) : device_(device) {
  const CurrentContext current(device);
  hold_ = hold_kernel(device);
  const CudaDriver& driver = cuda_driver();
  cuda_check(driver.stream_create(&stream_, cu::stream_non_blocking), "creating a stream");
  for (cu::Event* event : {&begin_, &end_})
    cuda_check(driver.event_create(event, cu::event_default), "creating an event");
}

CudaTimer::~CudaTimer() {
  try {
    const CurrentContext current(device_);
    for (const cu::Event event : {begin_, end_})
      if (event) cuda_driver().event_destroy(event);
    if (stream_) cuda_driver().stream_destroy(stream_);
  } catch (const Error&) {  // the device is lost
  }
}

double CudaTimer::seconds(int count, const std::function<void()>& queue) {
  const CurrentContext current(device_);
  const CudaDriver& driver = cuda_driver();
  count = std::clamp(count, 1, most_pieces);
  const double hold_s = std::min(1.5 * queueing_s_ * count, longest_hold_s);
  const std::uint64_t hold_ns[] = {static_cast<std::uint64_t>(hold_s * 1e9)};
  hold_.launch({1, 1, 1, 1, stream_}, hold_ns, sizeof hold_ns);
  cuda_check(driver.event_record(begin_, stream_), "recording an event");
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) queue();
  queueing_s_ = std::chrono::duration<double>(Clock::now() - start).count() / count;
  cuda_check(driver.event_record(end_, stream_), "recording an event");
  cuda_check(driver.event_synchronize(end_), "the work on the device");
  float ms = 0;
  cuda_check(driver.event_elapsed_time(&ms, begin_, end_), "reading the time between two events");
  return std::max(static_cast<double>(ms) * 1e-3, 1e-9) / count;
}

}  // namespace v1
}  // namespace attile
