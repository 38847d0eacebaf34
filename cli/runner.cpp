#include "cli/runner.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_tensors.h"
#include "runtime/cuda_timer.h"
#include "runtime/parallel_for.h"

namespace attile::cli {
namespace {

class CpuRunner : public Runner {
 public:
  explicit CpuRunner(const std::vector<const AttentionCall*>& calls) : Runner(calls) {}
  // With one thread it is the time that the thread had, in which no other program's turn counts.
  double seconds(int count) override {
    const clockid_t clock = worker_count() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double start = now(clock);
    for (int i = 0; i < count; ++i) kernel_->run(arguments_[static_cast<std::size_t>(next())]);
    return std::max((now(clock) - start) / count, 1e-9);
  }

 private:
  static double now(clockid_t clock) {
    timespec t{};
    ::clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
};

// Work space of a call, taken once, so that no sample waits for memory.
class Workspace {
 public:
  Workspace(int device, std::size_t bytes) : device_(device) {
    if (bytes == 0) return;
    const CurrentContext current(device);
    cuda_check(cuda_driver().mem_alloc(&address_, bytes), fmt::format("allocating {} bytes of work space", bytes));
  }
  ~Workspace() {
    if (address_ == 0) return;
    try {
      const CurrentContext current(device_);
      cuda_driver().mem_free(address_);
    } catch (const Error&) {  // the device is lost
    }
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  int device_;
  cu::Address address_ = 0;
};

class GpuRunner : public Runner {
 public:
  explicit GpuRunner(const std::vector<const AttentionCall*>& calls)
      : Runner(calls), timer_(calls.front()->device.index) {
    const Device device = calls.front()->device;
    for (const Arguments& host : arguments_)
      tensors_.push_back(std::make_unique<CudaTensors>(kernel_->program().algorithm, host, device));
    const std::size_t bytes = kernel_->workspace_bytes(tensors_.front()->arguments());
    workspace_.emplace(device.index, bytes);
    options_ = {timer_.stream(), workspace_->data(), bytes};
  }
  double seconds(int count) override {
    return timer_.seconds(count,
                          [&] { kernel_->run(tensors_[static_cast<std::size_t>(next())]->arguments(), options_); });
  }
  void finish() override {
    for (const auto& tensors : tensors_) tensors->copy_back();
  }

 private:
  CudaTimer timer_;
  std::vector<std::unique_ptr<CudaTensors>> tensors_;
  std::optional<Workspace> workspace_;
  RunOptions options_;
};

}  // namespace

Runner::Runner(const std::vector<const AttentionCall*>& calls) {
  for (const AttentionCall* call : calls) arguments_.push_back(attention_arguments(*call));
  build_seconds_ = seconds_of([&] { kernel_ = attention_kernel(*calls.front()); });
}

std::unique_ptr<Runner> Runner::make(const std::vector<const AttentionCall*>& calls) {
  if (calls.front()->device.kind == Device::Kind::cuda) return std::make_unique<GpuRunner>(calls);
  return std::make_unique<CpuRunner>(calls);
}

void Runner::run_all() {
  for (std::size_t i = 0; i < arguments_.size(); ++i) seconds(1);
}

int Runner::calls_in(double least) {
  const double once = std::min(seconds(1), seconds(1));
  return static_cast<int>(std::clamp(least / std::max(once, 1e-7), 1.0, 10000.0));
}

int Runner::next() {
  const int current = next_;
  next_ = (next_ + 1) % static_cast<int>(arguments_.size());
  return current;
}

Times sampled(Runner& runner, int calls, int most) {
  Times times;
  double total = 0;
  for (int i = 0; i < most && (i < 3 || total < 1); ++i) {
    times.seconds.push_back(runner.seconds(calls));
    total += times.seconds.back() * calls;
  }
  return times;
}

}  // namespace attile::cli
