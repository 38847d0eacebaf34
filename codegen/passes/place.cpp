#include "codegen/passes/place.h"

#include <algorithm>

#include "codegen/walk.h"

namespace attile::ir {
namespace {

struct Placer {
  Kernel& kernel;
  const Context& context;
  const Schedule& schedule = context.schedule;
  const bool rows = schedule.lanes == Lanes::rows;
  const bool gpu = context.target.family == TargetFamily::cuda;

  bool is_streamed(Value v) const {
    const InputDecl* input = context.algorithm.find_input(kernel[v].name);
    return std::find(input->dims.begin(), input->dims.end(), context.algorithm.streamed) != input->dims.end();
  }
  // On a GPU: in shared memory as it is for matrix instructions, else where it lies.
  void gpu_operand(Value v) {
    const bool shared = schedule.lanes == Lanes::fragments;
    kernel[v].space = shared ? Space::tile : Space::global;
    kernel[v].layout = shared ? Layout::shared_rows : Layout::lanes;
    const DType type = context.problem.dtypes.at(kernel[v].name);
    if (shared) kernel[v].element = type == DType::bfloat16 ? Element::bf16 : type == DType::float16 ? Element::f16 : Element::f32;
  }
  void operand(Value v, Layout packed, Layout pairs) {
    if (gpu) return gpu_operand(v);
    kernel[v].space = !is_streamed(v) ? Space::tile : !rows ? Space::global : schedule.pack_ahead ? Space::workspace : Space::tile;
    kernel[v].layout = !rows ? Layout::plain : schedule.bf16_dot ? pairs : packed;
    if (schedule.bf16_dot) kernel[v].element = Element::bf16;
  }
  void weights(Value v) {
    if (gpu) return;
    kernel[v].layout = !rows ? Layout::plain : schedule.bf16_dot ? Layout::row_pairs : Layout::row_panels;
    if (schedule.bf16_dot) kernel[v].element = Element::bf16;
  }
  void visit(const Stmt& s) {
    if (const auto* score = std::get_if<ScoreMma>(&s.node)) {
      operand(score->a, Layout::row_panels, Layout::row_pairs);
      operand(score->b, Layout::position_blocks, Layout::position_pairs);
    }
    if (const auto* sum = std::get_if<SumMma>(&s.node)) {
      operand(sum->v, Layout::column_blocks, Layout::column_pairs);
      weights(sum->p);
    }
  }
};

}  // namespace

Kernel place(Kernel kernel, const Context& context) {
  const Layout natural = context.schedule.lanes == Lanes::fragments             ? Layout::fragments
                         : context.schedule.lanes == Lanes::rows                ? Layout::row_panels
                         : context.target.family == TargetFamily::cuda          ? Layout::lanes
                                                                                : Layout::plain;
  for (ValueDecl& v : kernel.values) v.layout = natural;
  Placer placer{kernel, context};
  walk(kernel.body, [&](const Stmt& s) { placer.visit(s); });
  // What stays in global memory is read there by its product; the packing kernel has filled the workspace.
  remove_everywhere(kernel.body, [&](const Stmt& s) {
    const Copy* copy = std::get_if<Copy>(&s.node);
    return copy && kernel[copy->dst].space != Space::tile;
  });
  return kernel;
}

}  // namespace attile::ir
