#include "codegen/passes/tile_loops.h"

#include <fmt/format.h>

#include <limits>
#include <map>

#include "codegen/passes/rewrite.h"
#include "dsl/error.h"
#include "schedules/cuda_footprint.h"
#include "schedules/footprint.h"

namespace attile::ir {
namespace {

// Builds the body of one panel of rows against one tile of the stream, and what stands around it.
class TileLoops {
 public:
  TileLoops(Kernel& kernel, const Context& context)
      : kernel_(kernel),
        context_(context),
        a_(context.algorithm),
        tile_rows_(context.schedule.tile_rows),
        panel_rows_(panel_rows(context.schedule, context.target)),
        positions_(context.schedule.tile_keys) {}

  Block build() {
    declare_states();
    Stmt panels{Loop{LoopKind::panels, carried_, {}, panel_body()}};
    Stmt finish{Loop{LoopKind::panels, {}, {}, finish_body()}};
    const bool keys_outer = context_.schedule.order == Order::keys_outer;
    return keys_outer ? stream_outside(std::move(panels), std::move(finish)) : rows_outside(std::move(panels), std::move(finish));
  }

 private:
  // A task is a row tile: its states stay, the stream passes (FlashAttention-2).
  Block rows_outside(Stmt panels, Stmt finish) {
    Block stream_body = std::move(stream_copies_);
    stream_body.push_back(std::move(panels));
    Block body = std::move(row_copies_);
    append(body, fills_);
    body.push_back({Loop{LoopKind::key_tiles, carried_, {}, std::move(stream_body)}});
    body.push_back(std::move(finish));
    return body;
  }

  // A task is all rows of a head: a tile of the stream stays, rows and states pass (FlashAttention-1, algorithm 1,
  // which also starts with the states in memory; the normalisation is left to the end).
  Block stream_outside(Stmt panels, Stmt finish) {
    Block restores, saves;
    for (const Value v : carried_) {
      restores.push_back({Restore{v}});
      saves.push_back({Save{v}});
    }
    Block start = fills_, end = restores, rows = std::move(row_copies_), stream_body = std::move(stream_copies_);
    append(start, saves);
    end.push_back(std::move(finish));
    append(rows, restores);
    rows.push_back(std::move(panels));
    append(rows, saves);
    stream_body.push_back({Loop{LoopKind::row_tiles, {}, {}, std::move(rows)}});
    Block body;
    if (!carried_.empty()) body.push_back({Loop{LoopKind::row_tiles, {}, {}, std::move(start)}});
    body.push_back({Loop{LoopKind::key_tiles, {}, {}, std::move(stream_body)}});
    if (!carried_.empty()) body.push_back({Loop{LoopKind::row_tiles, {}, {}, std::move(end)}});
    return body;
  }
  static void append(Block& to, const Block& more) { to.insert(to.end(), more.begin(), more.end()); }

  void declare_states() {
    for (const StateDecl& s : a_.states) {
      if (s.kind == StateKind::selection) {
        carry(declare(s.name + ".values", Axis::slot, s.count), -std::numeric_limits<double>::infinity());
        carry(declare(s.name + ".indices", Axis::slot, s.count, Element::i32), -1);
        continue;
      }
      const Dim* feature = feature_dim(s.update);
      const Value v = feature ? declare(s.name, Axis::feature, extent(*feature)) : declare(s.name, Axis::row, 1);
      carry(v, s.kind == StateKind::reference ? -std::numeric_limits<double>::infinity() : 0.0);
    }
  }

  Value declare(const std::string& name, Axis axis, std::int64_t cols, Element element = Element::f32) {
    const bool whole_tile = axis != Axis::stream && !in_panel_;
    return kernel_.add({unique(name), element, axis, whole_tile ? tile_rows_ : panel_rows_, cols, Space::panel, Layout::plain});
  }
  void carry(Value v, double initial) {
    carried_.push_back(v);
    fills_.push_back({Fill{v, initial}});
  }
  std::string unique(const std::string& name) const {
    std::string candidate = name;
    for (int i = 2; kernel_.find(candidate).id >= 0; ++i) candidate = fmt::format("{}{}", name, i);
    return candidate;
  }

  // The dim of a sum beside rows: the one that its dot brings in.
  const Dim* feature_dim(const Expr& update) const {
    for (const Dim& d : update->dims)
      if (!is_batch_like(d) && d != a_.parallel && d != a_.streamed && d != slot) return &d;
    return nullptr;
  }
  std::int64_t extent(const Dim& d) const {
    const auto it = context_.problem.extents.find(d.name);
    internal_check(it != context_.problem.extents.end(), "no extent for dim " + d.name);
    return it->second;
  }
  const Dims& state_dims(const std::string& name) const { return a_.find_state(name)->update->dims; }

  Expr read(Value v, const Dims& dims) const { return variable(kernel_[v].name, dims); }
  Expr row_variable(Value v) const { return variable(kernel_[v].name, {a_.parallel}); }

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy = {}) const {
    throw Error(ErrorKind::unsupported, a_.name, what, remedy);
  }

  // A tile operand of a dot: a tensor at its own dims. Copied once, shared by all dots that read it.
  Value operand(const Expr& e, bool of_scores) {
    if (e->op != Op::element)
      refuse(fmt::format("dot reads '{}', which is not an input tensor", to_string(e)), "emit the operand in an algorithm of its own first");
    for (std::size_t i = 0; i < e->args.size(); ++i)
      if (e->args[i]->op != Op::index || e->args[i]->dim != e->axes[i])
        refuse(fmt::format("dot reads '{}' at computed indices: {}", e->name, to_string(e)), "copy its rows into a tensor of their own first");
    const auto [role, is_new] = of_scores_.try_emplace(e->name, of_scores);
    if (role->second != of_scores)
      refuse(fmt::format("'{}' is read by a dot of scores and by a sum, which lay it out differently", e->name), "pass it under a second name too");
    const Value known = kernel_.find(e->name);
    if (known.id >= 0) return known;
    const Dim* feature = feature_dim(e);
    internal_check(feature != nullptr, "operand without a feature dim: " + e->name);
    const bool streamed = has_free_dim(e, a_.streamed);
    const Value v = kernel_.add({e->name, Element::f32, Axis::feature, streamed ? positions_ : tile_rows_, extent(*feature),
                                 Space::tile, Layout::plain});
    (streamed ? stream_copies_ : row_copies_).push_back({Copy{v, e->name}});
    return v;
  }

  // Dots over a feature dim become ScoreMma; subtrees already computed become variables.
  Expr lowered(const Expr& e, Block& out) {
    return rewrite(e, [&](const Expr& node) -> std::optional<Expr> {
      for (const auto& [expr, replacement] : available_)
        if (same(node, expr)) return replacement;
      if (node->op == Op::reduce_sum && node->dim != slot)
        refuse(fmt::format("'{}' is a sum over {} that is no dot of two input tensors", to_string(node), node->dim.name));
      if (node->op != Op::dot || node->dim == slot) return std::nullopt;
      const Expr& x = node->args[0];
      const Expr& y = node->args[1];
      const bool swapped = has_free_dim(x, a_.streamed);
      const Expr &row_side = swapped ? y : x, &position_side = swapped ? x : y;
      if (node->dim == a_.streamed || has_free_dim(row_side, a_.streamed) || !has_free_dim(position_side, a_.streamed))
        refuse(fmt::format("'{}' is no dot of a row with a position of the stream", to_string(node)), "pass its values as a tensor");
      const Value rows = operand(row_side, true), positions = operand(position_side, true);
      const Value dst = declare(kernel_[rows].name + kernel_[positions].name, Axis::stream, positions_);
      out.push_back({ScoreMma{dst, rows, positions}});
      return define(node, dst);
    });
  }
  Expr define(const Expr& e, Value v) {
    available_.emplace_back(e, read(v, e->dims));
    return available_.back().second;
  }

  // A stream tile holding `e`, masked with `hidden`; shared by all who need the same expression masked alike.
  Value tile_of(const Expr& e, const std::string& name, double hidden, Block& out) {
    const Expr value = lowered(e, out);
    const auto known = value->op == Op::variable ? masked_.find(kernel_.find(value->name).id) : masked_.end();
    if (known != masked_.end() && (a_.visible.empty() || known->second == hidden)) return Value{known->first};
    const Value v = declare(name, Axis::stream, positions_);
    out.push_back({Map{v, value}});
    const bool implied = hidden == 0 && score_.id >= 0 && vanishes_at_minus_infinity(value, kernel_[score_].name);
    if (a_.visible) out.push_back({Mask{v, hidden, implied}});
    masked_.emplace(v.id, hidden);
    define(e, v);
    return v;
  }

  Block panel_body() {
    in_panel_ = true;
    Block out;
    const RescaleRule* rule = a_.rule();
    for (const StateDecl& s : a_.states)
      if (s.kind == StateKind::reference) reference(s, out);
    for (const StateDecl& s : a_.states)
      if (s.kind == StateKind::selection) insert(s, out);
    if (rule) rescale(*rule, out);
    for (const bool products : {false, true})   // row sums share their weights with the products
      for (const StateDecl& s : a_.states)
        if (s.kind == StateKind::sum && as_product(s).has_value() == products) add_to_sum(s, out);
    for (const OutputDecl& o : a_.outputs)
      if (o.per_position) out.push_back({Store{o.name, tile_of(resolved(o.value), o.name, 0.0, out)}});
    if (next_reference_.id >= 0 && !lags()) out.push_back({Map{kernel_.find(reference_name_), row_variable(next_reference_)}});
    in_panel_ = false;
    return out;
  }

  // weights · tensor, summed over the stream: a dot, or a plain product with a tensor that has rows of its own
  // (the parts that a merge reads).
  struct Product { Expr weights, tensor; };
  std::optional<Product> as_product(const StateDecl& s) const {
    if (s.update->op == Op::element && feature_dim(s.update)) return Product{constant(1), s.update};
    const bool is_dot = s.update->op == Op::dot && s.update->dim == a_.streamed;
    if (!is_dot && !(s.update->op == Op::mul && feature_dim(s.update))) return std::nullopt;
    const Expr& x = s.update->args[0];
    const Expr& y = s.update->args[1];
    if (y->op == Op::element && feature_dim(y) && !feature_dim(x)) return Product{x, y};
    if (x->op == Op::element && feature_dim(x) && !feature_dim(y)) return Product{y, x};
    refuse(fmt::format("sum '{}' must be a weight times an input tensor, not {}", s.name, to_string(s.update)));
  }

  // References read as the guarded new reference inside weights.
  Expr resolved(const Expr& e) const {
    return guarded_reference_.id < 0 ? e : substitute(e, {{reference_name_, row_variable(guarded_reference_)}});
  }

  void reference(const StateDecl& s, Block& out) {
    reference_name_ = s.name;
    score_ = tile_of(s.update, "s", -std::numeric_limits<double>::infinity(), out);
    next_reference_ = declare(s.name + (lags() ? "_tile" : "_next"), Axis::row, 1);
    guarded_reference_ = declare(s.name + "_safe", Axis::row, 1);
    const Stmt start = lags() ? Stmt{Fill{next_reference_, -std::numeric_limits<double>::infinity()}}
                              : Stmt{Map{next_reference_, row_variable(kernel_.find(s.name))}};
    out.insert(out.begin(), start);
    out.push_back({RowReduce{next_reference_, score_, Reduce::max}});
    if (!lags()) out.push_back({Map{guarded_reference_, guarded(next_reference_)}});
  }
  bool lags() const { return context_.schedule.lazy_rescale && context_.schedule.lanes == Lanes::fragments && a_.rule(); }
  // −inf as 0, so that distances from it are no NaN.
  Expr guarded(Value reference) const {
    const Expr r = row_variable(reference);
    return attile::select(r == -infinity(), constant(0), r);
  }

  void insert(const StateDecl& s, Block& out) {
    const Value src = tile_of(s.update, "s", -std::numeric_limits<double>::infinity(), out);
    out.push_back({Insert{kernel_.find(s.name + ".values"), kernel_.find(s.name + ".indices"), src}});
  }

  void rescale(const RescaleRule& rule, Block& out) {
    if (next_reference_.id < 0) return;
    if (!lags()) return rescale_to(guarded_reference_, rule, out);
    const Value reference = kernel_.find(rule.reference), moved = declare(rule.reference + "_next", Axis::row, 1), to = declare(rule.reference + "_to", Axis::row, 1);
    Advance advance{reference, next_reference_, lag_of_reference, {}, {}};
    const Expr own = row_variable(reference), tile = row_variable(next_reference_);   // only rows that need it: no row's bits depend on another's
    advance.body.push_back({Map{moved, attile::select(tile - own <= constant(lag_of_reference), own, max(own, tile))}});
    advance.body.push_back({Map{to, guarded(moved)}});
    rescale_to(to, rule, advance.body);
    advance.body.push_back({Map{reference, row_variable(moved)}});
    out.push_back({std::move(advance)});
    out.push_back({Map{guarded_reference_, guarded(reference)}});
  }
  void rescale_to(Value to, const RescaleRule& rule, Block& out) {
    const Value factor = declare("factor", Axis::row, 1);
    const Expr from = row_variable(kernel_.find(rule.reference));
    out.push_back({Map{factor, substitute(rule.factor, {{rule.from->name, from}, {rule.to->name, row_variable(to)}})}});
    for (const std::string& sum : rule.sums) out.push_back({Rescale{kernel_.find(sum), factor}});
  }

  void add_to_sum(const StateDecl& s, Block& out) {
    const Value acc = kernel_.find(s.name);
    const auto product = as_product(s);
    if (!product) {
      out.push_back({RowReduce{acc, tile_of(resolved(s.update), "p", 0.0, out), Reduce::sum}});
      return;
    }
    const Value weights = tile_of(resolved(product->weights), "p", 0.0, out);
    out.push_back({SumMma{acc, weights, operand(product->tensor, false)}});
  }

  // Outputs from the final states: row by row, or over the feature dim of a sum.
  Block finish_body() {
    in_panel_ = true;
    Block out;
    for (const OutputDecl& o : a_.outputs) {
      if (o.per_position) continue;
      const Expr value = gathered(o.value, out);
      if (const Value direct = value->op == Op::variable ? kernel_.find(value->name) : Value{}; direct.id >= 0) {
        out.push_back({Store{o.name, direct}});
        continue;
      }
      const Dim* feature = feature_dim(o.value);
      const Value v = feature ? declare(o.name + "_out", Axis::feature, extent(*feature)) : declare(o.name + "_out", Axis::row, 1);
      out.push_back({Map{v, value}});
      out.push_back({Store{o.name, v}});
    }
    return out;
  }

  // dot(weight, tensor(…, indices, …), slot) becomes a Gather.
  Expr gathered(const Expr& e, Block& out) {
    return rewrite(e, [&](const Expr& node) -> std::optional<Expr> {
      if ((node->op == Op::dot || node->op == Op::reduce_sum) && node->dim != slot)
        refuse(fmt::format("an output reads '{}', a sum over {}", to_string(node), node->dim.name), "compute it from the outputs");
      if (node->op != Op::dot || node->dim != slot) return std::nullopt;
      const bool swapped = node->args[0]->op == Op::element;
      const Expr& tensor = node->args[swapped ? 0 : 1];
      const Expr& weight = node->args[swapped ? 1 : 0];
      Value indices;
      for (const Expr& at : tensor->args)
        if (at->op == Op::variable) indices = kernel_.find(at->name);
      internal_check(tensor->op == Op::element && indices.id >= 0, "a dot over slots gathers rows of a tensor");
      for (const auto& [seen, replacement] : available_)
        if (same(seen, node)) return replacement;
      const Dim* feature = feature_dim(tensor);
      const Value dst = declare(tensor->name + "_rows", Axis::feature, extent(*feature));
      out.push_back({Gather{dst, weight, indices, tensor->name}});
      return define(node, dst);
    });
  }

  Kernel& kernel_;
  const Context& context_;
  const Algorithm& a_;
  const std::int64_t tile_rows_, panel_rows_, positions_;
  bool in_panel_ = false;
  std::vector<Value> carried_;
  Block fills_, row_copies_, stream_copies_;
  std::vector<std::pair<Expr, Expr>> available_;
  std::map<std::string, bool> of_scores_;   // operands: read by a dot of scores, or by a sum
  std::map<int, double> masked_;   // stream tiles, with what they hold at hidden positions
  std::string reference_name_;
  Value score_, next_reference_, guarded_reference_;
};

}  // namespace

// A mask is applied to scores that are there already, and is looked at without them to skip tiles.
static void refuse_products_in_masks(const Algorithm& a) {
  if (a.visible.empty()) return;
  rewrite(a.visible, [&](const Expr& node) -> std::optional<Expr> {
    if (node->op == Op::dot || node->op == Op::reduce_sum)
      throw Error(ErrorKind::unsupported, a.name, fmt::format("a mask reads '{}'", to_string(node)), "make the score -inf there instead");
    return std::nullopt;
  });
}

// With other lengths than the tensors' extents, the tensor has positions that no sequence has.
static void refuse_lengths(const Algorithm& a) {
  for (const OutputDecl& o : a.outputs)
    if (o.per_position && a.lengths != Lengths::dense)
      throw Error(ErrorKind::unsupported, a.name, fmt::format("'{}' is written at every position, which needs dense lengths", o.name),
                  "run each sequence by itself");
}

Kernel tile_loops(Kernel kernel, const Context& context) {
  refuse_lengths(context.algorithm);
  refuse_products_in_masks(context.algorithm);
  kernel.name = context.algorithm.name;
  kernel.body = TileLoops(kernel, context).build();
  return kernel;
}

}  // namespace attile::ir
