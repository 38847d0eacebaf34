#include "codegen/passes/fuse.h"

#include "codegen/walk.h"

namespace attile::ir {
namespace {

Block fused(Block body, const Kernel& kernel) {
  Block out;
  bool open = false;
  for (Stmt& s : body) {
    for (Block* inner : blocks_of(s)) *inner = fused(std::move(*inner), kernel);
    const bool joins = elementwise_on_stream(kernel, s);
    if (joins && !open) out.push_back({Sweep{}});
    open = joins;
    if (joins)
      std::get<Sweep>(out.back().node).body.push_back(std::move(s));
    else
      out.push_back(std::move(s));
  }
  return out;
}

}  // namespace

Kernel fuse(Kernel kernel, const Context&) {
  kernel.body = fused(std::move(kernel.body), kernel);
  return kernel;
}

}  // namespace attile::ir
