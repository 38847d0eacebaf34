#include "autotune/constants.h"
#include "dsl/error.h"

namespace attile {
inline namespace v1 {

Fit fit_to_store(const ResultStore& store, const std::string& form, std::size_t least) {
  std::vector<FitSample> samples;
  Fit fit;
  for (const TriedList& tried : store.all_tried()) {
    std::vector<FitSample> of_problem;
    for (const auto& [point, outcome] : tried.outcomes)
      if (outcome.seconds > 0 && outcome.predicted > 0) try {
          of_problem.push_back({parse_point(point, "tried"), outcome.predicted, outcome.seconds, fit.problems});
        } catch (const Error&) {  // what no version writes
        }
    if (of_problem.size() < least) continue;
    ++fit.problems;
    samples.insert(samples.end(), of_problem.begin(), of_problem.end());
  }
  fit.candidates = samples.size();
  if (fit.problems == 0) return fit;
  Constants with;
  with.form = form;
  with.effects = fit.effects = fit_effects(samples, initial_point(), form);
  for (std::size_t problem = 0; problem < fit.problems; ++problem) {
    std::vector<double> before, after, measured;
    for (const FitSample& s : samples)
      if (s.problem == problem)
        before.push_back(s.predicted), after.push_back(s.predicted * with.effect_of(s.point, initial_point())),
            measured.push_back(s.measured);
    fit.correlation_before += rank_correlation(before, measured) / static_cast<double>(fit.problems);
    fit.correlation_after += rank_correlation(after, measured) / static_cast<double>(fit.problems);
  }
  return fit;
}

}  // namespace v1
}  // namespace attile
