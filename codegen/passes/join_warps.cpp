#include "codegen/passes/join_warps.h"

namespace attile::ir {

Kernel join_warps(Kernel kernel, const Context& context) {
  if (context.schedule.lanes != Lanes::fragments || context.schedule.partition != Partition::positions) return kernel;
  const Algorithm& a = context.algorithm;
  Join join;
  for (const StateDecl& s : a.states) {
    if (s.kind == StateKind::sum) join.sums.push_back(kernel.find(s.name));
    if (s.kind != StateKind::reference) continue;
    join.reference = kernel.find(s.name);
    ValueDecl joined = kernel[join.reference];
    joined.name = s.name + "_joined";
    join.joined = kernel.add(joined);
  }
  if (const RescaleRule* rule = a.rule()) {
    const ValueDecl& joined = kernel[join.joined];
    join.factor = substitute(rule->factor, {{rule->from->name, variable(rule->reference, {a.parallel})},
                                            {rule->to->name, variable(joined.name, {a.parallel})}});
  }
  for (std::size_t i = 0; i < kernel.body.size(); ++i) {
    const Loop* loop = std::get_if<Loop>(&kernel.body[i].node);
    if (!loop || loop->kind != LoopKind::key_tiles) continue;
    kernel.body.insert(kernel.body.begin() + static_cast<std::ptrdiff_t>(i) + 1, Stmt{join});
    break;
  }
  return kernel;
}

}  // namespace attile::ir
