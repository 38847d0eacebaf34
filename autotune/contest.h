// Candidates timed against one another: rounds of one sample each, so that drift of the machine meets all alike; who is
// worse than the leader beyond doubt leaves early.
#pragma once

#include <functional>
#include <vector>

#include "autotune/tune_device.h"

namespace attile {
inline namespace v1 {

// The lower quartile: other work on a device only ever adds time, and the best sample alone may be a fluke.
ATTILE_API double centre_of(std::vector<double> samples);
// How far the median lies above it, relative.
ATTILE_API double spread_of(std::vector<double> samples);

struct Entrant {
  Point point;
  std::vector<double> samples;
  std::string fault;  // of a sample that failed
  bool late = false;  // of the fault: no answer came in time
  bool out = false;
  double centre() const { return centre_of(samples); }
};

struct ContestRules {
  int rounds = 7;
  CacheState cache = CacheState::warm;
  bool eliminates = true;  // else everyone has all rounds: for figures that are told
  // After a round: by how much a candidate's best sample may exceed the leader's centre.
  static double margin(int rounds_done);
};

// `over` is asked before every sample; once it says so no further sample is begun, except that each entrant gets one,
// unless the device is stopped.
// Who leaves stays among the entrants with `out` set. `probes` gets the device's probe of every round.
ATTILE_API void contest(TuneDevice& device, std::vector<Entrant>& entrants, const ContestRules& rules,
                        const std::function<bool()>& over, std::vector<double>& probes);

}  // namespace v1
}  // namespace attile
