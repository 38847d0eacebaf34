// Where the values of lanes: rows lie and how they get there and away: packed operands, states of the row tile, registers
// of the panel at hand, tables of row addresses. What is computed with them is row_lanes.cpp's.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "codegen/lane_form.h"
#include "codegen/llvm_tiles.h"
#include "codegen/walk.h"

namespace attile::llvm_text {

class RowPanels : public LaneForm {
 public:
  explicit RowPanels(Frame& frame)
      : LaneForm(frame),
        shape_{frame.context.target.vector_bytes / 4, frame.context.schedule.panel_vectors, frame.context.schedule.block},
        buffers_(ir::assign_stream_buffers(frame.kernel)) {
    for (int i = 0; i < buffers_.count; ++i) stream_memory_.push_back(frame_.reserve(tile_keys() * shape_.rows() * 4));
    for (std::size_t v = 0; v < frame_.kernel.values.size(); ++v) reserve_value(static_cast<int>(v));
    ir::walk(frame_.kernel.body, [&](const ir::Stmt& s) {
      if (const auto* save = std::get_if<ir::Save>(&s.node)) saved_.insert(save->state.id);
    });
    table_ = frame_.reserve(std::max<std::int64_t>(tile_keys(), shape_.rows()) * 8);
    spill_ = frame_.reserve(std::int64_t{shape_.rows()} * 4);
  }

  void begin_panel(const std::vector<ir::Value>& carried) override {
    states_.clear();
    set_row_lanes();
    for (const ir::Value v : carried) {
      if (frame_.kernel[v].axis != ir::Axis::row) continue;
      states_[v.id] = registers("float");
      write(states_[v.id], load_row(panel_address(v), ir::Element::f32));
    }
  }
  void end_panel(const std::vector<ir::Value>& carried) override {
    for (const ir::Value v : carried)
      if (frame_.kernel[v].axis == ir::Axis::row) store_row(read(states_[v.id]), panel_address(v));
  }

  void copy(const ir::Copy& op) override {
    const ir::ValueDecl& decl = frame_.kernel[op.dst];
    const bool pairs = decl.element == ir::Element::bf16;
    if (decl.layout == ir::Layout::row_panels || decl.layout == ir::Layout::row_pairs) return copy_rows(op, decl.cols, pairs);
    if (decl.layout == ir::Layout::position_blocks || decl.layout == ir::Layout::position_pairs) return copy_positions(op, decl.cols, pairs);
    copy_columns(op, decl.cols, pairs);
  }
  // Whole blocks of positions or columns, then 64 bytes for the flag.
  std::int64_t packed_bytes(ir::Value v) const override {
    const ir::ValueDecl& decl = frame_.kernel[v];
    const bool pairs = decl.layout == ir::Layout::position_pairs || decl.layout == ir::Layout::column_pairs;
    const bool by_position = decl.layout == ir::Layout::position_blocks || decl.layout == ir::Layout::position_pairs;
    const auto blocks = [&](std::int64_t n) { return (n + shape_.block - 1) / shape_.block * shape_.block; };
    const auto units = [&](std::int64_t n) { return pairs ? (n + 1) / 2 : n; };
    const std::int64_t floats = by_position ? blocks(decl.rows) * units(decl.cols) : blocks(decl.cols) * units(decl.rows);
    return (floats * 4 + 63) / 64 * 64 + 64;
  }

  void restore(const ir::Restore& op) override { move_state(op.state, false); }
  void save(const ir::Save& op) override { move_state(op.state, true); }
  std::int64_t state_bytes() const override {
    std::int64_t bytes = 0;
    for (const int v : saved_) bytes += state_bytes_of(ir::Value{v});
    return bytes;
  }

 protected:
  using Registers = std::vector<Var>;

  int width() const override { return shape_.width; }
  std::int64_t tile_keys() const { return frame_.context.schedule.tile_keys; }
  std::string vec(const std::string& element) const { return vector_of(shape_.width, element); }

  // Memory: feature and slot tiles and row states of the whole row tile, panel after panel.
  void reserve_value(int id) {
    const ir::ValueDecl& decl = frame_.kernel.values[static_cast<std::size_t>(id)];
    if (decl.axis == ir::Axis::stream || decl.space == ir::Space::workspace) return;
    if (is_packed_operand(decl)) {
      memory_[id] = frame_.reserve(packed_bytes(ir::Value{id}));
      return;
    }
    memory_[id] = frame_.reserve(decl.rows * (decl.cols + 1) * 4);
  }
  static bool is_packed_operand(const ir::ValueDecl& decl) {
    return decl.layout == ir::Layout::position_blocks || decl.layout == ir::Layout::position_pairs ||
           decl.layout == ir::Layout::column_blocks || decl.layout == ir::Layout::column_pairs;
  }
  // The current tile of a packed operand: the task's own, or the program's where it was packed ahead.
  Val operand_memory(ir::Value v) {
    const ir::ValueDecl& decl = frame_.kernel[v];
    if (decl.space != ir::Space::workspace) return memory_.at(v.id);
    return f_.gep("i8", frame_.args.data("work." + decl.name), f_.mul(frame_.at.packed_tile, i64(packed_bytes(v))));
  }
  // One byte behind the elements: does the tile hold inf or NaN?
  Val flag_address(ir::Value v) { return f_.byte_offset(operand_memory(v), packed_bytes(v) - 64); }
  // Units of four bytes along the columns of an operand: two bf16 of a pair share one.
  std::int64_t columns_of(ir::Value v) const {
    const ir::ValueDecl& decl = frame_.kernel[v];
    return decl.element == ir::Element::bf16 ? (decl.cols + 1) / 2 : decl.cols;
  }
  Val panel_address(ir::Value v) {
    const Val base = memory_.at(v.id);
    if (frame_.kernel[v].rows == shape_.rows() && frame_.kernel[v].rows != frame_.context.schedule.tile_rows) return base;
    return f_.gep("float", base, f_.mul(frame_.at.panel, i64(columns_of(v) * shape_.rows())));
  }
  Val row_of(const Val& base, const Val& number) { return f_.gep("float", base, f_.mul(number, i64(shape_.rows()))); }
  Val stream_memory(ir::Value v) { return stream_memory_.at(static_cast<std::size_t>(buffers_.buffer_of.at(v.id))); }
  Val stream_row(ir::Value v, const Val& j) { return row_of(stream_memory(v), j); }
  Val stream_or_reserve(std::int64_t rows) {
    return !stream_memory_.empty() && rows <= tile_keys() ? stream_memory_.front() : frame_.reserve(rows * shape_.rows() * 4);
  }

  // Saved states: one after another in the tile of the workspace, each as it lies here, panels without rows left out.
  std::int64_t state_bytes_of(ir::Value v) const {
    return frame_.context.schedule.tile_rows * frame_.kernel[v].cols * 4;
  }
  void move_state(ir::Value v, bool out) {
    std::int64_t before = 0;
    for (const int other : saved_)
      if (other < v.id) before += state_bytes_of(ir::Value{other});
    const Val tile = f_.gep("i8", frame_.args.data("work.states"), f_.mul(frame_.at.state_tile, i64(state_bytes())));
    const Val there = f_.byte_offset(tile, before), here = memory_.at(v.id);
    const Val panels = f_.udiv(f_.add(frame_.at.tile_rows, i64(shape_.rows() - 1)), i64(shape_.rows()));
    const Val bytes = f_.mul(panels, i64(frame_.kernel[v].cols * shape_.rows() * 4));
    f_.call_void("llvm.memcpy.p0.p0.i64", {out ? there : here, out ? here : there, bytes, Val{"false", "i1"}});
  }

  // Registers.
  Registers registers(const std::string& element) {
    Registers out;
    for (int i = 0; i < shape_.vectors; ++i) out.push_back(f_.variable(vec(element)));
    return out;
  }
  void clear(const Registers& r) {
    for (const Var& v : r) f_.set(v, {"zeroinitializer", v.type});
  }
  Values read(const Registers& r) {
    Values out;
    for (const Var& v : r) out.push_back(f_.get(v));
    return out;
  }
  void write(const Registers& r, const Values& value) {
    for (std::size_t i = 0; i < r.size(); ++i) f_.set(r[i], value[i]);
  }
  void ensure_state(ir::Value v) {
    if (!states_.contains(v.id)) states_[v.id] = registers("float");
  }
  Values full(const Values& x) {
    return is_uniform(x) ? Values(static_cast<std::size_t>(shape_.vectors), f_.splat(x.front(), shape_.width)) : x;
  }
  Values constant_row(double value, ir::Element element) {
    const Val scalar = element == ir::Element::i32 ? i32(static_cast<std::int64_t>(value)) : f32(static_cast<float>(value));
    return Values(static_cast<std::size_t>(shape_.vectors), splat_constant(scalar, shape_.width));
  }
  Values load_row(const Val& address, ir::Element element) {
    Values out;
    for (int i = 0; i < shape_.vectors; ++i)
      out.push_back(f_.load(vec(element == ir::Element::i32 ? "i32" : "float"), f_.byte_offset(address, std::int64_t{i} * shape_.width * 4), shape_.width * 4));
    return out;
  }
  void store_row(const Values& value, const Val& address) {
    for (std::size_t i = 0; i < value.size(); ++i)
      f_.store(value[i], f_.byte_offset(address, static_cast<std::int64_t>(i) * shape_.width * 4), shape_.width * 4);
  }
  Val any(const Values& conditions) {
    Val all = conditions.front();
    for (std::size_t i = 1; i < conditions.size(); ++i) all = f_.binary("or", all, conditions[i]);
    return f_.call("i1", fmt::format("llvm.vector.reduce.or.v{}i1", shape_.width), {all});
  }

  // The row index (and head) of each lane. Lanes past the end repeat the last row: computed, never stored.
  void set_row_lanes() {
    if (row_lanes_.empty()) {
      row_lanes_ = registers("i32");
      head_lanes_ = registers("i32");
    }
    const Val last = f_.sub(f_.add(frame_.at.tile_row, frame_.at.tile_rows), i64(1));
    for (int v = 0; v < shape_.vectors; ++v) {
      const Val first = f_.splat(f_.cast("trunc", frame_.at.row, "i32"), shape_.width);
      const Val row = f_.binary("add", first, iota(v * shape_.width, shape_.width));
      const Val clamped = f_.min(row, f_.splat(f_.cast("trunc", last, "i32"), shape_.width));
      set_lane(static_cast<std::size_t>(v), clamped);
    }
  }
  void set_lane(std::size_t v, const Val& row) {
    if (!frame_.group_in_rows()) return f_.set(row_lanes_[v], row);
    const Val group = splat_constant(i32(frame_.context.problem.group), shape_.width);
    f_.set(row_lanes_[v], f_.binary("udiv", row, group));
    const Val first_head = f_.splat(f_.cast("trunc", f_.mul(frame_.at.head, i64(frame_.context.problem.group)), "i32"), shape_.width);
    f_.set(head_lanes_[v], f_.binary("add", first_head, f_.binary("urem", row, group)));
  }

  // Copies: addresses of rows go into a table, packing functions do the rest.
  void copy_rows(const ir::Copy& op, std::int64_t cols, bool pairs) {
    const std::string callee = pack_rows_function(frame_.module, frame_.dtype(op.tensor), shape_.width, cols, shape_.rows(), pairs);
    const std::int64_t panel_bytes = columns_of(op.dst) * shape_.rows() * 4;
    f_.loop(i64(0), frame_.at.tile_rows, shape_.width, [&](Val first) {
      fill_table(op.tensor, f_.add(frame_.at.tile_row, first), f_.sub(frame_.at.tile_rows, first), shape_.width);
      const Val panel = f_.udiv(first, i64(shape_.rows())), in_panel = f_.urem(first, i64(shape_.rows()));
      const Val base = f_.gep("i8", memory_.at(op.dst.id), f_.mul(panel, i64(panel_bytes)));
      f_.call_void(callee, {table_, f_.gep("float", base, in_panel)});
    });
  }
  // table[i] = address of row first + min(i, valid − 1).
  void fill_table(const std::string& tensor, const Val& first, const Val& valid, std::int64_t count) {
    const Val last = f_.sub(valid, i64(1));
    f_.loop(i64(0), i64(count), 1, [&](Val i) {
      f_.store(frame_.row_address(tensor, f_.add(first, f_.min(i, last))), f_.gep("ptr", table_, i), 8);
    });
  }
  void copy_positions(const ir::Copy& op, std::int64_t cols, bool pairs) {
    const std::string callee = pack_rows_function(frame_.module, frame_.dtype(op.tensor), shape_.block, cols, shape_.block, pairs);
    const std::int64_t block_bytes = columns_of(op.dst) * shape_.block * 4;
    const Val last = f_.sub(frame_.at.positions, i64(1));
    f_.loop(i64(0), frame_.at.positions, shape_.block, [&](Val first) {
      f_.loop(i64(0), i64(shape_.block), 1, [&](Val i) {
        const Val position = f_.add(frame_.at.position, f_.min(f_.add(first, i), last));
        f_.store(frame_.row_address(op.tensor, {}, position), f_.gep("ptr", table_, i), 8);
      });
      const Val to = f_.gep("i8", operand_memory(op.dst), f_.mul(f_.udiv(first, i64(shape_.block)), i64(block_bytes)));
      f_.call_void(callee, {table_, to});
    });
  }
  void copy_columns(const ir::Copy& op, std::int64_t cols, bool pairs) {
    const DType type = frame_.dtype(op.tensor);
    const std::string callee = pack_columns_function(frame_.module, type, cols, tile_keys(), shape_.block, pairs);
    const Val stride = frame_.stream_stride(op.tensor);
    const Val bad = f_.call("i1", callee, {frame_.row_address(op.tensor, {}, frame_.at.position), stride, frame_.at.positions, operand_memory(op.dst)});
    f_.store(f_.cast("zext", bad, "i8"), flag_address(op.dst), 1);
  }

  // Stores.
  void store_features(const ir::Store& op, std::int64_t cols) {
    const std::string callee = unpack_rows_function(frame_.module, frame_.dtype(op.tensor), shape_.width, cols, shape_.rows());
    fill_table(op.tensor, frame_.at.row, frame_.at.rows, shape_.rows());
    for (int v = 0; v < shape_.vectors; ++v) {
      const Val first = i64(std::int64_t{v} * shape_.width);
      const Val rows = f_.min(f_.sub(frame_.at.rows, first), i64(shape_.width));
      f_.call_void(callee, {f_.gep("float", panel_address(op.src), first), f_.gep("ptr", table_, first), rows});
    }
  }
  void store_spilled(const std::string& tensor, const Val& position, const std::string& type) {
    f_.loop(i64(0), frame_.at.rows, 1, [&](Val r) {
      const Val value = f_.load(type, f_.gep(type, spill_, r), 4);
      store_narrowed(f_, frame_.dtype(tensor), value, frame_.row_address(tensor, f_.add(frame_.at.row, r), position));
    });
  }

  PanelShape shape_;
  ir::StreamBuffers buffers_;
  std::vector<Val> stream_memory_;   // shared by stream tiles as buffers_ says
  std::map<int, Val> memory_;        // the other values, panel after panel
  std::set<int> saved_;              // states that go to the workspace between row tiles
  Val table_, spill_;
  std::map<int, Registers> states_;  // row states of the panel at hand
  Registers row_lanes_, head_lanes_;
};

}  // namespace attile::llvm_text
