#include "codegen/passes/pipeline.h"

#include "codegen/walk.h"

namespace attile::ir {
namespace {

// The copies at the head of a loop over the stream, taken out.
std::vector<Copy> take_copies(Kernel& kernel, Loop& loop, int stages) {
  std::vector<Copy> copies;
  std::erase_if(loop.body, [&](const Stmt& s) {
    const Copy* copy = std::get_if<Copy>(&s.node);
    if (copy) copies.push_back(*copy);
    return copy != nullptr;
  });
  for (const Copy& copy : copies) kernel[copy.dst].stages = stages;
  return copies;
}

void begin(Block& out, const std::vector<Copy>& copies, int ahead) {
  for (const Copy& copy : copies) out.push_back({Prefetch{copy.dst, copy.tensor, ahead}});
}

Block pipelined(Loop loop, const std::vector<Copy>& copies, int stages) {
  std::vector<Value> values;
  for (const Copy& copy : copies) values.push_back(copy.dst);
  Block before, head;
  for (int ahead = 0; ahead + 1 < stages; ++ahead) begin(before, copies, ahead);
  if (stages == 1) head.push_back({Release{values}}), begin(head, copies, 0);
  head.push_back({Await{values, stages > 1 ? stages - 2 : 0}});
  if (stages > 1) begin(head, copies, stages - 1);
  if (stages > 1) loop.carry.insert(loop.carry.end(), values.begin(), values.end());
  loop.body.insert(loop.body.begin(), head.begin(), head.end());
  before.push_back({std::move(loop)});
  return before;
}

}  // namespace

Kernel pipeline(Kernel kernel, const Context& context) {
  if (context.schedule.lanes != Lanes::fragments) return kernel;
  Block out;
  for (Stmt& s : kernel.body) {
    Loop* loop = std::get_if<Loop>(&s.node);
    if (!loop || loop->kind != LoopKind::key_tiles) {
      out.push_back(std::move(s));
      continue;
    }
    const std::vector<Copy> copies = take_copies(kernel, *loop, context.schedule.stages);
    for (Stmt& each : pipelined(std::move(*loop), copies, context.schedule.stages)) out.push_back(std::move(each));
  }
  kernel.body = std::move(out);
  return kernel;
}

}  // namespace attile::ir
