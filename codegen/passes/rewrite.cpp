#include "codegen/passes/rewrite.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include "dsl/expr_ops.h"

namespace attile::ir {

namespace {

using Replace = std::function<std::optional<Expr>(const Expr&)>;

// Trees share branches, so each branch is rewritten once.
Expr rewritten(const Expr& e, const Replace& replace, std::unordered_map<const Node*, Expr>& known);

Expr with_new_args(const Expr& e, const Replace& replace, std::unordered_map<const Node*, Expr>& known) {
  if (e->args.empty()) return e;
  Node node = *e;
  bool changed = false;
  for (Expr& arg : node.args) {
    const Expr next = rewritten(arg, replace, known);
    changed |= next.get() != arg.get();
    arg = next;
  }
  return changed ? make_expr(std::move(node)) : e;
}

Expr rewritten(const Expr& e, const Replace& replace, std::unordered_map<const Node*, Expr>& known) {
  if (const auto it = known.find(e.get()); it != known.end()) return it->second;
  const auto replacement = replace(e);
  return known[e.get()] = replacement ? *replacement : with_new_args(e, replace, known);
}

bool is_leaf(Op op) {
  switch (op) {
    case Op::scalar: case Op::index: case Op::length: case Op::variable: case Op::element: case Op::random:
    case Op::dot: case Op::reduce_sum: return true;
    default: return false;
  }
}

double evaluated(const Expr& e, const std::function<double(const Node&)>& leaf, std::unordered_map<const Node*, double>& known) {
  if (e->op == Op::constant) return e->value;
  if (const auto it = known.find(e.get()); it != known.end()) return it->second;
  if (is_leaf(e->op)) return known[e.get()] = leaf(*e);
  std::vector<double> args;
  for (const Expr& arg : e->args) args.push_back(evaluated(arg, leaf, known));
  if (e->op == Op::select) return known[e.get()] = args[0] != 0 ? args[1] : args[2];
  return known[e.get()] = args.size() == 1 ? unary_value(e->op, args[0]) : binary_value(e->op, args[0], args[1]);
}

}  // namespace

Expr rewrite(const Expr& e, const Replace& replace) {
  std::unordered_map<const Node*, Expr> known;
  return rewritten(e, replace, known);
}

double evaluate_scalar(const Expr& e, const std::function<double(const Node&)>& leaf) {
  std::unordered_map<const Node*, double> known;
  return evaluated(e, leaf, known);
}

bool vanishes_at_minus_infinity(const Expr& e, const std::string& score, std::span<const std::string> positive) {
  std::uint64_t state = 0x9E3779B97F4A7C15ull;
  const auto next_unit = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(state >> 11) / 9007199254740992.0;
  };
  for (int trial = 0; trial < 64; ++trial) {
    std::map<std::string, double> values;
    const double magnitude = std::pow(10.0, trial % 5 - 1);
    const double result = evaluate_scalar(e, [&](const Node& n) {
      if (n.op == Op::variable && n.name == score) return -std::numeric_limits<double>::infinity();
      const std::string key = n.name + "|" + n.dim.name + "|" + std::to_string(static_cast<int>(n.op));
      const auto [it, fresh] = values.try_emplace(key, 0.0);
      if (fresh) it->second = n.kind == Kind::boolean ? double(next_unit() < 0.5)
                            : n.kind == Kind::integer ? std::floor(next_unit() * 1000) : (next_unit() * 2 - 1) * magnitude;
      if (n.op == Op::scalar && std::find(positive.begin(), positive.end(), n.name) != positive.end()) it->second = std::fabs(it->second);
      return it->second;
    });
    if (result != 0) return false;
  }
  return true;
}

}  // namespace attile::ir
