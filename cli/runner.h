// A kernel and the tensors of calls that it serves, ready to be run and timed where they lie: on the CPU in place, on a
// GPU in copies there. Calls of one runner differ in their tensors only and are taken in turn.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cli/work.h"
#include "runtime/attention.h"

namespace attile::cli {

class Runner {
 public:
  // Builds the kernel for AttentionCall::device. The memory of the calls outlives the runner. Throws Error.
  static std::unique_ptr<Runner> make(const std::vector<const AttentionCall*>& calls);
  virtual ~Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  const Kernel& kernel() const { return *kernel_; }
  double build_seconds() const { return build_seconds_; }

  // Runs every call once and waits.
  void run_all();
  // Runs `count` calls, waits, and returns the seconds of one: the process's clock on the CPU, the device's on a GPU.
  virtual double seconds(int count) = 0;
  // How many calls a sample needs to take `least` seconds.
  int calls_in(double least);
  // Outputs of all calls are in the host's memory afterwards.
  virtual void finish() {}

 protected:
  explicit Runner(const std::vector<const AttentionCall*>& calls);
  int next();  // whose turn it is
  std::optional<Kernel> kernel_;
  std::vector<Arguments> arguments_;

 private:
  double build_seconds_ = 0;
  int next_ = 0;
};

// At least three and at most `most` samples of `calls` calls each; no further one is begun after about a second.
Times sampled(Runner& runner, int calls, int most);

}  // namespace attile::cli
