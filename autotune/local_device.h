// A device of this machine as the search sees it: each candidate in a process of its own that builds it (into the disk
// cache), checks it and then times it on demand. A candidate that crashes or hangs takes its process along and nothing
// else.
#pragma once

#include <map>
#include <memory>

#include "autotune/facts.h"
#include "autotune/proof.h"
#include "autotune/tune_device.h"
#include "autotune/worker.h"

namespace attile {
inline namespace v1 {

struct TuneProblem {
  Algorithm algorithm;
  Problem problem;
  Arguments arguments;  // host memory, inputs filled
};

class ATTILE_API LocalDevice : public TuneDevice {
 public:
  // Seconds without an answer that count as a hang. The first candidate that runs may take up to `first` where that is
  // more than `run`, and tells how long the others may.
  struct Limits {
    double build = 90, run = 15, first = 0;
  };
  // All of them outlive this. What a worker does can be replaced by tests.
  using Serve = std::function<void(WorkerLine&, const Point&)>;
  // `budget`: of the search, by which a first call of minutes is waited for or not.
  LocalDevice(const TuneProblem& problem, const Reference& reference, const DeviceFacts& facts, double budget = 30);
  LocalDevice(std::size_t width, Limits limits, Serve serve);
  ~LocalDevice() override;

  double now() override;
  std::size_t width() const override { return width_; }
  std::vector<Proof> prove(std::span<const Point> candidates, double until) override;
  Timing time(const Point& candidate, CacheState cache) override;
  void release(const Point& candidate) override;
  double probe() override;

 private:
  struct Trial;
  void advance(std::vector<Trial>& trials);
  void let_check(std::vector<Trial>& trials);
  void judge(Trial& trial);
  void begin(std::vector<Trial>& trials, const Point& point, Proof& proof);
  void give_up(std::vector<Trial>& trials, bool all);
  std::optional<std::string> answer_of(Worker& worker, double limit) const;
  std::size_t width_;
  Limits limits_;
  Serve serve_;
  bool has_measure_ = false;  // a candidate was good
  double longest_check_ = 0;  // of those that were good
  std::map<std::string, std::unique_ptr<Worker>> ready_;
  std::unique_ptr<Worker> prober_;  // of a GPU
};

// The most bytes that a kernel of a GPU may spill, and still be timed.
inline constexpr std::int64_t most_spilled = 96;

}  // namespace v1
}  // namespace attile
