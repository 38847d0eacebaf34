#include "codegen/passes/split_ranges.h"

#include "dsl/error.h"

namespace attile::ir {
namespace {

Block without_masks(const Block& body) {
  Block out;
  for (const Stmt& s : body)
    if (!std::holds_alternative<Mask>(s.node)) out.push_back(s);
  return out;
}

Block with_needed_masks(const Block& body) {
  Block out;
  for (const Stmt& s : body) {
    const Mask* mask = std::get_if<Mask>(&s.node);
    if (!mask || !mask->implied) out.push_back(s);
  }
  return out;
}

// Hidden weights become −0, which the guarded sum passes over.
Block guarded(Block body) {
  for (Stmt& s : body) {
    if (Mask* mask = std::get_if<Mask>(&s.node); mask && mask->hidden == 0) mask->hidden = -0.0;
    if (SumMma* sum = std::get_if<SumMma>(&s.node)) sum->guarded = true;
  }
  return body;
}

std::vector<Value> summed_tensors(const Block& body) {
  std::vector<Value> out;
  for (const Stmt& s : body)
    if (const SumMma* sum = std::get_if<SumMma>(&s.node)) out.push_back(sum->v);
  return out;
}

void split(Block& body, const Expr& visible) {
  for (Stmt& s : body) {
    Loop* loop = std::get_if<Loop>(&s.node);
    if (!loop || loop->kind != LoopKind::key_tiles) {
      if (loop) split(loop->body, visible);
      continue;
    }
    loop->skip_unless = visible;
    for (Stmt& inner : loop->body) {
      Loop* panels = std::get_if<Loop>(&inner.node);
      if (!panels || panels->kind != LoopKind::panels) continue;
      Visibility v{visible, summed_tensors(panels->body), without_masks(panels->body), with_needed_masks(panels->body), {}};
      if (!v.watched.empty()) v.guarded = guarded(std::move(panels->body));
      panels->body = {};
      panels->body.push_back({std::move(v)});
    }
  }
}

}  // namespace

Kernel split_ranges(Kernel kernel, const Context& context) {
  if (context.algorithm.visible) split(kernel.body, context.algorithm.visible);
  return kernel;
}

}  // namespace attile::ir
