#include "codegen/lower_program.h"

#include "codegen/packing.h"
#include "dsl/derive.h"

namespace attile::ir {
namespace {

// A GPU works on whole tiles, so positions past the end are hidden like any other.
Algorithm within_length(Algorithm a) {
  const Expr inside = index(a.streamed) < length(a.streamed);
  a.visible = a.visible.empty() ? inside : a.visible && inside;
  return a;
}

LoweredKernel lowered(Role role, const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) {
  LoweredKernel out{role, t.family == TargetFamily::cuda ? within_length(a) : a, p, s, t, {}};
  out.kernel = lower(out.context());
  return out;
}

Problem partial_problem(const Algorithm& partial, Problem p) {
  for (const OutputDecl& o : partial.outputs) p.dtypes[o.name] = DType::float32;
  return p;
}

// What a merge is generated for: the parts are float32, each row has tensors of its own, so rows come one by one.
Problem merge_problem(const Algorithm& merge, Problem p) {
  for (const InputDecl& input : merge.inputs)
    if (input.name.starts_with("part.")) p.dtypes[input.name] = DType::float32;
  return p;
}
Schedule merge_schedule(const Algorithm& merge, const Problem& p, const Target& t) {
  Schedule s;
  s.lanes = Lanes::positions;
  s.tile_rows = 1;
  s.tile_keys = 64;
  return made_legal(merge, p, s, t);
}

}  // namespace

std::vector<LoweredKernel> lower_program(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) {
  std::vector<LoweredKernel> out;
  if (s.splits != 1) {
    const SplitAlgorithm parts = split(a);
    out.push_back(lowered(Role::partial, parts.partial, partial_problem(parts.partial, p), s, t));
    const Problem of_merge = merge_problem(parts.merge, p);
    out.push_back(lowered(Role::merge, parts.merge, of_merge, merge_schedule(parts.merge, of_merge, t), t));
    return out;
  }
  LoweredKernel main = lowered(Role::main, a, p, s, t);
  if (s.pack_ahead) out.push_back({Role::packing, a, p, s, t, packing_kernel(main.kernel)});
  out.push_back(std::move(main));
  return out;
}

}  // namespace attile::ir
