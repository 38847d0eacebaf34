// What the search asks of a device: prove candidates, time them. The real ones stand in local_device.h; tests script
// one.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "autotune/point.h"

namespace attile {
inline namespace v1 {

// warm: the tensors of the last call still lie in the last cache; cold: others have been there since.
enum class CacheState { warm, cold };

// Why a candidate may not win: "crashed: signal 11", "wrong: o at [0][3][1][7] …". Empty: it may be timed.
struct Proof {
  std::string fault;
  bool begun = true;  // false: there was no time for it, and nothing is known
};
struct Timing {
  double seconds = 0;  // 0 without a fault: stopped meanwhile
  std::string fault;
  bool late = false;  // the fault is that no answer came in time
};

class TuneDevice {
 public:
  virtual ~TuneDevice() = default;

  // Seconds on a clock that never goes back; budgets are counted by it.
  virtual double now() = 0;
  // Candidates that are proven at a time.
  virtual std::size_t width() const = 0;
  // Builds every candidate and compares what it writes with the reference; one result each, in order. None is begun
  // after `until`, and none is waited for after `stop`. Whatever a candidate does, this returns.
  virtual std::vector<Proof> prove(std::span<const Point> candidates, double until) = 0;
  // One sample of a proven candidate.
  virtual Timing time(const Point& candidate, CacheState cache) = 0;
  // The candidate will not be timed any more.
  virtual void release(const Point& candidate) = 0;
  // Seconds of a short piece of work that is always the same: other work on the device and changing clocks show in it. 0: it
  // could not be done.
  virtual double probe() = 0;

  // Set by others at any time: what is under way is given up.
  const std::atomic<bool>* stop = nullptr;
  bool stopped() const { return stop && *stop; }
};

}  // namespace v1
}  // namespace attile
