// Walks over expressions: comparison, substitution, search. All visit a shared node once.
#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "dsl/expr_walk.h"

namespace attile {
inline namespace v1 {

namespace {

// By bits, so that NaN equals itself and 0 differs from -0.
bool same_value(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool same_node(const Node& a, const Node& b) {
  return a.op == b.op && a.kind == b.kind && same_value(a.value, b.value) && a.name == b.name && a.dim == b.dim &&
         a.dims == b.dims && a.axes == b.axes && a.args.size() == b.args.size();
}

using Pairs = std::set<std::pair<const Node*, const Node*>>;

bool same_tree(const Expr& a, const Expr& b, Pairs& known) {
  if (a.get() == b.get()) return true;
  if (a.empty() || b.empty() || !same_node(*a, *b)) return false;
  if (!known.insert({a.get(), b.get()}).second) return true;
  for (std::size_t i = 0; i < a->args.size(); ++i)
    if (!same_tree(a->args[i], b->args[i], known)) return false;
  return true;
}

using Memo = std::unordered_map<const Node*, Expr>;

Expr replaced(const Expr& e, const std::vector<std::pair<std::string, Expr>>& replacements, Memo& memo) {
  if (auto at = memo.find(e.get()); at != memo.end()) return at->second;
  Expr result = e;
  if (e->op == Op::variable) {
    for (const auto& [name, value] : replacements)
      if (e->name == name) result = value;
  } else if (!e->args.empty()) {
    Node copy = *e;
    bool changed = false;
    for (Expr& arg : copy.args) {
      Expr with = replaced(arg, replacements, memo);
      changed = changed || with.get() != arg.get();
      arg = std::move(with);
    }
    if (changed) result = make_expr(std::move(copy));
  }
  memo.emplace(e.get(), result);
  return result;
}

bool reads(const Expr& e, const std::string& name, std::unordered_set<const Node*>& seen) {
  if (!seen.insert(e.get()).second) return false;
  if ((e->op == Op::variable || e->op == Op::element) && e->name == name) return true;
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& arg) { return reads(arg, name, seen); });
}

void visit_nodes(const Expr& e, std::unordered_set<const Node*>& seen, const std::function<void(const Node&)>& visit) {
  if (e.empty() || !seen.insert(e.get()).second) return;
  for (const Expr& arg : e->args) visit_nodes(arg, seen, visit);
  visit(*e);
}

}  // namespace

void for_each_node(const std::vector<Expr>& roots, const std::function<void(const Node&)>& visit) {
  std::unordered_set<const Node*> seen;
  for (const Expr& e : roots) visit_nodes(e, seen, visit);
}

bool same(const Expr& a, const Expr& b) {
  Pairs known;
  return same_tree(a, b, known);
}

Expr substitute(const Expr& e, const std::vector<std::pair<std::string, Expr>>& replacements) {
  if (e.empty()) return e;
  Memo memo;
  return replaced(e, replacements, memo);
}

bool depends_on_variable(const Expr& e, const std::string& name) {
  std::unordered_set<const Node*> seen;
  return !e.empty() && reads(e, name, seen);
}

bool has_free_dim(const Expr& e, const Dim& dim) {
  return !e.empty() && std::find(e->dims.begin(), e->dims.end(), dim) != e->dims.end();
}

}  // namespace v1
}  // namespace attile
