// Kernels as lowering leaves them after each pass, for tests that look at or damage them.
#pragma once

#include <map>
#include <string>

#include "codegen/lower.h"
#include "dsl/library.h"

namespace attile::test {

inline Problem problem_for(const Algorithm& a, DType type = DType::float32, std::int64_t d = 64, std::int64_t dv = 64) {
  Problem p;
  for (const InputDecl& i : a.inputs)
    p.dtypes[i.name] = i.kind == Kind::real ? type : i.kind == Kind::integer ? DType::int32 : DType::boolean;
  for (const OutputDecl& o : a.outputs) p.dtypes[o.name] = o.kind == Kind::integer ? DType::int32 : type;
  p.extents = {{"head_dim", d}, {"value_dim", dv}};
  return p;
}

struct Lowered {
  Algorithm algorithm;
  Problem problem;
  Schedule schedule;
  Target target = target_from_name("x86-64-v4-bf16");
  std::map<std::string, ir::Kernel> after = {};  // by the name of the pass

  void run() {
    ir::lower({algorithm, problem, schedule, target}, [&](std::string_view pass, const ir::Kernel& kernel) {
      after[std::string(pass)] = kernel;
    });
  }
};

inline Lowered lowered(const AttentionOptions& options, const Schedule& schedule = {}, DType type = DType::float32) {
  Lowered out{attention(options), {}, schedule};
  out.problem = problem_for(out.algorithm, type);
  out.run();
  return out;
}

}  // namespace attile::test
