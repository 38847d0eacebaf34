#include "codegen/cuda_expr.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "dsl/error.h"

namespace attile::cuda_text {
namespace {

constexpr std::int64_t most_times = 1 << 30;

class WithIndex {
 public:
  WithIndex(const Dim& dim, const Expr& replacement) : dim_(dim), replacement_(replacement) {}
  Expr of(const Expr& e) {
    if (e->op == Op::index && e->dim == dim_) return replacement_;
    if (!has_free_dim(e, dim_)) return e;
    Expr& made = made_[e.get()];  // parts are shared
    if (made) return made;
    Node node = *e;
    for (Expr& arg : node.args) arg = of(arg);
    return made = make_expr(std::move(node));
  }

 private:
  const Dim& dim_;
  const Expr& replacement_;
  std::map<const Node*, Expr> made_;
};

const char* symbol(Op op) {
  switch (op) {
    case Op::add: return "+";
    case Op::sub: return "-";
    case Op::mul: return "*";
    case Op::div: return "/";
    case Op::less: return "<";
    case Op::less_equal: return "<=";
    case Op::equal: return "==";
    case Op::not_equal: return "!=";
    case Op::logical_and: return "&";  // of bools; && would be a branch for each element
    case Op::logical_or: return "|";
    default: return nullptr;
  }
}

}  // namespace

const char* ending_function(Op op) {
  return op == Op::add ? "add_ending" : op == Op::sub ? "sub_ending" : op == Op::mul ? "mul_ending" : nullptr;
}

namespace {

using Coefficients = std::map<const Node*, std::optional<int>>;

std::optional<int> coefficient_of(const Expr& e, const Dim& dim, Coefficients& known) {
  if (!has_free_dim(e, dim)) return 0;
  if (e->op == Op::index) return 1;
  if (e->op != Op::negate && e->op != Op::add && e->op != Op::sub) return std::nullopt;
  if (const auto it = known.find(e.get()); it != known.end()) return it->second;
  const auto a = coefficient_of(e->args[0], dim, known);
  if (e->op == Op::negate) return known[e.get()] = a ? std::optional(-*a) : std::nullopt;
  const auto b = coefficient_of(e->args[1], dim, known);
  const std::int64_t sum = !a || !b ? most_times + 1 : e->op == Op::add ? std::int64_t{*a} + *b : std::int64_t{*a} - *b;
  return known[e.get()] = std::abs(sum) <= most_times ? std::optional(static_cast<int>(sum)) : std::nullopt;
}

}  // namespace

std::optional<int> coefficient(const Expr& e, const Dim& dim) {
  Coefficients known;
  return coefficient_of(e, dim, known);
}

std::string constant_text(double value, Kind kind) {
  if (kind == Kind::boolean) return value != 0 ? "true" : "false";
  if (kind == Kind::integer) {
    const auto whole = static_cast<std::int64_t>(value);
    const std::string digits = fmt::format("{}{}", whole, std::abs(whole) <= 1ll << 30 ? "" : "ll");
    return whole < 0 ? "(" + digits + ")" : digits;
  }
  const auto single = static_cast<float>(value);
  if (std::isnan(single)) return "__int_as_float(0x7FFFFFFF)";
  if (std::isinf(single)) return single > 0 ? "infinity()" : "-infinity()";
  std::string digits = fmt::format("{}", single);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  digits += "f";
  return std::signbit(single) ? "(" + digits + ")" : digits;
}

std::string ExprText::named(const std::string& text) {
  const std::string name = fmt::format("{}{}", prefix_, next_name_++);
  out_.line("const auto $name = $text;", {{"name", name}, {"text", text}});
  return name;
}

void ExprText::count(const Expr& e, std::map<const Node*, int>& uses) const {
  if (uses[e.get()]++ > 0) return;
  for (const Expr& arg : e->args) count(arg, uses);
}

std::string ExprText::text(const Expr& e) {
  uses_.clear();
  names_.clear();
  count(e, uses_);
  return emit(e);
}
std::string ExprText::real(const Expr& e) {
  uses_.clear();
  names_.clear();
  count(e, uses_);
  return emit_real(e);
}

std::string ExprText::emit(const Expr& e) {
  if (const auto it = names_.find(e.get()); it != names_.end()) return it->second;
  std::string value = compute(e);
  const bool simple = e->args.empty() || e->op == Op::to_real;
  if (!simple && uses_[e.get()] > 1) names_[e.get()] = value = named(value);
  return value;
}

std::string ExprText::emit_real(const Expr& e) {
  if (e->kind == Kind::real) return emit(e);
  if (e->op == Op::constant) return constant_text(e->value, Kind::real);
  if (const std::string counted = counted_real(e); !counted.empty()) return counted;
  if (e->kind == Kind::boolean) return fmt::format("({} ? 1.0f : 0.0f)", emit(e));
  return fmt::format("static_cast<float>({})", emit(e));
}

// An integer that counts along the stream: one conversion for all elements of a thread, and an exact sum.
std::string ExprText::counted_real(const Expr& e) {
  const Environment::Counted* counted = environment_.counted();
  if (!counted || e->kind != Kind::integer || !has_free_dim(e, counted->dim)) return {};
  if (e->op == Op::abs) {
    const std::string inside = counted_real(e->args[0]);
    return inside.empty() ? inside : fmt::format("fabsf({})", inside);
  }
  const auto times = coefficient(e, counted->dim);
  if (!times || std::abs(*times) != 1) return {};
  const Expr first = WithIndex(counted->dim, attile::variable("first_index." + counted->dim.name, {}, Kind::integer)).of(e);
  count(first, uses_);
  return fmt::format("(static_cast<float>({}) {} static_cast<float>({}))", emit(first), *times > 0 ? "+" : "-", counted->offset);
}

std::string ExprText::compute(const Expr& e) {
  const Node& n = *e;
  switch (n.op) {
    case Op::constant: return constant_text(n.value, n.kind);
    case Op::scalar: return environment_.scalar(n);
    case Op::index: return environment_.index(n.dim);
    case Op::length: return environment_.length(n.dim);
    case Op::variable:
      if (const auto* counted = environment_.counted(); counted && n.name == "first_index." + counted->dim.name) return counted->first;
      return environment_.variable(n);
    case Op::reduce_sum: return environment_.reduce_sum(n);
    case Op::element: {
      std::vector<std::string> at;
      for (const Expr& arg : n.args) at.push_back(emit(arg));
      return environment_.element(n, at);
    }
    case Op::random: return environment_.random(emit(n.args[0]), emit(n.args[1]));
    case Op::dot: internal_check(false, "a dot reached expression emission"); break;
    case Op::select: {
      const bool real = n.kind == Kind::real;
      const std::string a = real ? emit_real(n.args[1]) : emit(n.args[1]), b = real ? emit_real(n.args[2]) : emit(n.args[2]);
      return fmt::format("({} ? {} : {})", emit(n.args[0]), a, b);
    }
    default: break;
  }
  return n.args.size() == 1 ? unary(n) : binary(n);
}

std::string ExprText::unary(const Node& n) {
  const Expr& x = n.args[0];
  if (n.op == Op::logical_not) return fmt::format("!({})", emit(x));
  if (n.op == Op::to_real) return emit_real(x);
  if (n.kind == Kind::integer) {
    if (n.op != Op::negate && n.op != Op::abs) return emit(x);
    const std::string value = is_wide(n) ? fmt::format("static_cast<i64>({})", emit(x)) : emit(x);
    if (n.op == Op::abs) return fmt::format("{}({})", saturates(n) ? "abs_ending" : "abs_", value);
    return saturates(n) ? fmt::format("sub_ending(0, {})", value) : fmt::format("(-{})", value);
  }
  if (n.op == Op::exp) return exponential(x);
  const std::string arg = emit_real(x);
  switch (n.op) {
    case Op::negate: return fmt::format("(-{})", arg);
    case Op::abs: return fmt::format("fabsf({})", arg);
    case Op::floor: return fmt::format("floorf({})", arg);
    case Op::log: return fmt::format("log_({})", arg);
    case Op::tanh: return fmt::format("{}({})", environment_.coarse() ? "tanh_coarse" : "tanh_", arg);
    case Op::sigmoid: return fmt::format("sigmoid_({})", arg);
    default: internal_check(false, "unary op without a form"); return arg;
  }
}

// A factor that all elements share goes into the base of the exponential.
std::string ExprText::exponential(const Expr& argument) {
  if (argument->op == Op::mul && argument->args[1]->op == Op::scalar)
    return fmt::format("exp2f_({} * ({} * log2e))", emit_real(argument->args[0]), emit_real(argument->args[1]));
  return fmt::format("exp_({})", emit_real(argument));
}

// x·y ± z and z ± x·y in one operation. The compiler is told to fuse nothing (--fmad=false): what it would fuse depends
// on the code around, and a row must have the same bits in every body of a loop.
std::string ExprText::multiply_add(const Node& sum) {
  const auto is_product = [&](const Expr& e) {
    return e->op == Op::mul && e->kind == Kind::real && uses_[e.get()] <= 1;
  };
  const Expr &x = sum.args[0], &y = sum.args[1];
  const bool first = is_product(x);
  if (!first && !is_product(y)) return "";
  const Expr &product = first ? x : y, &other = first ? y : x;
  const char *of_product = sum.op == Op::sub && !first ? "-" : "", *of_other = sum.op == Op::sub && first ? "-" : "";
  return fmt::format("fmaf({}{}, {}, {}{})", of_product, emit_real(product->args[0]), emit_real(product->args[1]),
                     of_other, emit_real(other));
}

std::string ExprText::binary(const Node& n) {
  const Expr &x = n.args[0], &y = n.args[1];
  if (n.op == Op::logical_and || n.op == Op::logical_or) return fmt::format("({} {} {})", emit(x), symbol(n.op), emit(y));
  const bool integers = n.op != Op::div && x->kind != Kind::real && y->kind != Kind::real;
  if (!integers && (n.op == Op::add || n.op == Op::sub))
    if (std::string sum = multiply_add(n); !sum.empty()) return sum;
  std::string a = integers ? emit(x) : emit_real(x), b = integers ? emit(y) : emit_real(y);
  if (n.op == Op::div && environment_.varies(x) && !environment_.varies(y)) return fmt::format("({} * {})", a, named(fmt::format("inverse({})", b)));  // by name: an asm in one branch is a branch
  if (integers && saturates(n))
    if (const char* ending = ending_function(n.op)) return fmt::format("{}({}, {})", ending, a, b);
  if (const char* known = symbol(n.op)) {
    if (integers && is_wide(n)) a = fmt::format("static_cast<i64>({})", a);
    return fmt::format("({} {} {})", a, known, b);
  }
  if (integers) {
    const char* type = is_wide(n) || is_wide(*x) || is_wide(*y) ? "i64" : "i32";
    a = fmt::format("static_cast<{}>({})", type, a), b = fmt::format("static_cast<{}>({})", type, b);
  }
  switch (n.op) {
    case Op::min: return fmt::format("min_({}, {})", a, b);
    case Op::max: return fmt::format("max_({}, {})", a, b);
    case Op::floor_div: return fmt::format("floor_div({}, {})", a, b);
    case Op::floor_mod: return fmt::format("floor_mod({}, {})", a, b);
    default: internal_check(false, "binary op without a form"); return a;
  }
}

}  // namespace attile::cuda_text
