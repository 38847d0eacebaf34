#include "codegen/integer_width.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace attile {

namespace {

// `narrow` holds what was looked at, since trees share branches.
bool is_wide(const Node& n, const DTypeOf& dtype_of, std::set<const Node*>& narrow) {
  if (n.kind != Kind::integer || narrow.contains(&n)) return false;
  const auto is_unit = [](const Expr& e) { return e->op == Op::constant && std::fabs(e->value) <= 1; };
  switch (n.op) {
    case Op::constant: return !is_small(static_cast<std::int64_t>(n.value));
    case Op::element: return dtype_of(n.name) == DType::int64 || !is_small(static_cast<std::int64_t>(n.value));
    case Op::scalar:
    case Op::random: return true;
    case Op::mul:
      if (!is_unit(n.args[0]) && !is_unit(n.args[1])) return true;
      break;
    default: break;
  }
  for (const Expr& arg : n.args)
    if (is_wide(*arg, dtype_of, narrow)) return true;
  narrow.insert(&n);
  return false;
}

}  // namespace

bool is_wide(const Node& n, const DTypeOf& dtype_of) {
  std::set<const Node*> narrow;
  return is_wide(n, dtype_of, narrow);
}

bool is_index_arithmetic(const Node& n) {
  switch (n.op) {
    case Op::constant: return is_small(static_cast<std::int64_t>(n.value));
    case Op::index:
    case Op::length: return true;
    case Op::negate:
    case Op::abs:
    case Op::add:
    case Op::sub:
    case Op::min:
    case Op::max:
    case Op::floor_div:
    case Op::floor_mod:
      return std::all_of(n.args.begin(), n.args.end(), [](const Expr& arg) { return is_index_arithmetic(*arg); });
    default: return false;
  }
}

}  // namespace attile
