// Which candidate is fastest: the model's best few are proven and timed, then the neighbours of the leaders, until the
// budget is used or nothing better is near; the last few are timed once more against the shipped default. Equal
// measurements give equal decisions: what lies within noise is resolved by a fixed order.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autotune/contest.h"
#include "autotune/results.h"
#include "autotune/space.h"

namespace attile {
inline namespace v1 {

struct SearchProgress {
  std::string stage;      // "checking", "timing", "finalists"
  std::size_t tried = 0;  // candidates proven or refused so far
  std::size_t failed = 0;
  std::size_t all = 0;  // in the space
  double seconds = 0;   // since the start
  double left = 0;      // of the budget; 0 without one
  double best = 0;      // seconds of the leader; 0 before there is one
};

struct SearchOptions {
  double budget = 30;     // seconds on the device's clock; 0: every candidate is tried
  std::size_t first = 8;  // candidates that the model alone chooses
  std::size_t finalists = 3;
  CacheState cache = CacheState::warm;
  std::optional<Point> yardstick;  // what is taken without tuning; always among the first
  bool only_new = false;           // only candidates that are not in `known.seen`, and the leader to compare with
  bool again = false;              // the known leaders only, timed anew
  TriedList known;                 // of earlier runs: not tried again
  const std::atomic<bool>* stop = nullptr;  // set: end at once with what is known
  std::function<void(const SearchProgress&)> progress;
  // Called whenever more is known, so that a process that is killed loses little.
  std::function<void(const TriedList&)> keep;
};

struct Measured {
  std::size_t candidate = 0;  // of the space
  double seconds = 0;         // centre; of candidates out before the finals on the scale of the first contest
  double spread = 0;
  double cold = 0, warm = 0;  // of finalists: in either state of the cache; 0 where not measured
  std::size_t samples = 0;
};

struct SearchResult {
  std::optional<std::size_t> winner;  // of the space; none: every candidate failed or none was timed
  std::vector<Measured> measured;     // fastest first
  TriedList tried;                    // with what was known before
  std::size_t timed = 0;              // candidates timed that had not been before
  double yardstick_seconds = 0;       // 0: it failed
  bool noisy = false;
  std::string noise;       // in words; empty where none was seen
  bool complete = false;   // not stopped, and in time until the first contest was over
  bool exhausted = false;  // nothing was left to try
};

ATTILE_API SearchResult search(const Space& space, TuneDevice& device, const SearchOptions& options);

// Differences up to this are noise for the choice of a winner, and at most this much of a spread is believed.
inline constexpr double least_noise = 0.01, most_noise = 0.03;
// Candidates that are proven and timed together on a device that proves `width` at a time.
constexpr std::size_t step_of(std::size_t width) { return std::clamp<std::size_t>(width, 6, 16); }
// A spread of the probes above this is other work on the device, or a clock that changes.
inline constexpr double probe_noise = 0.08;

}  // namespace v1
}  // namespace attile
