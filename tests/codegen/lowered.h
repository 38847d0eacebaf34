// Kernels as lowering leaves them after each pass, for tests that look at or damage them.
#pragma once

#include <map>
#include <string>

#include "codegen/lower.h"
#include "tests/schedules/problems.h"

namespace attile::test {

struct Lowered {
  Algorithm algorithm;
  Problem problem;
  Schedule schedule;
  Target target = target_from_name("x86-64-v4-bf16");
  std::map<std::string, ir::Kernel> after = {};  // by the name of the pass

  void run() {
    ir::lower({algorithm, problem, schedule, target},
              [&](std::string_view pass, const ir::Kernel& kernel) { after[std::string(pass)] = kernel; });
  }
};

// Attention with the options that `set` chooses.
template <typename Set>
Lowered lowered(const Set& set, const Schedule& schedule = {}, DType type = DType::float32, const char* target = "x86-64-v4-bf16") {
  Lowered out{attention_with(set), {}, schedule, target_from_name(target)};
  out.problem = problem_for(out.algorithm, type);
  out.run();
  return out;
}

}  // namespace attile::test
