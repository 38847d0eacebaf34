// How tile ops become loops over vectors, for one choice of what runs along the lanes. emit_llvm walks the IR
// and calls these; the two forms (row_lanes, position_lanes) are twins in their structure.
#pragma once

#include <memory>

#include "codegen/cpu_frame.h"
#include "codegen/layout.h"
#include "dsl/expr_walk.h"

namespace attile::llvm_text {

class LaneForm : public FrameEnvironment {
 public:
  using FrameEnvironment::FrameEnvironment;

  // Frame::at holds the current panel (tile, stream tile) when these are called.
  virtual void begin_panel(const std::vector<ir::Value>& carried) = 0;
  virtual void end_panel(const std::vector<ir::Value>& carried) = 0;

  virtual void copy(const ir::Copy& op) = 0;
  virtual void fill(const ir::Fill& op) = 0;
  virtual void score(const ir::ScoreMma& op) = 0;
  virtual void sum(const ir::SumMma& op) = 0;
  virtual void sweep(const ir::Sweep& op) = 0;
  virtual void map(const ir::Map& op) = 0;           // of row states and feature tiles
  virtual void rescale(const ir::Rescale& op) = 0;
  virtual void gather(const ir::Gather& op) = 0;
  virtual void store(const ir::Store& op) = 0;       // of everything but stream tiles
  virtual void restore(const ir::Restore& op) = 0;
  virtual void save(const ir::Save& op) = 0;
  // Bytes that the saved states of one row tile take.
  virtual std::int64_t state_bytes() const = 0;
  // i1: does the current stream tile of `v` hold inf or NaN?
  virtual Val not_finite(ir::Value v) = 0;

  // Bytes of one packed tile of `v` in the workspace, a multiple of 64.
  virtual std::int64_t packed_bytes(ir::Value v) const = 0;

  // The predicate that Mask ops of the kernel refer to; may be empty.
  void set_predicate(const Expr& predicate) { predicate_ = predicate; }

 protected:
  // Slots of the selection that `e` reads; 0 if it reads none.
  std::int64_t slots_of(const Expr& e) const {
    std::int64_t slots = 0;
    for_each_node({e}, [&](const Node& node) {
      if (slots != 0 || node.op != Op::variable) return;
      if (const ir::Value v = frame_.kernel.find(node.name); v.id >= 0 && frame_.kernel[v].axis == ir::Axis::slot) slots = frame_.kernel[v].cols;
    });
    return slots;
  }

  // What the positions of a sweep do not change is emitted in front of it.
  void hoist(const ir::Sweep& op) {
    const Dim& streamed = frame_.context.algorithm.streamed;
    for (const ir::Stmt& s : op.body) {
      if (const auto* map = std::get_if<ir::Map>(&s.node)) expr_.hoist(map->expr, streamed);
      if (std::holds_alternative<ir::Mask>(s.node)) expr_.hoist(predicate_, streamed);
    }
  }

  Expr predicate_;
};

std::unique_ptr<LaneForm> make_row_lanes(Frame& frame);
std::unique_ptr<LaneForm> make_position_lanes(Frame& frame);

}  // namespace attile::llvm_text
