// What the cost model knows of a device, as data: rates and overheads by name, and the effects of single field values
// as they were fitted to measurements.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/facts.h"
#include "autotune/point.h"
#include "autotune/results.h"

namespace attile {
inline namespace v1 {

struct Constants {
  std::map<std::string, double> values;
  std::string form;  // a field; effects are those of points with the same value of it. Empty: of all
  std::map<std::string, double>
      effects;         // "stages: 1", or with a form "fragments stages: 1", to the factor of its time
  std::string fitted;  // to what; empty: effects are none

  // Throws Error(internal) for a name that is not there.
  ATTILE_API double at(std::string_view name) const;
  // The product of the effects of the point's values; fields left out have those of `initial`.
  ATTILE_API double effect_of(const Point& point, const Point& initial) const;
};

// Strict, as schedule files are. Throws Error(argument) at file:line:column.
ATTILE_API Constants parse_constants(std::string_view text, const std::string& file);
ATTILE_API std::string to_yaml(const Constants& c);

// The shipped constants of a target.
ATTILE_API Constants shipped_constants(const Target& target);
// The same with the limits of this device measured now; about a tenth of a second on a CPU. A GPU is measured in a
// child process.
ATTILE_API Constants measured_constants(const DeviceFacts& facts);

// Those kept for the device in a result folder, if any, else measured and kept. `faults` gets why a file was not used.
ATTILE_API Constants device_constants(const DeviceFacts& facts, const std::string& folder);
// Keeps those that are not the shipped ones, which a later version may change. Returns why they could not be kept.
ATTILE_API std::string keep_constants(const Constants& c, const DeviceFacts& facts, const std::string& folder);

// A candidate that was timed: what the model says without effects, and what it took.
struct FitSample {
  Point point;
  double predicted = 0, measured = 0;
  std::size_t problem = 0;  // samples of one problem are compared with one another only
};
// Factors for field values that bring predictions nearer to measurements, drawn to 1 where samples are few. Fields and
// values are whatever the samples hold.
ATTILE_API std::map<std::string, double> fit_effects(std::span<const FitSample> samples, const Point& initial,
                                                     const std::string& form = {});

// Factors from everything that was tried on a device, and how well the model ranks without and with them: the mean over
// the problems with at least `least` candidates.
struct Fit {
  std::map<std::string, double> effects;
  std::size_t problems = 0, candidates = 0;
  double correlation_before = 0, correlation_after = 0;
};
ATTILE_API Fit fit_to_store(const ResultStore& store, const std::string& form, std::size_t least = 6);

// Spearman's rank correlation; 0 for fewer than two.
ATTILE_API double rank_correlation(std::span<const double> a, std::span<const double> b);

}  // namespace v1
}  // namespace attile
