#include "codegen/passes/fold_scale.h"

#include <algorithm>
#include <set>

#include "codegen/passes/rewrite.h"
#include "codegen/walk.h"

namespace attile::ir {
namespace {

class Fold {
 public:
  Fold(Kernel& kernel, const Context& context) : kernel_(kernel), rule_(context.algorithm.rule()) {}

  void run() {
    if (!rule_ || !find_score() || !fits()) return;
    reference_ = kernel_.find(rule_->reference);
    kernel_.positive.push_back(scale_->name);
    rewrite_all(kernel_.body, false);
  }

 private:
  bool reads(const Expr& e, Value v) const { return depends_on_variable(e, kernel_[v].name); }
  bool is_variable(const Expr& e, Value v) const { return e->op == Op::variable && e->name == kernel_[v].name; }

  // score = product · scale, once in the kernel.
  bool find_score() {
    int found = 0;
    walk(kernel_.body, [&](const Stmt& s) {
      const Map* map = std::get_if<Map>(&s.node);
      if (!map || kernel_[map->dst].axis != Axis::stream || map->expr->op != Op::mul) return;
      const Expr &a = map->expr->args[0], &b = map->expr->args[1];
      if (a->op != Op::variable || b->op != Op::scalar || b->kind != Kind::real || kernel_.find(a->name).id < 0) return;
      score_ = map->dst, product_ = kernel_.find(a->name), scale_ = b;
      ++found;
    });
    return found == 1;
  }

  // The score is read by one maximum and by exponentials of its distance from the reference; the values in the
  // reference's units are that maximum and what is chosen from it.
  bool fits() {
    bool good = true;
    int maxima = 0;
    units_.insert(kernel_.find(rule_->reference).id);
    walk(kernel_.body, [&](const Stmt& s) {
      if (const auto* row = std::get_if<RowReduce>(&s.node); row && row->src == score_) {
        good = good && row->op == Reduce::max;
        units_.insert(row->acc.id);
        ++maxima;
      }
      if (const auto* join = std::get_if<Join>(&s.node)) units_.insert(join->joined.id);
      if (const auto* sum = std::get_if<SumMma>(&s.node)) good = good && sum->p != score_;
      if (const auto* store = std::get_if<Store>(&s.node)) good = good && store->src != score_;
      good = good && !std::holds_alternative<Insert>(s.node);
    });
    for (std::size_t known = 0; known != units_.size();) {
      known = units_.size();
      walk(kernel_.body, [&](const Stmt& s) {
        const Map* map = std::get_if<Map>(&s.node);
        if (map && kernel_[map->dst].axis == Axis::row && chosen_in_units(map->expr)) units_.insert(map->dst.id);
      });
    }
    in_stream_maps([&](const Map& map) { good = good && (map.dst == score_ || units_.contains(map.dst.id) || is_distance(map.expr) || !touches(map.expr)); });
    return good && maxima == 1;
  }
  bool in_units(const Expr& e) const { return e->op == Op::variable && units_.contains(kernel_.find(e->name).id); }
  bool chosen_in_units(const Expr& e) const {
    if (e->op == Op::max) return in_units(e->args[0]) && in_units(e->args[1]);
    return e->op == Op::select && (in_units(e->args[2]) || chosen_in_units(e->args[2]));
  }
  bool touches(const Expr& e) const {
    if (reads(e, score_) || reads(e, product_)) return true;
    return std::any_of(units_.begin(), units_.end(), [&](int v) { return reads(e, Value{v}); });
  }
  // exp(score or reference − reference)
  bool is_distance(const Expr& e) const {
    if (e->op != Op::exp || e->args[0]->op != Op::sub) return false;
    const Expr &a = e->args[0]->args[0], &b = e->args[0]->args[1];
    return (is_variable(a, score_) || in_units(a)) && in_units(b);
  }

  void in_stream_maps(const std::function<void(const Map&)>& visit) const {
    for (const Stmt& s : kernel_.body)
      if (const auto* loop = std::get_if<Loop>(&s.node); loop && loop->kind == LoopKind::key_tiles)
        walk(loop->body, [&](const Stmt& inner) {
          if (const auto* map = std::get_if<Map>(&inner.node)) visit(*map);
        });
  }

  // What chooses a reference by its distance from another.
  Expr folded_choice(const Expr& e) const {
    return rewrite(e, [&](const Expr& node) -> std::optional<Expr> {
      if (node->op != Op::sub || !in_units(node->args[0]) || !in_units(node->args[1])) return std::nullopt;
      return node * scale_;
    });
  }
  Expr folded_distance(const Expr& e) const {
    const Expr &a = e->args[0]->args[0], &b = e->args[0]->args[1];
    const Expr from = is_variable(a, score_) ? variable(kernel_[product_].name, a->dims) : a;
    return exp((from - b) * scale_);
  }
  // Outside the stream the reference is in the user's units again.
  Expr restored(const Expr& e) const {
    return rewrite(e, [&](const Expr& node) -> std::optional<Expr> {
      if (!is_variable(node, reference_)) return std::nullopt;
      return node * scale_;
    });
  }

  void rewrite_all(Block& body, bool in_stream) {
    for (std::size_t i = 0; i < body.size(); ++i) {
      Stmt& s = body[i];
      if (auto* advance = std::get_if<Advance>(&s.node)) advance->scale = scale_, rewrite_all(advance->body, in_stream);
      if (auto* loop = std::get_if<Loop>(&s.node)) rewrite_all(loop->body, in_stream || loop->kind == LoopKind::key_tiles);
      if (auto* row = std::get_if<RowReduce>(&s.node); row && row->src == score_) row->src = product_;
      if (auto* mask = std::get_if<Mask>(&s.node); mask && mask->tile == score_) mask->tile = product_;
      if (auto* join = std::get_if<Join>(&s.node); join && !join->factor.empty() && is_distance(join->factor)) join->factor = folded_distance(join->factor);
      if (auto* map = std::get_if<Map>(&s.node)) map->expr = !in_stream ? restored(map->expr) : is_distance(map->expr) ? folded_distance(map->expr) : folded_choice(map->expr);
      if (auto* store = std::get_if<Store>(&s.node); store && store->src == reference_ && !in_stream) {
        ValueDecl out = kernel_[reference_];
        out.name += "_out";
        const Value natural = kernel_.add(out);
        store->src = natural;
        body.insert(body.begin() + static_cast<std::ptrdiff_t>(i), Stmt{Map{natural, variable(kernel_[reference_].name, {}) * scale_}});
        ++i;
      }
    }
    std::erase_if(body, [&](const Stmt& s) {
      const Map* map = std::get_if<Map>(&s.node);
      return map && map->dst == score_;
    });
  }

  Kernel& kernel_;
  const RescaleRule* rule_;
  Value score_, product_, reference_;
  Expr scale_;
  std::set<int> units_;
};

}  // namespace

Kernel fold_scale(Kernel kernel, const Context& context) {
  if (context.schedule.lanes == Lanes::fragments && context.schedule.fold_scale) Fold(kernel, context).run();
  return kernel;
}

}  // namespace attile::ir
