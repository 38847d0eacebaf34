#include "codegen/passes/select.h"

#include "codegen/walk.h"

namespace attile::ir {

static MmaKind kind_for(const ValueDecl& streamed) {
  switch (streamed.layout) {
    case Layout::position_blocks: case Layout::column_blocks: return MmaKind::fma;
    case Layout::position_pairs: case Layout::column_pairs: return MmaKind::pair_dot;
    default: return MmaKind::stream;
  }
}

Kernel select_instructions(Kernel kernel, const Context&) {
  walk(kernel.body, [&](Stmt& s) {
    if (auto* score = std::get_if<ScoreMma>(&s.node)) score->kind = kind_for(kernel[score->b]);
    if (auto* sum = std::get_if<SumMma>(&s.node)) sum->kind = kind_for(kernel[sum->v]);
  });
  return kernel;
}

}  // namespace attile::ir
