// The tuner's answer to "which schedule": the result of the call's bucket or the nearest one, its followers, what was
// imported, else the model's first choice where no shipped schedule is meant for the problem. With Tuning::now an
// unknown problem is tuned first.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/bucket.h"
#include "runtime/attention.h"
#include "runtime/chooser.h"

namespace attile {
inline namespace v1 {

// `folder`: of results. `budget`: seconds that Tuning::now may take for a problem.
ATTILE_API std::shared_ptr<Chooser> stored_choice(std::string folder, double budget = 30);

// Makes stored_choice(result_folder()) the chooser of this process unless another one is set. The shared library does
// so by itself; a program that links the layers statically calls it.
ATTILE_API void use_tuning_results();

// What a call of this process takes first, as text says: the schedule and where it came from.
struct ExplainedChoice {
  Schedule schedule;
  std::string from;
};
// Nothing where it is the shipped schedule.
ATTILE_API std::optional<ExplainedChoice> explained_choice(const std::string& folder, const Algorithm& a,
                                                           const Problem& p, const Target& t,
                                                           const AttentionCall& call);

ATTILE_API CallShape shape_of(const AttentionCall& call);

// The call as words of `attile tune`, for tensors that this process cannot read; empty where the command has no words
// for it.
ATTILE_API std::vector<std::string> tune_words(const AttentionCall& call);

}  // namespace v1
}  // namespace attile
