// Lanes are positions of the stream (and columns of V): for a few rows that read a long stream once. Rows are
// taken one after another; operands of products stay where they are.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "codegen/position_tiles.h"
#include "dsl/error.h"

namespace attile::llvm_text {
namespace {

class PositionLanes final : public PositionTiles {
 public:
  explicit PositionLanes(Frame& frame) : PositionTiles(frame), spill_(frame.reserve(std::int64_t{shape_.width} * 4)) {}

  // Leaves ------------------------------------------------------------------------------------------------
  Values index(const Dim& dim) override {
    const Algorithm& a = frame_.context.algorithm;
    if (dim == batch) return {frame_.at.sequence};
    if (dim == kv_head) return {frame_.kv_head_at()};
    if (dim == head && !frame_.group_in_rows()) return {frame_.at.head};
    if (rows_in_lanes_ && (dim == head || dim == a.parallel)) return {row_lanes(dim == head)};
    if (dim == head) return {frame_.row_head(row_number())};
    if (dim == a.parallel) return {frame_.row_index(row_number())};
    if (dim == a.streamed) return {positions_};
    if (dim == slot) return {slot_};
    return {columns_};
  }
  Values variable(const Node& node) override {
    const ir::Value v = frame_.kernel.find(node.name);
    internal_check(v.id >= 0, "unknown value " + node.name);
    const ir::ValueDecl& decl = frame_.kernel[v];
    if (decl.axis == ir::Axis::stream) return {tile_value(v)};
    if (decl.axis == ir::Axis::feature) return {f_.load(floats(), element_address(v, row_, column_), 4)};
    if (decl.axis == ir::Axis::slot) {
      const Val at = element_address(v, row_, slot_);
      if (decl.element == ir::Element::i32) return {f_.cast("sext", f_.load("i32", at, 4), "i64")};
      return {f_.load("float", at, 4)};
    }
    return {f_.load(rows_in_lanes_ ? floats() : "float", state_address(v, row_), 4)};
  }
  // Whole vectors of positions are neighbours in memory where the tensor's are.
  Val first_lane(const Dim& dim) override {
    if (dim != frame_.context.algorithm.streamed || !whole_) return {};
    return f_.add(frame_.at.position, offset_);
  }
  Values reduce_sum(const Node& node) override {
    const Var sum = f_.variable("float");
    f_.set(sum, f32(0));
    each_slot(slots_of(node.args[0]), [&] {
      f_.set(sum, f_.binary("fadd", f_.get(sum), expr_.to_real(expr_.emit(node.args[0])).front()));
    });
    return {f_.get(sum)};
  }

  void begin_panel(const std::vector<ir::Value>&) override {}
  void end_panel(const std::vector<ir::Value>&) override {}

  // Ops ---------------------------------------------------------------------------------------------------
  void score(const ir::ScoreMma& op) override {
    const std::string& tensor = frame_.kernel[op.b].name;
    const Ahead ahead = ahead_of(op.b);
    row_blocks(StreamShape::most_rows, [&](Val r, int rows) {
      const StreamProduct product{shape_, rows, frame_.dtype(tensor), frame_.kernel[op.b].cols, pitch_, ahead.type, ahead.cols};
      f_.call_void(stream_score_function(frame_.module, product),
                   {element_address(op.a, r, i64(0)), source(tensor), frame_.stream_stride(tensor), frame_.at.positions,
                    stream_address(op.dst, r, i64(0)), folded_, ahead.first, ahead_stride(ahead, r)});
    });
  }
  void sum(const ir::SumMma& op) override {
    const std::string& tensor = frame_.kernel[op.v].name;
    const std::int64_t cols = frame_.kernel[op.v].cols;
    const auto make = op.guarded ? guarded_stream_sum_function : stream_sum_function;
    const Ahead ahead = ahead_of(op.v);
    row_blocks(shape_.sum_rows(cols), [&](Val r, int rows) {
      const StreamProduct product{shape_, rows, frame_.dtype(tensor), cols, pitch_, ahead.type, ahead.cols};
      f_.call_void(make(frame_.module, product),
                   {stream_address(op.p, r, i64(0)), source(tensor), frame_.stream_stride(tensor), frame_.at.positions,
                    element_address(op.acc, r, i64(0)), ahead.first, ahead_stride(ahead, r)});
    });
  }
  Val not_finite(ir::Value v) override {
    const std::string& tensor = frame_.kernel[v].name;
    const std::string callee = stream_not_finite_function(frame_.module, shape_, frame_.dtype(tensor), frame_.kernel[v].cols);
    return f_.call("i1", callee, {source(tensor), frame_.stream_stride(tensor), frame_.at.positions});
  }

  // Row by row; what the lanes of a row have reduced waits in memory until all rows are done.
  void sweep(const ir::Sweep& op) override {
    std::vector<const ir::RowReduce*> reduces;
    for (const ir::Stmt& s : op.body)
      if (const auto* reduce = std::get_if<ir::RowReduce>(&s.node)) reduces.push_back(reduce);
    each_row([&] {
      std::map<int, Var> partial;   // per reduced state: the lanes' own results
      for (const ir::RowReduce* reduce : reduces) {
        partial[reduce->acc.id] = f_.variable(floats());
        f_.set(partial[reduce->acc.id], identity(reduce->op));
      }
      expr_.push_scope(true);
      hoist(op);
      const Val n = frame_.at.positions, whole = f_.binary("and", n, i64(-shape_.width));
      f_.loop(i64(0), whole, shape_.width, [&](Val j) { positions_of_sweep(op, j, true, partial); });
      f_.if_else(f_.compare("icmp ne", whole, n), [&] { positions_of_sweep(op, whole, false, partial); });
      expr_.pop_scope();
      for (std::size_t i = 0; i < reduces.size(); ++i) f_.store(f_.get(partial.at(reduces[i]->acc.id)), reduced_row(i, row_), 4);
    });
    for (std::size_t i = 0; i < reduces.size(); ++i) finish_reduce(*reduces[i], i);
  }

  // Row values are computed with the rows in the lanes, all at once.
  void map(const ir::Map& op) override {
    const ir::ValueDecl& decl = frame_.kernel[op.dst];
    if (decl.axis == ir::Axis::row && slots_of(op.expr) == 0) return each_row_vector([&] {
      f_.store(f_.splat(expr_.to_real(expr_.emit(op.expr)).front(), shape_.width), state_address(op.dst, row_), 4);
    });
    each_row([&] {
      if (decl.axis == ir::Axis::row)
        return f_.store(expr_.to_real(expr_.emit(op.expr)).front(), state_address(op.dst, row_), 4);
      f_.loop(i64(0), i64(shape_.padded(decl.cols)), shape_.width, [&](Val c) {
        expr_.push_scope(true);
        column_ = c;
        columns_ = f_.min(lane_numbers(c), splat_constant(i32(decl.cols - 1), shape_.width));   // lanes past the end repeat the last column
        const Values value = expr_.to_real(expr_.emit(op.expr));
        f_.store(f_.splat(value.front(), shape_.width), element_address(op.dst, row_, c), 4);
        expr_.pop_scope();
      });
    });
  }

  void rescale(const ir::Rescale& op) override {
    const ir::ValueDecl& decl = frame_.kernel[op.acc];
    const auto scaled = [&](const Val& at, const Val& factor) {
      f_.store(f_.binary("fmul", f_.load(floats(), at, 4), factor), at, 4);
    };
    if (decl.axis == ir::Axis::row)
      return each_row_vector([&] { scaled(state_address(op.acc, row_), f_.load(floats(), state_address(op.factor, row_), 4)); });
    each_row([&] {
      const Val factor = f_.load("float", state_address(op.factor, row_), 4);
      f_.if_else(f_.compare("fcmp une", factor, f32(1)), [&] {
        const Val lanes = f_.splat(factor, shape_.width);
        f_.loop(i64(0), i64(shape_.padded(decl.cols)), shape_.width, [&](Val c) { scaled(element_address(op.acc, row_, c), lanes); });
      });
    });
  }

 private:
  // Sweeps.
  void positions_of_sweep(const ir::Sweep& op, const Val& j, bool whole, const std::map<int, Var>& partial) {
    begin_positions(j, whole);
    for (const ir::Stmt& s : op.body) element_op(s, partial);
    for (const auto& [v, value] : in_registers_)
      if (in_memory(v)) store_tile(ir::Value{v}, value);
    in_registers_.clear();
    whole_ = false;
    expr_.pop_scope();
  }
  // Lanes past the end repeat the last position; reductions leave them out.
  void begin_positions(const Val& j, bool whole) {
    expr_.push_scope(true);
    in_registers_.clear();
    offset_ = j;
    whole_ = whole;
    const Val all = lane_numbers(f_.add(frame_.at.position, j));
    positions_ = all;
    if (whole) return;
    const Val last = f_.sub(f_.add(frame_.at.position, frame_.at.positions), i64(1));
    const Val end = f_.splat(f_.cast("trunc", last, "i32"), shape_.width);
    valid_ = f_.compare("icmp sle", all, end);
    positions_ = f_.min(all, end);
  }
  Val identity(ir::Reduce op) const {
    const float value = op == ir::Reduce::sum ? 0.0f : -std::numeric_limits<float>::infinity();
    return splat_constant(f32(value), shape_.width);
  }
  void element_op(const ir::Stmt& s, const std::map<int, Var>& partial) {
    std::visit(ir::overloaded{
                   [&](const ir::Map& op) { in_registers_[op.dst.id] = f_.splat(expr_.to_real(expr_.emit(op.expr)).front(), shape_.width); },
                   [&](const ir::Mask& op) {
                     const Values tile{in_registers_.at(op.tile.id)};
                     const Val masked = expr_.select(expr_.emit(predicate_), tile, expr_.constant(op.hidden, tile)).front();
                     in_registers_[op.tile.id] = masked;
                   },
                   [&](const ir::RowReduce& op) {
                     const Val value = tile_value(op.src);
                     const Var& acc = partial.at(op.acc.id);
                     f_.set(acc, joined(op.op, f_.get(acc), whole_ ? value : f_.select(valid_, value, identity(op.op))));
                   },
                   [&](const ir::Insert& op) { insert(op); },
                   [&](const ir::Store& op) { store_positions(op); },
                   [&](const auto& op) { internal_check(false, std::string(op.name) + " inside a sweep"); },
               },
               s.node);
  }
  Val tile_value(ir::Value v) {
    const auto it = in_registers_.find(v.id);
    return it != in_registers_.end() ? it->second : load_tile(v);
  }
  // A NaN score does not enter the maximum; its weight is NaN whatever the maximum is.
  Val joined(ir::Reduce op, const Val& now, const Val& x) {
    return op == ir::Reduce::sum ? f_.binary("fadd", now, x) : f_.select(f_.compare("fcmp ogt", x, now), x, now);
  }
  void finish_reduce(const ir::RowReduce& op, std::size_t number) {
    const int rows = static_cast<int>(std::min<std::int64_t>(StreamShape::most_rows, std::bit_ceil(static_cast<std::uint64_t>(tile_rows_))));
    const Val neutral = splat_constant(f32(op.op == ir::Reduce::sum ? -0.0f : -std::numeric_limits<float>::infinity()), shape_.width);
    std::vector<int> firsts;
    for (int i = 0; i < shape_.width; ++i) firsts.push_back(i < rows ? i * shape_.width / rows : shape_.width);
    f_.loop(i64(0), frame_.at.rows, rows, [&](Val r) {
      std::vector<Val> lanes;
      for (int i = 0; i < rows; ++i) lanes.push_back(f_.load(floats(), reduced_row(number, f_.add(r, i64(i))), 4));
      const Val folded = fold_lanes(f_, std::move(lanes), [&](const Val& a, const Val& b) { return joined(op.op, a, b); });
      // A whole vector, as later reads are: one shorter would have to reach memory before they could.
      const Val total = f_.shuffle(folded, neutral, firsts), at = state_address(op.acc, r);
      f_.store(joined(op.op, f_.load(total.type, at, 4), total), at, 4);
    });
  }

  // One lane after the other, so that positions come in order.
  void each_valid_lane(const Val& lanes, const std::function<void(Val lane, Val value)>& body) {
    f_.store(lanes, spill_, 4);
    const Val count = f_.min(f_.sub(frame_.at.positions, offset_), i64(shape_.width));
    f_.loop(i64(0), count, 1, [&](Val lane) { body(lane, f_.load("float", f_.gep("float", spill_, lane), 4)); });
  }
  void insert(const ir::Insert& op) {
    const std::int64_t k = frame_.kernel[op.values].cols;
    const Val x = tile_value(op.src);
    const Val least = f_.load("float", element_address(op.values, row_, i64(k - 1)), 4);
    const Val larger = ranks_before(f_, x, f_.splat(least, shape_.width));
    const Val beats = whole_ ? larger : f_.binary("and", valid_, larger);
    f_.if_else(f_.call("i1", fmt::format("llvm.vector.reduce.or.v{}i1", shape_.width), {beats}), [&] {
      each_valid_lane(x, [&](Val lane, Val score) {
        const Var value = f_.variable("float"), position = f_.variable("i32"), placed = f_.variable("i1");
        f_.set(value, score);
        f_.set(position, f_.cast("trunc", f_.add(f_.add(frame_.at.position, offset_), lane), "i32"));
        f_.set(placed, {"false", "i1"});
        f_.loop(i64(0), i64(k), 1, [&](Val t) {
          const Val value_at = element_address(op.values, row_, t), index_at = element_address(op.indices, row_, t);
          const Val old_value = f_.load("float", value_at, 4), old_index = f_.load("i32", index_at, 4);
          const Val take = f_.binary("or", f_.get(placed), ranks_before(f_, f_.get(value), old_value));
          f_.store(f_.select(take, f_.get(value), old_value), value_at, 4);
          f_.store(f_.select(take, f_.get(position), old_index), index_at, 4);
          f_.set(value, f_.select(take, old_value, f_.get(value)));
          f_.set(position, f_.select(take, old_index, f_.get(position)));
          f_.set(placed, take);
        });
      });
    });
  }
  void store_positions(const ir::Store& op) {
    each_valid_lane(tile_value(op.src), [&](Val lane, Val value) {
      const Val position = f_.add(f_.add(frame_.at.position, offset_), lane);
      store_narrowed(f_, frame_.dtype(op.tensor), value, frame_.row_address(op.tensor, row_number(), position));
    });
  }
  const Val spill_;   // a vector
  Val positions_, columns_, valid_;                // lanes
  bool whole_ = false;                             // all lanes are positions of the tile
  std::map<int, Val> in_registers_;
};

}  // namespace

std::unique_ptr<LaneForm> make_position_lanes(Frame& frame) { return std::make_unique<PositionLanes>(frame); }

}  // namespace attile::llvm_text
