// Lanes are rows: a panel of rows fills `panel_vectors` vectors, everything else is broadcast to them. Products
// run on packed tiles (llvm_tiles); row states live in registers while a panel is worked on.
#include <set>

#include "codegen/row_panels.h"
#include "dsl/error.h"

namespace attile::llvm_text {
namespace {

class RowLanes final : public RowPanels {
 public:
  using RowPanels::RowPanels;

  // Leaves ------------------------------------------------------------------------------------------------
  Values index(const Dim& dim) override {
    const Algorithm& a = frame_.context.algorithm;
    if (dim == batch) return {frame_.at.sequence};
    if (dim == kv_head) return {frame_.kv_head_at()};
    if (dim == head) return frame_.group_in_rows() ? read(head_lanes_) : Values{frame_.at.head};
    if (dim == a.parallel) return read(row_lanes_);
    if (dim == a.streamed) return {position_};
    if (dim == slot) return {slot_};
    return {column_};
  }
  Values variable(const Node& node) override {
    const ir::Value v = frame_.kernel.find(node.name);
    internal_check(v.id >= 0, "unknown value " + node.name);
    const ir::ValueDecl& decl = frame_.kernel[v];
    if (decl.axis == ir::Axis::stream) {
      if (const auto it = in_registers_.find(v.id); it != in_registers_.end()) return it->second;
      return load_row(stream_row(v, offset_in_tile_), decl.element);
    }
    if (decl.axis == ir::Axis::feature) return load_row(row_of(panel_address(v), column_), decl.element);
    if (decl.axis == ir::Axis::slot) return load_row(row_of(panel_address(v), slot_), decl.element);
    if (const auto it = states_.find(v.id); it != states_.end()) return read(it->second);
    return load_row(panel_address(v), decl.element);
  }
  Values reduce_sum(const Node& node) override {
    const Registers sum = registers("float");
    clear(sum);
    each_slot(slots_of(node.args[0]), [&] {
      Values x = expr_.to_real(expr_.emit(node.args[0]));
      for (std::size_t i = 0; i < sum.size(); ++i) f_.set(sum[i], f_.binary("fadd", f_.get(sum[i]), x[i]));
    });
    return read(sum);
  }

  // Ops ---------------------------------------------------------------------------------------------------
  void fill(const ir::Fill& op) override {
    const ir::ValueDecl& decl = frame_.kernel[op.dst];
    const Values value = constant_row(op.constant, decl.element);
    const std::int64_t panels = frame_.context.schedule.tile_rows / shape_.rows();
    f_.loop(i64(0), i64(panels * decl.cols), 1, [&](Val i) { store_row(value, row_of(memory_.at(op.dst.id), i)); });
  }
  void score(const ir::ScoreMma& op) override {
    const bool pairs = op.kind == ir::MmaKind::pair_dot;
    const std::string callee = score_function(frame_.module, shape_, frame_.kernel[op.b].cols, pairs);
    const Val blocks = f_.udiv(f_.add(frame_.at.positions, i64(shape_.block - 1)), i64(shape_.block));
    const std::int64_t block_units = columns_of(op.b) * shape_.block;
    const Val first = f_.mul(f_.udiv(frame_.at.tile_offset, i64(shape_.block)), i64(block_units));
    f_.call_void(callee, {panel_address(op.a), f_.gep("float", operand_memory(op.b), first), stream_memory(op.dst), blocks});
  }
  void sum(const ir::SumMma& op) override {
    const bool pairs = op.kind == ir::MmaKind::pair_dot;
    const auto make = op.guarded ? guarded_sum_function : sum_function;
    const std::string callee = make(frame_.module, shape_, frame_.kernel[op.v].cols, tile_keys(), pairs);
    const Val steps = pairs ? f_.binary("lshr", f_.add(frame_.at.positions, i64(1)), i64(1)) : frame_.at.positions;
    const Val offset = pairs ? f_.binary("lshr", frame_.at.tile_offset, i64(1)) : frame_.at.tile_offset;
    const Val v = f_.gep("float", operand_memory(op.v), f_.mul(offset, i64(shape_.block)));
    f_.call_void(callee, {stream_memory(op.p), v, panel_address(op.acc), steps});
  }
  Val not_finite(ir::Value v) override {
    return f_.compare("icmp ne", f_.load("i8", flag_address(v), 1), {"0", "i8"});
  }

  void sweep(const ir::Sweep& op) override {
    for (const ir::Stmt& s : op.body)
      if (const auto* reduce = std::get_if<ir::RowReduce>(&s.node)) ensure_state(reduce->acc);
    const bool pairs = std::any_of(op.body.begin(), op.body.end(), [&](const ir::Stmt& s) { return writes_pairs(s); });
    expr_.push_scope(true);
    hoist(op);
    const Val n = frame_.at.positions;
    if (pairs) {
      const Val even = f_.binary("and", n, i64(-2));
      f_.loop(i64(0), even, 2, [&](Val j) { position_pair(op, j, f_.add(j, i64(1))); });
      f_.if_else(f_.compare("icmp ne", even, n), [&] { position_pair(op, even, {}); });
    } else {
      f_.loop(i64(0), n, 1, [&](Val j) { one_position(op, j); });
    }
    expr_.pop_scope();
  }

  void map(const ir::Map& op) override {
    const ir::ValueDecl& decl = frame_.kernel[op.dst];
    if (decl.axis == ir::Axis::row) {
      expr_.push_scope();
      const Values value = full(expr_.to_real(expr_.emit(op.expr)));
      expr_.pop_scope();
      ensure_state(op.dst);
      return write(states_[op.dst.id], value);
    }
    expr_.push_scope(true);
    hoist_invariant(op.expr);
    f_.loop(i64(0), i64(decl.cols), 1, [&](Val c) {
      expr_.push_scope(true);
      column_ = c;
      store_row(full(expr_.to_real(expr_.emit(op.expr))), row_of(panel_address(op.dst), c));
      expr_.pop_scope();
    });
    expr_.pop_scope();
  }

  void rescale(const ir::Rescale& op) override {
    const Values factor = read(states_.at(op.factor.id));
    const ir::ValueDecl& decl = frame_.kernel[op.acc];
    if (decl.axis == ir::Axis::row) {
      Values x = read(states_.at(op.acc.id));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = f_.binary("fmul", x[i], factor[i]);
      return write(states_[op.acc.id], x);
    }
    Values changed;
    for (const Val& v : factor) changed.push_back(f_.compare("fcmp une", v, splat_constant(f32(1), shape_.width)));
    f_.if_else(any(changed), [&] {
      f_.loop(i64(0), i64(decl.cols), 1, [&](Val c) {
        const Val address = row_of(panel_address(op.acc), c);
        Values x = load_row(address, ir::Element::f32);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = f_.binary("fmul", x[i], factor[i]);
        store_row(x, address);
      });
    });
  }

  // Σ over slots, one row at a time: the rows of the tensor are read where they lie.
  void gather(const ir::Gather& op) override {
    const std::int64_t slots = frame_.kernel[op.indices].cols, cols = frame_.kernel[op.dst].cols;
    const Val weights = stream_or_reserve(slots);
    expr_.push_scope(true);
    each_slot(slots, [&] { store_row(full(expr_.to_real(expr_.emit(op.weight))), row_of(weights, slot_)); });
    expr_.pop_scope();
    const Val dst = panel_address(op.dst), indices = panel_address(op.indices);
    f_.loop(i64(0), i64(cols), 1, [&](Val c) { store_row(constant_row(0, ir::Element::f32), row_of(dst, c)); });
    const DType type = frame_.dtype(op.tensor);
    f_.loop(i64(0), frame_.at.rows, 1, [&](Val r) {
      f_.loop(i64(0), i64(slots), 1, [&](Val t) {
        const Val at_slot = f_.add(f_.mul(t, i64(shape_.rows())), r);
        const Val position = f_.cast("sext", f_.load("i32", f_.gep("i32", indices, at_slot), 4), "i64");
        f_.if_else(f_.compare("icmp sge", position, i64(0)), [&] {
          const Val weight = f_.load("float", f_.gep("float", weights, at_slot), 4);
          const Val row = frame_.row_address(op.tensor, f_.add(frame_.at.row, r), position);
          f_.loop(i64(0), i64(cols), 1, [&](Val c) {
            const Val sum_at = f_.gep("float", dst, f_.add(f_.mul(c, i64(shape_.rows())), r));
            const Val x = load_widened(f_, type, f_.gep(raw_type(type), row, c), 1);
            f_.store(f_.fma(weight, x, f_.load("float", sum_at, 4)), sum_at, 4);
          });
        });
      });
    });
  }

  void store(const ir::Store& op) override {
    const ir::ValueDecl& decl = frame_.kernel[op.src];
    if (decl.axis == ir::Axis::feature) return store_features(op, decl.cols);
    if (decl.axis == ir::Axis::row) {
      const Values value = variable(*attile::variable(decl.name, {}));
      store_row(value, spill_);
      return store_spilled(op.tensor, {}, "float");
    }
    const int slot_dim = static_cast<int>(frame_.dims_of(op.tensor).size()) - 1;
    f_.loop(i64(0), i64(decl.cols), 1, [&](Val t) {
      const std::string type = decl.element == ir::Element::i32 ? "i32" : "float";
      f_.loop(i64(0), frame_.at.rows, 1, [&](Val r) {
        const Val value = f_.load(type, f_.gep(type, panel_address(op.src), f_.add(f_.mul(t, i64(shape_.rows())), r)), 4);
        const Val row = frame_.row_address(op.tensor, f_.add(frame_.at.row, r));
        const Val to = f_.gep(type == "i32" ? "i32" : raw_type(frame_.dtype(op.tensor)), row, f_.mul(t, frame_.args.stride(op.tensor, slot_dim)));
        if (type == "i32") return f_.store(value, to, 4);
        store_narrowed(f_, frame_.dtype(op.tensor), value, to);
      });
    });
  }

 private:
  // Sweeps.
  bool writes_pairs(const ir::Stmt& s) const {
    const auto* map = std::get_if<ir::Map>(&s.node);
    return map && frame_.kernel[map->dst].layout == ir::Layout::row_pairs;
  }
  void hoist_invariant(const Expr& e) {
    std::set<const Node*> seen;
    hoist_invariant(e, seen);
  }
  void hoist_invariant(const Expr& e, std::set<const Node*>& seen) {
    if (e->op == Op::constant || e->op == Op::variable || !seen.insert(e.get()).second) return;
    bool varies = false;
    for (const Dim& d : e->dims) varies |= !is_batch_like(d) && d != frame_.context.algorithm.parallel;
    if (!varies) {
      expr_.emit(e);
      return;
    }
    for (const Expr& arg : e->args) hoist_invariant(arg, seen);
  }

  void one_position(const ir::Sweep& op, const Val& j) {
    begin_position(j);
    for (const ir::Stmt& s : op.body) element_op(s);
    for (const auto& [v, value] : in_registers_)
      if (buffers_.buffer_of.contains(v)) store_row(value, stream_row(ir::Value{v}, j));
    end_position();
  }
  // Two positions whose weights share words; without a second one its half is +0 and nothing else happens.
  void position_pair(const ir::Sweep& op, const Val& first, const Val& second) {
    begin_position(first);
    for (const ir::Stmt& s : op.body) element_op(s);
    const auto low = in_registers_;
    end_position();
    auto high = low;
    if (!second.empty()) {
      begin_position(second);
      for (const ir::Stmt& s : op.body) element_op(s);
      high = in_registers_;
      end_position();
    }
    for (const auto& [v, value] : low) {
      if (!buffers_.buffer_of.contains(v)) continue;
      const ir::Value id{v};
      if (frame_.kernel[id].layout != ir::Layout::row_pairs) {
        store_row(value, stream_row(id, first));
        if (!second.empty()) store_row(high.at(v), stream_row(id, second));
        continue;
      }
      const Values upper = second.empty() ? constant_row(0, ir::Element::f32) : high.at(v);
      const Val address = stream_row(id, f_.binary("lshr", first, i64(1)));
      store_row(paired(value, upper), address);
    }
  }
  // bf16 of a in the low, of b in the high half of each 32-bit lane.
  Values paired(const Values& a, const Values& b) {
    const int w = shape_.width;
    std::vector<int> zip;
    for (int i = 0; i < w; ++i) zip.insert(zip.end(), {i, w + i});
    Values out;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Val both = f_.call(vector_of(2 * w, "bfloat"), fmt::format("llvm.x86.avx512bf16.cvtne2ps2bf16.{}", w * 32), {b[i], a[i]});
      const Val words = f_.cast("bitcast", both, vector_of(2 * w, "i16"));
      out.push_back(f_.cast("bitcast", f_.shuffle(words, words, zip), vec("float")));
    }
    return out;
  }
  void begin_position(const Val& j) {
    expr_.push_scope(true);
    in_registers_.clear();
    offset_in_tile_ = j;
    position_ = f_.add(frame_.at.position, j);
  }
  void end_position() {
    in_registers_.clear();
    expr_.pop_scope();
  }

  void element_op(const ir::Stmt& s) {
    std::visit(ir::overloaded{
                   [&](const ir::Map& op) { in_registers_[op.dst.id] = full(expr_.to_real(expr_.emit(op.expr))); },
                   [&](const ir::Mask& op) {
                     Values& tile = in_registers_.at(op.tile.id);
                     tile = full(expr_.select(expr_.emit(predicate_), tile, expr_.constant(op.hidden, tile)));
                   },
                   [&](const ir::RowReduce& op) { reduce(op); },
                   [&](const ir::Insert& op) { insert(op); },
                   [&](const ir::Store& op) {
                     store_row(tile_value(op.src), spill_);
                     store_spilled(op.tensor, position_, "float");
                   },
                   [&](const auto& op) { internal_check(false, std::string(op.name) + " inside a sweep"); },
               },
               s.node);
  }
  Values tile_value(ir::Value v) {
    const auto it = in_registers_.find(v.id);
    return it != in_registers_.end() ? it->second : load_row(stream_row(v, offset_in_tile_), ir::Element::f32);
  }
  // A NaN score does not enter the maximum; its weight is NaN whatever the maximum is.
  void reduce(const ir::RowReduce& op) {
    const Values x = tile_value(op.src);
    const Registers& acc = states_.at(op.acc.id);
    for (std::size_t i = 0; i < acc.size(); ++i) {
      const Val now = f_.get(acc[i]);
      f_.set(acc[i], op.op == ir::Reduce::sum ? f_.binary("fadd", now, x[i]) : f_.select(f_.compare("fcmp ogt", x[i], now), x[i], now));
    }
  }
  // Sorted insertion, only where some lane beats its last entry. Once placed, a lane shifts all that follow.
  void insert(const ir::Insert& op) {
    const Values x = tile_value(op.src);
    const std::int64_t k = frame_.kernel[op.values].cols;
    const Val values = panel_address(op.values), indices = panel_address(op.indices);
    const int w = shape_.width;
    for (int v = 0; v < shape_.vectors; ++v) {
      const auto entry = [&](const Val& base, const Val& t) { return f_.byte_offset(row_of(base, t), std::int64_t{v} * w * 4); };
      const Val score = x[static_cast<std::size_t>(v)];
      const Val beats = ranks_before(f_, score, f_.load(vec("float"), entry(values, i64(k - 1)), w * 4));
      f_.if_else(any({beats}), [&] {
        const Var value = f_.variable(vec("float")), position = f_.variable(vec("i32")), placed = f_.variable(vec("i1"));
        f_.set(value, score);
        f_.set(position, f_.splat(f_.cast("trunc", position_, "i32"), w));
        f_.set(placed, {"zeroinitializer", vec("i1")});
        f_.loop(i64(0), i64(k), 1, [&](Val t) {
          const Val value_at = entry(values, t), index_at = entry(indices, t);
          const Val old_value = f_.load(vec("float"), value_at, w * 4), old_index = f_.load(vec("i32"), index_at, w * 4);
          const Val take = f_.binary("or", f_.get(placed), ranks_before(f_, f_.get(value), old_value));
          f_.store(f_.select(take, f_.get(value), old_value), value_at, w * 4);
          f_.store(f_.select(take, f_.get(position), old_index), index_at, w * 4);
          f_.set(value, f_.select(take, old_value, f_.get(value)));
          f_.set(position, f_.select(take, old_index, f_.get(position)));
          f_.set(placed, take);
        });
      });
    }
  }

  // Selections.
  void each_slot(std::int64_t slots, const std::function<void()>& body) {
    f_.loop(i64(0), i64(slots), 1, [&](Val t) {
      expr_.push_scope(true);
      slot_ = t;
      body();
      expr_.pop_scope();
    });
  }

  std::map<int, Values> in_registers_;   // stream tiles at the position at hand
  Val position_, offset_in_tile_, column_, slot_;
};

}  // namespace

std::unique_ptr<LaneForm> make_row_lanes(Frame& frame) { return std::make_unique<RowLanes>(frame); }

}  // namespace attile::llvm_text
