// Tuning one problem on one device: space, model, search and store put together. What a second call with the same
// problem does is a look-up.
#pragma once

#include "autotune/cost_model.h"
#include "autotune/local_device.h"
#include "autotune/search.h"

namespace attile {
inline namespace v1 {

struct TuneOptions {
  double budget = 30;   // seconds; 0: every candidate
  bool resume = false;  // more candidates for a known problem
  bool again = false;   // everything anew
  std::string folder;   // of results; empty: nothing is kept
  double flops = 0;     // of a call, for reports
  double patience = 600;  // seconds that another process which tunes on the device is waited for, at least two budgets
  const std::atomic<bool>* stop = nullptr;
  std::function<void(const SearchProgress&)> progress;
  std::function<void(const std::string&)> note;  // a sentence about what happens meanwhile
};

struct TuneReport {
  Space space;
  Constants constants;
  std::optional<Point> shipped;  // what is taken without tuning
  SearchResult found;            // empty for a look-up
  std::optional<TuneResult> result;
  bool known = false;      // a look-up: nothing was timed
  double correlation = 0;  // of model and measurement, by rank
  double seconds = 0;      // of tuning
  std::string unkept;      // why the result was not kept; empty when it was
};

// `device`: for tests; else a LocalDevice. Throws Error(unsupported) with the needs of the candidates where none is
// legal, none works or the budget did not suffice for one, Error(resource) where another process tunes without an end.
// The store's faults are none of the caller's.
ATTILE_API TuneReport tune(const TuneProblem& problem, const CallShape& shape, const DeviceFacts& facts,
                           const TuneOptions& options, TuneDevice* device = nullptr);

// The space alone, with predictions: for `tune --explain` and reports.
ATTILE_API Space tuning_space(const TuneProblem& problem, const CallShape& shape, const DeviceFacts& facts,
                              const Constants& constants);

}  // namespace v1
}  // namespace attile
