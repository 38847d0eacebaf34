#include "dsl/expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "dsl/error.h"
#include "dsl/expr_ops.h"

namespace attile {
inline namespace v1 {

namespace {

constexpr int height_limit = 1000;

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorKind::argument, where, what, remedy);
}

[[noreturn]] void refuse_constant(const std::string& value) {
  refuse("constant", value + " is too large for an exact integer", "integers go up to 2^53");
}
// As a double, of which 2^53 + 1 would be 2^53.
double exact(std::int64_t value) {
  constexpr auto largest = static_cast<std::int64_t>(largest_integer);
  if (value > largest || value < -largest) refuse_constant(fmt::format("{}", value));
  return static_cast<double>(value);
}

std::string_view kind_text(Kind kind) {
  return kind == Kind::real ? "a real" : kind == Kind::integer ? "an integer" : "a boolean";
}

std::string shape_of(Op op) {
  const OpInfo& info = op_info(op);
  if (info.arity == 1)
    return info.precedence == call_precedence ? fmt::format("{}(a)", info.text) : fmt::format("{}a", info.text);
  if (info.arity == 2) return is_infix(op) ? fmt::format("a {} b", info.text) : fmt::format("{}(a, b)", info.text);
  return op == Op::select ? "select(condition, if_true, if_false)" : std::string(info.text);
}

[[noreturn]] void refuse_operand(Op op, const Expr& operand, std::string_view wanted, const std::string& remedy = {}) {
  refuse(shape_of(op), fmt::format("{} is {}, but {} is needed", to_string(operand), kind_text(operand->kind), wanted),
         remedy);
}

void need_number(Op op, const Expr& e) {
  if (e->kind == Kind::boolean)
    refuse_operand(op, e, "a number", "select(condition, 1.0, 0.0) makes a number of a condition");
}
void need_boolean(Op op, const Expr& e) {
  if (e->kind != Kind::boolean) refuse_operand(op, e, "a boolean", "compare it with something");
}
void need_integer(Op op, const Expr& e) {
  if (e->kind != Kind::integer) refuse_operand(op, e, "an integer");
}

// Both operands of one kind: booleans stay, integers beside reals become real.
Kind unify(Op op, Expr& a, Expr& b) {
  if (a->kind == b->kind) return a->kind;
  if (a->kind == Kind::boolean || b->kind == Kind::boolean)
    refuse(shape_of(op),
           fmt::format("{} is {} but {} is {}", to_string(a), kind_text(a->kind), to_string(b), kind_text(b->kind)),
           "both must be numbers or both booleans");
  a = to_real(a);
  b = to_real(b);
  return Kind::real;
}

void type_numbers(Node& node) {
  for (const Expr& e : node.args) need_number(node.op, e);
  const Typing typing = op_info(node.op).typing;
  if (typing == Typing::real || typing == Typing::divide) {
    for (Expr& e : node.args) e = to_real(e);
    node.kind = Kind::real;
  } else if (typing == Typing::keep) {
    node.kind = node.op == Op::to_real ? Kind::real : node.args[0]->kind;
  } else {
    const Kind kind = unify(node.op, node.args[0], node.args[1]);
    node.kind = typing == Typing::compare ? Kind::boolean : kind;
  }
}

void type_node(Node& node) {
  switch (op_info(node.op).typing) {
    case Typing::leaf: return;
    case Typing::keep:
    case Typing::real:
    case Typing::arithmetic:
    case Typing::divide:
    case Typing::compare: return type_numbers(node);
    case Typing::integer:
      for (const Expr& e : node.args) need_integer(node.op, e);
      node.kind = Kind::integer;
      return;
    case Typing::equality:
      unify(node.op, node.args[0], node.args[1]);
      node.kind = Kind::boolean;
      return;
    case Typing::logic:
      for (const Expr& e : node.args) need_boolean(node.op, e);
      node.kind = Kind::boolean;
      return;
    case Typing::choice:
      need_boolean(node.op, node.args[0]);
      node.kind = unify(node.op, node.args[1], node.args[2]);
      return;
  }
}

void check_element(const Node& node) {
  const std::string where = fmt::format("{}(…)", node.name);
  if (node.args.size() != node.axes.size())
    refuse(where, fmt::format("{} indices are given for {} dims", node.args.size(), node.axes.size()),
           "one integer per dim of the tensor");
  for (std::size_t i = 0; i < node.args.size(); ++i)
    if (node.args[i]->kind != Kind::integer)
      refuse(where,
             fmt::format("the index {} along {} is {}", to_string(node.args[i]), node.axes[i].name,
                         kind_text(node.args[i]->kind)),
             "indices are integers");
  if (node.kind != Kind::real && (node.value != std::floor(node.value) || std::fabs(node.value) > largest_integer))
    refuse(where, fmt::format("{} cannot stand outside an integer tensor", node.value), "integers go up to 2^53");
}

void check_leaf(const Node& node) {
  switch (node.op) {
    case Op::scalar: return check_name("scalar", node.name);
    case Op::variable: return check_name("variable", node.name);
    case Op::element: return check_element(node);
    case Op::index: return check_name("index", node.dim.name);
    case Op::length:
      check_name("length", node.dim.name);
      if (is_batch_like(node.dim))
        refuse("length", fmt::format("{} has no length of its own", node.dim.name), "ask for query or key");
      return;
    case Op::constant:
      if (node.kind == Kind::integer && std::fabs(node.value) > largest_integer)
        refuse_constant(fmt::format("{}", node.value));
      return;
    default: return;
  }
}

void check_reduction(const Node& node) {
  const std::string where = fmt::format("{}(…, {})", op_info(node.op).text, node.dim.name);
  if (is_batch_like(node.dim))
    refuse(where, fmt::format("{} only chooses a problem; nothing is summed over it", node.dim.name));
  for (const Expr& e : node.args)
    if (has_free_dim(e, node.dim)) return;
  refuse(where, fmt::format("no operand varies along {}", node.dim.name), "sum over a dim that an operand has");
}

void add_dim(Dims& dims, const Dim& d) {
  auto at = std::lower_bound(dims.begin(), dims.end(), d, [](const Dim& x, const Dim& y) { return x.name < y.name; });
  if (at == dims.end() || !(*at == d)) dims.insert(at, d);
}

void fill_dims(Node& node) {
  Dims dims;
  for (const Expr& e : node.args) {
    for (const Dim& d : e->dims) add_dim(dims, d);
    node.height = std::max(node.height, e->height + 1);
  }
  if (node.op == Op::variable)
    for (const Dim& d : node.dims) add_dim(dims, d);
  if (node.op == Op::index) add_dim(dims, node.dim);
  if (node.op == Op::length) add_dim(dims, batch);
  if (node.op == Op::random)
    for (const Dim& d : {batch, head, query, key}) add_dim(dims, d);
  if (node.op == Op::dot || node.op == Op::reduce_sum) std::erase(dims, node.dim);
  // The kv head follows from the head: beside it, it is not a dim of its own.
  if (std::find(dims.begin(), dims.end(), head) != dims.end()) std::erase(dims, kv_head);
  node.dims = std::move(dims);
}

Expr make(Op op, std::vector<Expr> args) {
  Node node{};
  node.op = op;
  node.args = std::move(args);
  return make_expr(std::move(node));
}

Expr make_constant(Kind kind, double value) {
  Node node{};
  node.op = Op::constant;
  node.kind = kind;
  node.value = value;
  return make_expr(std::move(node));
}

Expr make_dim(Op op, const Dim& dim) {
  Node node{};
  node.op = op;
  node.kind = Kind::integer;
  node.dim = dim;
  return make_expr(std::move(node));
}

Expr make_reduction(Op op, std::vector<Expr> args, const Dim& over) {
  Node node{};
  node.op = op;
  node.args = std::move(args);
  node.dim = over;
  return make_expr(std::move(node));
}

}  // namespace

Expr make_expr(Node node) {
  const OpInfo& info = op_info(node.op);
  if (info.arity >= 0 && static_cast<int>(node.args.size()) != info.arity)
    refuse(std::string(info.text), fmt::format("{} operands are given, {} are needed", node.args.size(), info.arity));
  for (const Expr& e : node.args)
    if (e.empty())
      refuse(shape_of(node.op), "an operand is an empty Expr", "give every Expr a value before it is used");
  type_node(node);
  check_leaf(node);
  if (node.op == Op::dot || node.op == Op::reduce_sum) check_reduction(node);
  node.height = 0;
  fill_dims(node);
  if (node.height > height_limit)
    refuse(shape_of(node.op), fmt::format("the expression is nested more than {} levels deep", height_limit));
  if (Expr simpler = folded(node)) return simpler;
  return Expr(std::make_shared<const Node>(std::move(node)));
}

bool holds(DType type, Kind kind) {
  switch (kind) {
    case Kind::real: return is_float(type);
    case Kind::integer: return type == DType::int32 || type == DType::int64;
    case Kind::boolean: return type == DType::boolean;
  }
  return false;
}
std::string_view dtypes_of(Kind kind) {
  return kind == Kind::real ? "float32, bfloat16 or float16" : kind == Kind::integer ? "int32 or int64" : "boolean";
}

Expr::Expr(double value) : Expr(make_constant(Kind::real, value)) {}
Expr::Expr(int value) : Expr(make_constant(Kind::integer, value)) {}
Expr::Expr(std::int64_t value) : Expr(make_constant(Kind::integer, exact(value))) {}
Expr::Expr(const Dim& dim) : Expr(make_dim(Op::index, dim)) {}

Expr scalar(std::string name, Kind kind) {
  if (kind == Kind::boolean)
    refuse("scalar", fmt::format("\"{}\" is declared boolean", name), "use an integer and compare it with 0");
  Node node{};
  node.op = Op::scalar;
  node.kind = kind;
  node.name = std::move(name);
  return make_expr(std::move(node));
}

Expr index(const Dim& dim) { return make_dim(Op::index, dim); }
Expr length(const Dim& dim) { return make_dim(Op::length, dim); }

Expr variable(std::string name, Dims dims, Kind kind) {
  Node node{};
  node.op = Op::variable;
  node.kind = kind;
  node.name = std::move(name);
  node.dims = std::move(dims);
  return make_expr(std::move(node));
}

Expr constant(double value) { return make_constant(Kind::real, value); }
Expr infinity() { return constant(std::numeric_limits<double>::infinity()); }

Expr operator-(const Expr& a) { return make(Op::negate, {a}); }
Expr operator!(const Expr& a) { return make(Op::logical_not, {a}); }
Expr operator+(const Expr& a, const Expr& b) { return make(Op::add, {a, b}); }
Expr operator-(const Expr& a, const Expr& b) { return make(Op::sub, {a, b}); }
Expr operator*(const Expr& a, const Expr& b) { return make(Op::mul, {a, b}); }
Expr operator/(const Expr& a, const Expr& b) { return make(Op::div, {a, b}); }
Expr floor_div(const Expr& a, const Expr& b) { return make(Op::floor_div, {a, b}); }
Expr floor_mod(const Expr& a, const Expr& b) { return make(Op::floor_mod, {a, b}); }
Expr operator<(const Expr& a, const Expr& b) { return make(Op::less, {a, b}); }
Expr operator<=(const Expr& a, const Expr& b) { return make(Op::less_equal, {a, b}); }
Expr operator>(const Expr& a, const Expr& b) { return make(Op::less, {b, a}); }
Expr operator>=(const Expr& a, const Expr& b) { return make(Op::less_equal, {b, a}); }
Expr operator==(const Expr& a, const Expr& b) { return make(Op::equal, {a, b}); }
Expr operator!=(const Expr& a, const Expr& b) { return make(Op::not_equal, {a, b}); }
Expr operator&&(const Expr& a, const Expr& b) { return make(Op::logical_and, {a, b}); }
Expr operator||(const Expr& a, const Expr& b) { return make(Op::logical_or, {a, b}); }
Expr min(const Expr& a, const Expr& b) { return make(Op::min, {a, b}); }
Expr max(const Expr& a, const Expr& b) { return make(Op::max, {a, b}); }
Expr abs(const Expr& a) { return make(Op::abs, {a}); }
Expr exp(const Expr& a) { return make(Op::exp, {a}); }
Expr log(const Expr& a) { return make(Op::log, {a}); }
Expr tanh(const Expr& a) { return make(Op::tanh, {a}); }
Expr sigmoid(const Expr& a) { return make(Op::sigmoid, {a}); }
Expr floor(const Expr& a) { return make(Op::floor, {a}); }
Expr to_real(const Expr& a) { return make(Op::to_real, {a}); }
Expr select(const Expr& condition, const Expr& if_true, const Expr& if_false) {
  return make(Op::select, {condition, if_true, if_false});
}

Expr normalise(const Expr& o, const Expr& l) { return select(l == 0.0, 0.0, o / l); }

Expr dot(const Expr& a, const Expr& b) {
  if (a.empty() || b.empty()) refuse("dot(a, b)", "an operand is an empty Expr");
  const Dim* over = only_common_dim(a, b);
  if (over == nullptr)
    refuse("dot(a, b)",
           fmt::format("{} and {} do not have exactly one dim in common beside batch and heads", to_string(a),
                       to_string(b)),
           "name the dim to sum over: dot(a, b, dim)");
  return make_reduction(Op::dot, {a, b}, *over);
}
Expr dot(const Expr& a, const Expr& b, const Dim& over) { return make_reduction(Op::dot, {a, b}, over); }
Expr reduce_sum(const Expr& a, const Dim& over) { return make_reduction(Op::reduce_sum, {a}, over); }
Expr random_word(const Expr& seed, const Expr& offset) { return make(Op::random, {seed, offset}); }

}  // namespace v1
}  // namespace attile
