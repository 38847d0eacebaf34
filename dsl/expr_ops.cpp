#include "dsl/expr_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {

namespace {

constexpr std::size_t op_count = static_cast<std::size_t>(Op::select) + 1;

// In the order of Op.
constexpr std::array<OpInfo, op_count> table{{
    {"constant", 0, 9, Typing::leaf},
    {"scalar", 0, 9, Typing::leaf},
    {"index", 0, 9, Typing::leaf},
    {"length", 0, 9, Typing::leaf},
    {"variable", 0, 9, Typing::leaf},
    {"element", -1, 9, Typing::leaf},
    {"random_word", 2, 9, Typing::integer},
    {"dot", 2, 9, Typing::divide},
    {"reduce_sum", 1, 9, Typing::real},
    {"-", 1, 8, Typing::keep},
    {"abs", 1, 9, Typing::keep},
    {"exp", 1, 9, Typing::real},
    {"log", 1, 9, Typing::real},
    {"tanh", 1, 9, Typing::real},
    {"sigmoid", 1, 9, Typing::real},
    {"floor", 1, 9, Typing::real},
    {"!", 1, 8, Typing::logic},
    {"to_real", 1, 9, Typing::keep},
    {"+", 2, 6, Typing::arithmetic},
    {"-", 2, 6, Typing::arithmetic},
    {"*", 2, 7, Typing::arithmetic},
    {"/", 2, 7, Typing::divide},
    {"floor_div", 2, 9, Typing::integer},
    {"floor_mod", 2, 9, Typing::integer},
    {"min", 2, 9, Typing::arithmetic},
    {"max", 2, 9, Typing::arithmetic},
    {"<", 2, 5, Typing::compare},
    {"<=", 2, 5, Typing::compare},
    {"==", 2, 4, Typing::equality},
    {"!=", 2, 4, Typing::equality},
    {"&&", 2, 3, Typing::logic},
    {"||", 2, 2, Typing::logic},
    {"select", 3, 9, Typing::choice},
}};

bool is_constant(const Expr& e) { return e->op == Op::constant; }
bool is_integer_constant(const Expr& e) { return is_constant(e) && e->kind == Kind::integer; }

Expr constant_of(Kind kind, double value) {
  Node node{};
  node.op = Op::constant;
  node.kind = kind;
  node.value = value;
  return Expr(std::make_shared<const Node>(std::move(node)));
}

Expr folded_unary(const Node& node) {
  const Expr& a = node.args[0];
  if (node.op == Op::to_real && a->kind == Kind::real) return a;
  if ((node.op == Op::negate || node.op == Op::logical_not) && a->op == node.op) return a->args[0];
  if (!is_constant(a)) return {};
  if (node.op == Op::negate || node.op == Op::to_real || node.op == Op::logical_not || node.op == Op::abs)
    return constant_of(node.kind, unary_value(node.op, a->value));
  return {};
}

// Only integers: their arithmetic is exact, so folding cannot change a bit of any back end's result.
Expr folded_integers(const Node& node) {
  const double b = node.args[1]->value;
  if ((node.op == Op::floor_div || node.op == Op::floor_mod) && b <= 0) return {};
  if (node.kind == Kind::real) return {};
  const double value = binary_value(node.op, node.args[0]->value, b);
  if (std::fabs(value) > largest_integer) return {};
  return constant_of(node.kind, value);
}

Expr folded_logic(const Node& node) {
  const double absorbing = node.op == Op::logical_or ? 1 : 0;
  for (int i = 0; i < 2; ++i) {
    if (!is_constant(node.args[i])) continue;
    return node.args[i]->value == absorbing ? node.args[i] : node.args[1 - i];
  }
  return {};
}

}  // namespace

const OpInfo& op_info(Op op) { return table.at(static_cast<std::size_t>(op)); }

const Dim* only_common_dim(const Expr& a, const Expr& b) {
  const Dim* found = nullptr;
  for (const Dim& d : a->dims) {
    if (is_batch_like(d) || !has_free_dim(b, d)) continue;
    if (found != nullptr) return nullptr;
    found = &d;
  }
  return found;
}

void check_name(std::string_view where, const std::string& name) {
  auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  auto inner = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  if (!name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), inner) && name.size() <= 64) return;
  throw Error(ErrorKind::argument, std::string(where), fmt::format("\"{}\" cannot be a name", name),
              "a name is a letter followed by at most 63 letters, digits, '_' or '.'");
}

Expr folded(const Node& node) {
  const OpInfo& info = op_info(node.op);
  if (node.op == Op::random || node.op == Op::dot || node.op == Op::reduce_sum || info.typing == Typing::leaf)
    return {};
  if (info.arity == 1) return folded_unary(node);
  if (node.op == Op::logical_and || node.op == Op::logical_or) return folded_logic(node);
  if (node.op == Op::select && is_constant(node.args[0])) return node.args[node.args[0]->value != 0 ? 1 : 2];
  if (info.arity == 2 && is_integer_constant(node.args[0]) && is_integer_constant(node.args[1]))
    return folded_integers(node);
  return {};
}

}  // namespace v1
}  // namespace attile
