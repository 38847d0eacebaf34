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

// Zeros for every output that has a value at every position.
Block hidden_outputs(const Kernel& kernel, const Block& body) {
  Block out;
  for (const Stmt& s : body) {
    const Store* store = std::get_if<Store>(&s.node);
    if (!store || kernel[store->src].axis != Axis::stream) continue;
    out.push_back({Map{store->src, constant(0)}});
    out.push_back(s);
  }
  return out;
}

Visibility choice_of(const Kernel& kernel, Block body, const Expr& visible) {
  Visibility v{visible, summed_tensors(body), without_masks(body), with_needed_masks(body), {}, hidden_outputs(kernel, body)};
  if (!v.watched.empty()) v.guarded = guarded(std::move(body));
  return v;
}

// `streams`: the block stands inside the loop over the stream. Returns whether hidden tiles there may be passed over.
bool split(const Kernel& kernel, Block& body, const Expr& visible, bool streams) {
  bool skips = true;
  for (Stmt& s : body) {
    Loop* loop = std::get_if<Loop>(&s.node);
    if (!loop) continue;
    const bool inside = streams || loop->kind == LoopKind::key_tiles;
    if (loop->kind == LoopKind::panels && inside) {
      Visibility v = choice_of(kernel, std::move(loop->body), visible);
      skips = skips && v.hidden.empty();
      loop->body = {};
      loop->body.push_back({std::move(v)});
    } else if (const bool inner_skips = split(kernel, loop->body, visible, inside); inside) {
      skips = skips && inner_skips;
      if (inner_skips) loop->skip_unless = visible;
    }
  }
  return skips;
}

}  // namespace

Kernel split_ranges(Kernel kernel, const Context& context) {
  if (context.algorithm.visible.empty()) return kernel;
  Block body = std::move(kernel.body);
  split(kernel, body, context.algorithm.visible, false);
  kernel.body = std::move(body);
  return kernel;
}

}  // namespace attile::ir
