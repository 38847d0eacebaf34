#include "codegen/passes/select.h"

#include "codegen/walk.h"

namespace attile::ir {

static MmaKind kind_for(const ValueDecl& streamed, const Problem& p) {
  switch (streamed.layout) {
    case Layout::shared_rows:
      return streamed.element != Element::f32 ? MmaKind::tensor : p.tf32 ? MmaKind::tf32 : MmaKind::tf32_exact;
    case Layout::lanes: return MmaKind::lanes;
    case Layout::position_blocks: case Layout::column_blocks: return MmaKind::fma;
    case Layout::position_pairs: case Layout::column_pairs: return MmaKind::pair_dot;
    default: return MmaKind::stream;
  }
}

Kernel select_instructions(Kernel kernel, const Context& context) {
  walk(kernel.body, [&](Stmt& s) {
    if (auto* score = std::get_if<ScoreMma>(&s.node)) score->kind = kind_for(kernel[score->b], context.problem);
    if (auto* sum = std::get_if<SumMma>(&s.node)) sum->kind = kind_for(kernel[sum->v], context.problem);
  });
  return kernel;
}

}  // namespace attile::ir
