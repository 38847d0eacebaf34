// Lanes are positions of the stream (and columns of V): for a few rows that read a long stream once. Rows are
// taken one after another; operands of products stay where they are.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "codegen/lane_form.h"
#include "codegen/llvm_stream.h"
#include "dsl/error.h"

namespace attile::llvm_text {
namespace {

class PositionLanes final : public LaneForm {
 public:
  explicit PositionLanes(Frame& frame)
      : LaneForm(frame), buffers_(ir::assign_stream_buffers(frame.kernel)) {
    const Target& target = frame.context.target;
    shape_.width = target.vector_bytes / 4;
    shape_.rows = static_cast<int>(std::min<std::int64_t>(frame.context.schedule.tile_rows, 4));
    shape_.column_vectors = target.vector_registers >= 32 ? 4 : 2;
    pitch_ = shape_.padded(frame.context.schedule.tile_keys) + shape_.width;
    rows_ = (frame.context.schedule.tile_rows + shape_.rows - 1) / shape_.rows * shape_.rows;
    for (int i = 0; i < buffers_.count; ++i) stream_memory_.push_back(frame_.reserve(rows_ * pitch_ * 4));
    for (std::size_t v = 0; v < frame_.kernel.values.size(); ++v) {
      const ir::ValueDecl& decl = frame_.kernel.values[v];
      if (decl.axis == ir::Axis::stream || decl.space == ir::Space::global) continue;
      memory_[static_cast<int>(v)] = frame_.reserve(rows_ * shape_.padded(decl.cols) * 4);
    }
    spill_ = frame_.reserve(std::int64_t{shape_.width} * 4);
  }

  // Leaves ------------------------------------------------------------------------------------------------
  Values index(const Dim& dim) override {
    const Algorithm& a = frame_.context.algorithm;
    if (dim == batch) return {frame_.at.sequence};
    if (dim == kv_head) return {frame_.group_in_rows() ? frame_.at.head : frame_.kv_head_of(frame_.at.head)};
    if (dim == head) return {frame_.group_in_rows() ? frame_.row_head(row_number()) : frame_.at.head};
    if (dim == a.parallel) return {frame_.row_index(row_number())};
    if (dim == a.streamed) return {positions_};
    if (dim == slot) return {slot_};
    return {columns_};
  }
  Values variable(const Node& node) override {
    const ir::Value v = frame_.kernel.find(node.name);
    internal_check(v.id >= 0, "unknown value " + node.name);
    const ir::ValueDecl& decl = frame_.kernel[v];
    const std::string floats = vector_of(shape_.width, "float");
    if (decl.axis == ir::Axis::stream) {
      if (const auto it = in_registers_.find(v.id); it != in_registers_.end()) return {it->second};
      return {f_.load(floats, stream_address(v, row_, offset_), 4)};
    }
    if (decl.axis == ir::Axis::feature) return {f_.load(floats, element_address(v, row_, column_), 4)};
    if (decl.axis == ir::Axis::slot) {
      const Val at = element_address(v, row_, slot_);
      if (decl.element == ir::Element::i32) return {f_.cast("sext", f_.load("i32", at, 4), "i64")};
      return {f_.load("float", at, 4)};
    }
    return {f_.load("float", element_address(v, row_, i64(0)), 4)};
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
  // Rows past the end repeat the last one, so that whole blocks of rows can be multiplied.
  void copy(const ir::Copy& op) override {
    const std::int64_t cols = frame_.kernel[op.dst].cols, whole = cols / shape_.width * shape_.width;
    const DType type = frame_.dtype(op.tensor);
    const std::string raw = size_of(type) == 4 ? "float" : "i16";
    const Val last = f_.sub(frame_.at.tile_rows, i64(1));
    f_.loop(i64(0), i64(rows_), 1, [&](Val r) {
      const Val source = frame_.row_address(op.tensor, f_.add(frame_.at.tile_row, f_.min(r, last)));
      f_.loop(i64(0), i64(whole), shape_.width, [&](Val c) {
        f_.store(load_widened(f_, type, f_.gep(raw, source, c), shape_.width), element_address(op.dst, r, c), 4);
      });
      f_.loop(i64(whole), i64(cols), 1, [&](Val c) {
        f_.store(load_widened(f_, type, f_.gep(raw, source, c), 1), element_address(op.dst, r, c), 4);
      });
      for (std::int64_t c = cols; c < shape_.padded(cols); ++c) f_.store(f32(0), element_address(op.dst, r, i64(c)), 4);
    });
  }
  void fill(const ir::Fill& op) override {
    const ir::ValueDecl& decl = frame_.kernel[op.dst];
    const Val value = decl.element == ir::Element::i32 ? i32(static_cast<std::int64_t>(op.constant)) : f32(static_cast<float>(op.constant));
    const Val lanes = splat_constant(value, shape_.width);
    f_.loop(i64(0), i64(rows_ * shape_.padded(decl.cols)), shape_.width,
            [&](Val i) { f_.store(lanes, f_.gep("float", memory_.at(op.dst.id), i), 4); });
  }
  void score(const ir::ScoreMma& op) override {
    const std::string& tensor = frame_.kernel[op.b].name;
    const std::string callee = stream_score_function(frame_.module, shape_, frame_.dtype(tensor), frame_.kernel[op.b].cols, pitch_);
    row_blocks([&](Val r) {
      f_.call_void(callee, {element_address(op.a, r, i64(0)), source(tensor), stride_bytes(tensor), frame_.at.positions,
                            stream_address(op.dst, r, i64(0))});
    });
  }
  void sum(const ir::SumMma& op) override {
    const std::string& tensor = frame_.kernel[op.v].name;
    const auto make = op.guarded ? guarded_stream_sum_function : stream_sum_function;
    const std::string callee = make(frame_.module, shape_, frame_.dtype(tensor), frame_.kernel[op.v].cols, pitch_);
    row_blocks([&](Val r) {
      f_.call_void(callee, {stream_address(op.p, r, i64(0)), source(tensor), stride_bytes(tensor), frame_.at.positions,
                            element_address(op.acc, r, i64(0))});
    });
  }
  Val not_finite(ir::Value v) override {
    const std::string& tensor = frame_.kernel[v].name;
    const std::string callee = stream_not_finite_function(frame_.module, shape_, frame_.dtype(tensor), frame_.kernel[v].cols);
    return f_.call("i1", callee, {source(tensor), stride_bytes(tensor), frame_.at.positions});
  }

  std::int64_t packed_bytes(ir::Value) const override { return 0; }   // nothing is packed

  void sweep(const ir::Sweep& op) override {
    each_row([&] {
      std::map<int, Var> partial;   // per reduced state: the lanes' own results
      for (const ir::Stmt& s : op.body)
        if (const auto* reduce = std::get_if<ir::RowReduce>(&s.node)) {
          partial[reduce->acc.id] = f_.variable(vector_of(shape_.width, "float"));
          f_.set(partial[reduce->acc.id], identity(reduce->op));
        }
      expr_.push_scope(true);
      hoist(op);
      f_.loop(i64(0), frame_.at.positions, shape_.width, [&](Val j) {
        begin_positions(j);
        for (const ir::Stmt& s : op.body) element_op(s, partial);
        for (const auto& [v, value] : in_registers_)
          if (buffers_.buffer_of.contains(v)) f_.store(value, stream_address(ir::Value{v}, row_, j), 4);
        in_registers_.clear();
        expr_.pop_scope();
      });
      expr_.pop_scope();
      for (const ir::Stmt& s : op.body)
        if (const auto* reduce = std::get_if<ir::RowReduce>(&s.node)) finish_reduce(*reduce, f_.get(partial.at(reduce->acc.id)));
    });
  }

  void map(const ir::Map& op) override {
    const ir::ValueDecl& decl = frame_.kernel[op.dst];
    each_row([&] {
      if (decl.axis == ir::Axis::row) {
        f_.store(expr_.to_real(expr_.emit(op.expr)).front(), element_address(op.dst, row_, i64(0)), 4);
        return;
      }
      f_.loop(i64(0), i64(shape_.padded(decl.cols)), shape_.width, [&](Val c) {
        expr_.push_scope(true);
        column_ = c;
        columns_ = lane_numbers(c);
        const Values value = expr_.to_real(expr_.emit(op.expr));
        f_.store(f_.splat(value.front(), shape_.width), element_address(op.dst, row_, c), 4);
        expr_.pop_scope();
      });
    });
  }

  void rescale(const ir::Rescale& op) override {
    const ir::ValueDecl& decl = frame_.kernel[op.acc];
    each_row([&] {
      const Val factor = f_.load("float", element_address(op.factor, row_, i64(0)), 4);
      f_.if_else(f_.compare("fcmp une", factor, f32(1)), [&] {
        const Val lanes = f_.splat(factor, shape_.width);
        const std::string floats = vector_of(shape_.width, "float");
        f_.loop(i64(0), i64(shape_.padded(decl.cols)), shape_.width, [&](Val c) {
          const Val at = element_address(op.acc, row_, c);
          f_.store(f_.binary("fmul", f_.load(floats, at, 4), lanes), at, 4);
        });
      });
    });
  }

  void gather(const ir::Gather& op) override {
    const std::int64_t slots = frame_.kernel[op.indices].cols, cols = frame_.kernel[op.dst].cols;
    const DType type = frame_.dtype(op.tensor);
    fill({op.dst, 0.0});
    each_row([&] {
      each_slot(slots, [&] {
        const Val position = f_.cast("sext", f_.load("i32", element_address(op.indices, row_, slot_), 4), "i64");
        f_.if_else(f_.compare("icmp sge", position, i64(0)), [&] {
          expr_.push_scope();
          const Val weight = expr_.to_real(expr_.emit(op.weight)).front();
          const Val source_row = frame_.row_address(op.tensor, row_number(), position);
          f_.loop(i64(0), i64(cols), 1, [&](Val c) {
            const Val at = element_address(op.dst, row_, c);
            const Val x = load_widened(f_, type, f_.gep(size_of(type) == 4 ? "float" : "i16", source_row, c), 1);
            f_.store(f_.fma(weight, x, f_.load("float", at, 4)), at, 4);
          });
          expr_.pop_scope();
        });
      });
    });
  }

  void restore(const ir::Restore&) override { internal_check(false, "saved states with lanes: positions"); }
  void save(const ir::Save&) override { internal_check(false, "saved states with lanes: positions"); }
  std::int64_t state_bytes() const override { return 0; }

  void store(const ir::Store& op) override {
    const ir::ValueDecl& decl = frame_.kernel[op.src];
    const DType type = frame_.dtype(op.tensor);
    const std::string raw = size_of(type) == 4 ? "float" : "i16";
    each_row([&] {
      const Val to = frame_.row_address(op.tensor, row_number());
      if (decl.axis == ir::Axis::slot) return store_slots(op, decl, to);
      const std::int64_t whole = decl.axis == ir::Axis::row ? 0 : decl.cols / shape_.width * shape_.width;
      const std::string floats = vector_of(shape_.width, "float");
      f_.loop(i64(0), i64(whole), shape_.width, [&](Val c) {
        store_narrowed(f_, type, f_.load(floats, element_address(op.src, row_, c), 4), f_.gep(raw, to, c));
      });
      f_.loop(i64(whole), i64(decl.cols), 1, [&](Val c) {
        store_narrowed(f_, type, f_.load("float", element_address(op.src, row_, c), 4), f_.gep(raw, to, c));
      });
    });
  }

 protected:
  int width() const override { return shape_.width; }

 private:
  Val row_number() { return f_.add(frame_.at.row, row_); }
  Val element_address(ir::Value v, const Val& r, const Val& c) {
    return f_.gep("float", memory_.at(v.id), f_.add(f_.mul(r, i64(shape_.padded(frame_.kernel[v].cols))), c));
  }
  Val stream_address(ir::Value v, const Val& r, const Val& j) {
    const Val base = stream_memory_.at(static_cast<std::size_t>(buffers_.buffer_of.at(v.id)));
    return f_.gep("float", base, f_.add(f_.mul(r, i64(pitch_)), j));
  }
  // First position of the current stream tile of a tensor; with rows of its own, those of the (only) row.
  Val source(const std::string& tensor) { return frame_.row_address(tensor, frame_.at.row, frame_.at.position); }
  Val stride_bytes(const std::string& tensor) {
    const Dims& dims = frame_.dims_of(tensor);
    const auto dim = std::find(dims.begin(), dims.end(), frame_.context.algorithm.streamed) - dims.begin();
    return f_.mul(frame_.args.stride(tensor, static_cast<int>(dim)), i64(static_cast<std::int64_t>(size_of(frame_.dtype(tensor)))));
  }

  void row_blocks(const std::function<void(Val)>& body) { f_.loop(i64(0), frame_.at.rows, shape_.rows, body); }
  void each_row(const std::function<void()>& body) {
    f_.loop(i64(0), frame_.at.rows, 1, [&](Val r) {
      expr_.push_scope();
      row_ = r;
      body();
      expr_.pop_scope();
    });
  }
  void each_slot(std::int64_t slots, const std::function<void()>& body) {
    f_.loop(i64(0), i64(slots), 1, [&](Val t) {
      expr_.push_scope(true);
      slot_ = t;
      body();
      expr_.pop_scope();
    });
  }
  std::int64_t slots_of(const Expr& e) const {
    if (e->op == Op::variable)
      if (const ir::Value v = frame_.kernel.find(e->name); v.id >= 0 && frame_.kernel[v].axis == ir::Axis::slot) return frame_.kernel[v].cols;
    for (const Expr& arg : e->args)
      if (const std::int64_t n = slots_of(arg)) return n;
    return 0;
  }

  // Sweeps.
  void hoist(const ir::Sweep& op) {
    const Dim& streamed = frame_.context.algorithm.streamed;
    for (const ir::Stmt& s : op.body) {
      if (const auto* m = std::get_if<ir::Map>(&s.node)) expr_.hoist(m->expr, streamed);
      if (std::holds_alternative<ir::Mask>(s.node)) expr_.hoist(predicate_, streamed);
    }
  }
  Val lane_numbers(const Val& first) {
    std::string iota = "<";
    for (int lane = 0; lane < shape_.width; ++lane) iota += fmt::format("{}i32 {}", lane ? ", " : "", lane);
    return f_.binary("add", f_.splat(f_.cast("trunc", first, "i32"), shape_.width), {iota + ">", vector_of(shape_.width, "i32")});
  }
  // Lanes past the end repeat the last position; reductions leave them out.
  void begin_positions(const Val& j) {
    expr_.push_scope(true);
    in_registers_.clear();
    offset_ = j;
    const Val last = f_.sub(f_.add(frame_.at.position, frame_.at.positions), i64(1));
    const Val all = lane_numbers(f_.add(frame_.at.position, j));
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
                     const Val x = f_.select(valid_, tile_value(op.src), identity(op.op));
                     const Var& acc = partial.at(op.acc.id);
                     const Val now = f_.get(acc);
                     f_.set(acc, op.op == ir::Reduce::sum ? f_.binary("fadd", now, x) : f_.select(f_.compare("fcmp ogt", x, now), x, now));
                   },
                   [&](const ir::Insert& op) { insert(op); },
                   [&](const ir::Store& op) { store_positions(op); },
                   [&](const auto& op) { internal_check(false, std::string(op.name) + " inside a sweep"); },
               },
               s.node);
  }
  Val tile_value(ir::Value v) {
    const auto it = in_registers_.find(v.id);
    return it != in_registers_.end() ? it->second : f_.load(vector_of(shape_.width, "float"), stream_address(v, row_, offset_), 4);
  }
  void finish_reduce(const ir::RowReduce& op, Val lanes) {
    for (int distance = shape_.width / 2; distance > 0; distance /= 2) {
      std::vector<int> mask;
      for (int lane = 0; lane < shape_.width; ++lane) mask.push_back(lane ^ distance);
      const Val other = f_.shuffle(lanes, lanes, mask);
      lanes = op.op == ir::Reduce::sum ? f_.binary("fadd", lanes, other) : f_.select(f_.compare("fcmp ogt", lanes, other), lanes, other);
    }
    const Val total = f_.emit("float", fmt::format("extractelement {} {}, i64 0", lanes.type, lanes.name));
    const Val at = element_address(op.acc, row_, i64(0));
    const Val now = f_.load("float", at, 4);
    f_.store(op.op == ir::Reduce::sum ? f_.binary("fadd", now, total) : f_.select(f_.compare("fcmp ogt", total, now), total, now), at, 4);
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
    const Val beats = f_.binary("and", valid_, f_.compare("fcmp ogt", x, f_.splat(least, shape_.width)));
    f_.if_else(f_.call("i1", fmt::format("llvm.vector.reduce.or.v{}i1", shape_.width), {beats}), [&] {
      each_valid_lane(x, [&](Val lane, Val score) {
        const Var value = f_.variable("float"), position = f_.variable("i32"), placed = f_.variable("i1");
        f_.set(value, score);
        f_.set(position, f_.cast("trunc", f_.add(f_.add(frame_.at.position, offset_), lane), "i32"));
        f_.set(placed, {"false", "i1"});
        f_.loop(i64(0), i64(k), 1, [&](Val t) {
          const Val value_at = element_address(op.values, row_, t), index_at = element_address(op.indices, row_, t);
          const Val old_value = f_.load("float", value_at, 4), old_index = f_.load("i32", index_at, 4);
          const Val take = f_.binary("or", f_.get(placed), f_.compare("fcmp ogt", f_.get(value), old_value));
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
  void store_slots(const ir::Store& op, const ir::ValueDecl& decl, const Val& to) {
    const int slot_dim = static_cast<int>(frame_.dims_of(op.tensor).size()) - 1;
    f_.loop(i64(0), i64(decl.cols), 1, [&](Val t) {
      const Val offset = f_.mul(t, frame_.args.stride(op.tensor, slot_dim));
      const Val from = element_address(op.src, row_, t);
      if (decl.element == ir::Element::i32) return f_.store(f_.load("i32", from, 4), f_.gep("i32", to, offset), 4);
      const DType type = frame_.dtype(op.tensor);
      store_narrowed(f_, type, f_.load("float", from, 4), f_.gep(size_of(type) == 4 ? "float" : "i16", to, offset));
    });
  }

  StreamShape shape_;
  ir::StreamBuffers buffers_;
  std::int64_t pitch_ = 0, rows_ = 0;
  std::vector<Val> stream_memory_;
  std::map<int, Val> memory_;
  Val spill_;
  Val row_{"0", "i64"}, offset_, column_, slot_;   // i64: where the code is
  Val positions_, columns_, valid_;                // lanes
  std::map<int, Val> in_registers_;
};

}  // namespace

std::unique_ptr<LaneForm> make_position_lanes(Frame& frame) { return std::make_unique<PositionLanes>(frame); }

}  // namespace attile::llvm_text
