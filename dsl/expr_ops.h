// What each node kind of an expression looks like and computes on plain numbers: the one table behind the
// checks, the printer, the law check, `evaluate` and the lowering. No part of the interface.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "dsl/expr.h"

namespace attile {
inline namespace v1 {

// Which operands an op takes and what it gives.
enum class Typing : std::uint8_t {
  leaf,        // no rule: checked one by one
  keep,        // number -> same kind
  real,        // number -> real
  arithmetic,  // numbers of one kind (integers next to reals become real) -> that kind
  divide,      // numbers -> real
  integer,     // integers -> integer
  compare,     // numbers -> boolean
  equality,    // numbers or booleans -> boolean
  logic,       // booleans -> boolean
  choice,      // boolean, then two of one kind -> that kind
};

struct OpInfo {
  std::string_view text;  // infix symbol or function name
  int arity;
  int precedence;  // of the printed form; 9 = call or leaf
  Typing typing;
};

const OpInfo& op_info(Op op);

constexpr int call_precedence = 9;
constexpr int unary_precedence = 8;

inline bool is_infix(Op op) {
  const int p = op_info(op).precedence;
  return p < unary_precedence;
}

// Integer division toward minus infinity; a divisor that is not positive has no meaning and gives 0, so that
// the branch of a select that is not taken cannot trap.
// 2^53: exact as a double, as all smaller integers are.
inline constexpr double largest_integer = 9007199254740992.0;

inline double floor_div_value(double a, double b) { return b > 0 ? std::floor(a / b) : 0; }

inline double max_value(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return a < b ? b : a;
}
inline double min_value(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return b < a ? b : a;
}

inline double unary_value(Op op, double a) {
  switch (op) {
    case Op::negate: return -a;
    case Op::abs: return std::fabs(a);
    case Op::exp: return std::exp(a);
    case Op::log: return std::log(a);
    case Op::tanh: return std::tanh(a);
    // Two forms, so that neither end loses digits.
    case Op::sigmoid: return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a));
    case Op::floor: return std::floor(a);
    case Op::logical_not: return a == 0;
    default: return a;
  }
}

inline double binary_value(Op op, double a, double b) {
  switch (op) {
    case Op::add: return a + b;
    case Op::sub: return a - b;
    case Op::mul: return a * b;
    case Op::div: return a / b;
    case Op::floor_div: return floor_div_value(a, b);
    case Op::floor_mod: return b > 0 ? a - b * floor_div_value(a, b) : 0;
    case Op::min: return min_value(a, b);
    case Op::max: return max_value(a, b);
    case Op::less: return a < b;
    case Op::less_equal: return a <= b;
    case Op::equal: return a == b;
    case Op::not_equal: return a != b;
    case Op::logical_and: return a != 0 && b != 0;
    case Op::logical_or: return a != 0 || b != 0;
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

// Is this element read at its tensor's own dims?
inline bool is_direct_element(const Node& node) {
  for (std::size_t i = 0; i < node.args.size(); ++i)
    if (node.args[i]->op != Op::index || !(node.args[i]->dim == node.axes[i])) return false;
  return true;
}

// The dim that dot(a, b) without a named dim would contract; nullptr if there is none or more than one.
const Dim* only_common_dim(const Expr& a, const Expr& b);

// Throws Error(argument) unless `name` is a letter followed by letters, digits, '_' and '.'.
void check_name(std::string_view where, const std::string& name);

// The node in a simpler form with exactly the same value, or an empty Expr.
Expr folded(const Node& node);

}  // namespace v1
}  // namespace attile
