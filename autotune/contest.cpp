#include "autotune/contest.h"

#include <algorithm>
#include <limits>

namespace attile {
inline namespace v1 {
namespace {

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return std::numeric_limits<double>::infinity();
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
}

void eliminate(std::vector<Entrant>& entrants, int rounds_done) {
  double leader = std::numeric_limits<double>::infinity();
  for (const Entrant& e : entrants)
    if (!e.out) leader = std::min(leader, e.centre());
  for (Entrant& e : entrants)
    if (!e.out && quantile(e.samples, 0) > leader * (1 + ContestRules::margin(rounds_done))) e.out = true;
}

}  // namespace

double centre_of(std::vector<double> samples) { return quantile(std::move(samples), 0.25); }

double spread_of(std::vector<double> samples) {
  if (samples.empty()) return 0;
  const double centre = centre_of(samples);
  return (quantile(std::move(samples), 0.5) - centre) / centre;
}

double ContestRules::margin(int rounds_done) {
  return rounds_done <= 1 ? 1.5 : rounds_done == 2 ? 0.4 : rounds_done <= 4 ? 0.12 : 0.05;
}

void contest(TuneDevice& device, std::vector<Entrant>& entrants, const ContestRules& rules,
             const std::function<bool()>& over, std::vector<double>& probes) {
  for (int round = 0; round < rules.rounds; ++round) {
    const auto left = std::count_if(entrants.begin(), entrants.end(), [](const Entrant& e) { return !e.out; });
    if (left == 0 || (left == 1 && round >= 3)) return;
    if (const double seconds = device.probe(); seconds > 0) probes.push_back(seconds);
    for (std::size_t i = 0; i < entrants.size(); ++i) {  // nobody is always first
      Entrant& e = entrants[(i + static_cast<std::size_t>(round)) % entrants.size()];
      if (device.stopped()) return;
      if (e.out || (over() && !e.samples.empty())) continue;
      const Timing timing = device.time(e.point, rules.cache);
      if (!timing.fault.empty())
        e.fault = timing.fault, e.late = timing.late, e.out = true;
      else if (timing.seconds > 0)
        e.samples.push_back(timing.seconds);
    }
    if (over()) return;
    if (rules.eliminates) eliminate(entrants, round + 1);
  }
}

}  // namespace v1
}  // namespace attile
