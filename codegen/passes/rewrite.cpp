#include "codegen/passes/rewrite.h"

#include <cmath>
#include <limits>
#include <map>

namespace attile::ir {

Expr rewrite(const Expr& e, const std::function<std::optional<Expr>(const Expr&)>& replace) {
  if (auto replacement = replace(e)) return *replacement;
  if (e->args.empty()) return e;
  Node node = *e;
  bool changed = false;
  for (Expr& arg : node.args) {
    const Expr next = rewrite(arg, replace);
    changed |= next.get() != arg.get();
    arg = next;
  }
  return changed ? make_expr(std::move(node)) : e;
}

static double apply_op(const Node& n, const std::vector<double>& x) {
  switch (n.op) {
    case Op::negate: return -x[0];
    case Op::abs: return std::fabs(x[0]);
    case Op::exp: return std::exp(x[0]);
    case Op::log: return std::log(x[0]);
    case Op::tanh: return std::tanh(x[0]);
    case Op::sigmoid: return 1 / (1 + std::exp(-x[0]));
    case Op::floor: return std::floor(x[0]);
    case Op::logical_not: return x[0] == 0;
    case Op::to_real: return x[0];
    case Op::add: return x[0] + x[1];
    case Op::sub: return x[0] - x[1];
    case Op::mul: return x[0] * x[1];
    case Op::div: return x[0] / x[1];
    case Op::floor_div: return std::floor(x[0] / x[1]);
    case Op::floor_mod: return x[0] - x[1] * std::floor(x[0] / x[1]);
    case Op::min: return std::isnan(x[0]) || x[0] < x[1] ? x[0] : x[1];
    case Op::max: return std::isnan(x[0]) || x[0] > x[1] ? x[0] : x[1];
    case Op::less: return x[0] < x[1];
    case Op::less_equal: return x[0] <= x[1];
    case Op::equal: return x[0] == x[1];
    case Op::not_equal: return x[0] != x[1];
    case Op::logical_and: return x[0] != 0 && x[1] != 0;
    case Op::logical_or: return x[0] != 0 || x[1] != 0;
    case Op::select: return x[0] != 0 ? x[1] : x[2];
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

double evaluate_scalar(const Expr& e, const std::function<double(const Node&)>& leaf) {
  if (e->op == Op::constant) return e->value;
  switch (e->op) {
    case Op::scalar: case Op::index: case Op::length: case Op::variable: case Op::element: case Op::random:
    case Op::dot: case Op::reduce_sum: return leaf(*e);
    default: break;
  }
  std::vector<double> args;
  for (const Expr& arg : e->args) args.push_back(evaluate_scalar(arg, leaf));
  return apply_op(*e, args);
}

bool vanishes_at_minus_infinity(const Expr& e, const std::string& score) {
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
      return it->second;
    });
    if (result != 0) return false;
  }
  return true;
}

}  // namespace attile::ir
