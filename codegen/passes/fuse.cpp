#include "codegen/passes/fuse.h"

#include "codegen/walk.h"

namespace attile::ir {
namespace {

bool on_stream_tile(const Kernel& kernel, const Stmt& s) {
  const auto stream = [&](Value v) { return kernel[v].axis == Axis::stream; };
  return std::visit(overloaded{
                        [&](const Map& m) { return stream(m.dst); },
                        [&](const Mask& m) { return stream(m.tile); },
                        [&](const RowReduce& r) { return stream(r.src); },
                        [&](const Insert& i) { return stream(i.src); },
                        [&](const Store& st) { return stream(st.src); },
                        [](const auto&) { return false; },
                    },
                    s.node);
}

Block fused(Block body, const Kernel& kernel) {
  Block out;
  bool open = false;
  for (Stmt& s : body) {
    for (Block* inner : blocks_of(s)) *inner = fused(std::move(*inner), kernel);
    const bool joins = on_stream_tile(kernel, s);
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
