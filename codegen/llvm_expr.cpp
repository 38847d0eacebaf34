#include "codegen/llvm_expr.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/error.h"

namespace attile::llvm_text {

Values ExprEmitter::each(const Values& x, const std::function<Val(const Val&)>& op) {
  Values out;
  for (const Val& v : x) out.push_back(op(v));
  return out;
}
Values ExprEmitter::each(const Values& a, const Values& b, const std::function<Val(const Val&, const Val&)>& op) {
  Values out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(op(a[i], b[i]));
  return out;
}

// Widens a scalar to the registers of `shape`; integers become i32 there unless `shape` holds i64, which is_wide() has
// seen to.
static Values spread(Function& f, const Values& x, const Values& shape) {
  Val scalar = x.front();
  if (scalar.type == "i64" && element_of(shape.front().type) != "i64") scalar = f.cast("trunc", scalar, "i32");
  return Values(shape.size(), f.splat(scalar, lanes_of(shape.front().type)));
}

void ExprEmitter::match(Values& a, Values& b) {
  if (is_uniform(a) && !is_uniform(b)) a = spread(f_, a, b);
  if (is_uniform(b) && !is_uniform(a)) b = spread(f_, b, a);
  const auto widen = [&](Values& narrow, const Values& wide) {
    if (element_of(wide.front().type) == "i64") narrow = widened(narrow);
  };
  widen(a, b);
  widen(b, a);
}

Values ExprEmitter::widened(const Values& x) {
  return each(x, [&](const Val& v) {
    return element_of(v.type) == "i32" ? f_.cast("sext", v, vector_of(lanes_of(v.type), "i64")) : v;
  });
}

Val ExprEmitter::arithmetic(const Node& n, Op op, const Val& a, const Val& b) {
  const bool ends = saturates(n, dtypes());
  if (!ends) return op == Op::add ? f_.add(a, b) : op == Op::sub ? f_.sub(a, b) : f_.mul(a, b);
  const std::string type = mangled(a.type);
  if (op == Op::mul) return f_.call(a.type, "llvm.smul.fix.sat." + type, {a, b, i32(0)});
  return f_.call(a.type, (op == Op::add ? "llvm.sadd.sat." : "llvm.ssub.sat.") + type, {a, b});
}

Values ExprEmitter::constant(double value, const Values& like) {
  const Val& shape = like.front();
  const std::string element = element_of(shape.type);
  Val scalar = f32(static_cast<float>(value));
  if (element != "float") scalar = {fmt::format("{}", static_cast<std::int64_t>(value)), element};
  return Values(like.size(), splat_constant(scalar, lanes_of(shape.type)));
}

Values ExprEmitter::to_real(const Values& x) {
  const std::string element = element_of(x.front().type);
  if (element == "float") return x;
  return each(x, [&](const Val& v) { return f_.cast(element == "i1" ? "uitofp" : "sitofp", v, vector_of(lanes_of(v.type), "float")); });
}

Values ExprEmitter::select(const Values& condition, Values a, Values b, bool wide) {
  if (wide) a = widened(a), b = widened(b);
  match(a, b);
  Values c = condition;
  if (is_uniform(c) && !is_uniform(a)) c = Values(a.size(), c.front());   // a scalar i1 selects whole registers
  if (!is_uniform(c) && is_uniform(a)) {
    const Values shape = each(c, [&](const Val& v) { return Val{"", vector_of(lanes_of(v.type), a.front().type == "i64" && !wide ? "i32" : a.front().type)}; });
    a = spread(f_, a, shape);
    b = spread(f_, b, shape);
  }
  Values out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(f_.select(c[i], a[i], b[i]));
  return out;
}

bool ExprEmitter::reads_state(const Expr& e) {
  if (e->args.empty()) return e->op == Op::variable;
  if (const auto it = reads_state_.find(e.get()); it != reads_state_.end()) return it->second;
  const bool reads = std::any_of(e->args.begin(), e->args.end(), [&](const Expr& arg) { return reads_state(arg); });
  kept_.push_back(e);
  return reads_state_[e.get()] = reads;
}

const Values* ExprEmitter::known(const Expr& e) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto it = scope->values.find(e.get()); it != scope->values.end()) return &it->second;
    if (const auto it = scope->passing.find(e.get()); it != scope->passing.end()) return &it->second;
  }
  return nullptr;
}

Values ExprEmitter::emit(const Expr& e) {
  if (const Values* value = known(e)) return *value;
  const std::size_t scope = scopes_.size() - 1;
  ++scopes_[scope].depth;
  Values value = compute(*e);
  --scopes_[scope].depth;
  if (e->op != Op::variable && e->op != Op::constant) {
    const bool stays = scopes_[scope].frozen || !reads_state(e);
    (stays ? scopes_[scope].values : scopes_[scope].passing)[e.get()] = value;
    kept_.push_back(e);
  }
  if (scopes_[scope].depth == 0) scopes_[scope].passing.clear();
  return value;
}

void ExprEmitter::hoist(const Expr& e, const Dim& dim) {
  std::set<const Node*> seen;
  hoist(e, dim, seen);
}

void ExprEmitter::hoist(const Expr& e, const Dim& dim, std::set<const Node*>& seen) {
  if (e->op == Op::constant || e->op == Op::reduce_sum || !seen.insert(e.get()).second) return;
  if (!has_free_dim(e, dim)) {
    scopes_.back().values[e.get()] = emit(e);
    kept_.push_back(e);
    return;
  }
  for (const Expr& arg : e->args) hoist(arg, dim, seen);
}

Values ExprEmitter::compute(const Node& n) {
  switch (n.op) {
    case Op::constant:
      if (n.kind == Kind::real) return {f32(static_cast<float>(n.value))};
      return {n.kind == Kind::boolean ? Val{n.value != 0 ? "true" : "false", "i1"} : i64(static_cast<std::int64_t>(n.value))};
    case Op::scalar: return environment_.scalar(n);
    case Op::index: return environment_.index(n.dim);
    case Op::length: return environment_.length(n.dim);
    case Op::variable: return environment_.variable(n);
    case Op::reduce_sum: return environment_.reduce_sum(n);
    case Op::element: {
      std::vector<Values> at;
      for (const Expr& arg : n.args) at.push_back(emit(arg));
      return environment_.element(n, at);
    }
    case Op::random: return environment_.random(emit(n.args[0]), emit(n.args[1]));
    case Op::dot: internal_check(false, "a dot reached expression emission"); break;
    case Op::select: {
      Values a = emit(n.args[1]), b = emit(n.args[2]);
      if (n.kind == Kind::real) a = to_real(a), b = to_real(b);
      return select(emit(n.args[0]), std::move(a), std::move(b), is_wide(n));
    }
    default: break;
  }
  if (n.args.size() == 1) return unary(n, emit(n.args[0]));
  return binary(n, emit(n.args[0]), emit(n.args[1]));
}

Values ExprEmitter::unary(const Node& n, const Values& x) {
  const auto ones = [&](const Val& v) { return splat_constant(Val{"true", "i1"}, lanes_of(v.type)); };
  if (n.op == Op::logical_not) return each(x, [&](const Val& v) { return f_.binary("xor", v, ones(v)); });
  if (n.op == Op::to_real) return to_real(x);
  if (n.kind == Kind::integer) {
    if (n.op != Op::negate && n.op != Op::abs) return x;
    return each(is_wide(n) ? widened(x) : x, [&](const Val& v) {
      const Val zero = constant(0, {v}).front(), minus = arithmetic(n, Op::sub, zero, v);
      return n.op == Op::abs ? f_.select(f_.compare("icmp slt", v, zero), minus, v) : minus;
    });
  }
  return each(to_real(x), [&](const Val& v) -> Val {
    switch (n.op) {
      case Op::negate: return f_.emit(v.type, fmt::format("fneg {} {}", v.type, v.name));
      case Op::abs: return f_.call(v.type, "llvm.fabs." + mangled(v.type), {v});
      case Op::floor: return f_.call(v.type, "llvm.floor." + mangled(v.type), {v});
      case Op::exp: return emit_exp(f_, v);
      case Op::log: return emit_log(f_, v);
      case Op::tanh: return emit_tanh(f_, v);
      case Op::sigmoid: return emit_sigmoid(f_, v);
      default: internal_check(false, "unary op without a form"); return v;
    }
  });
}

// Floor division by a positive number: truncation, one less where it rounded up.
static Val floor_divide_by_positive(Function& f, const Val& a, const Val& b, bool want_remainder) {
  const Val remainder = f.binary("srem", a, b);
  const Val zero = splat_constant(Val{"0", element_of(a.type)}, lanes_of(a.type));
  const Val one = splat_constant(Val{"1", element_of(a.type)}, lanes_of(a.type));
  const Val negative = f.compare("icmp slt", remainder, zero);
  if (want_remainder) return f.select(negative, f.binary("add", remainder, b), remainder);
  const Val quotient = f.binary("sdiv", a, b);
  return f.select(negative, f.binary("sub", quotient, one), quotient);
}

// 0 where the divisor is not positive.
Values ExprEmitter::divide(const Node& n, const Values& a, const Values& b) {
  const bool remainder = n.op == Op::floor_mod, known = n.args[1]->op == Op::constant && n.args[1]->value > 0;
  return each(a, b, [&](const Val& x, const Val& y) {
    if (known) return floor_divide_by_positive(f_, x, y, remainder);
    const Val zero = constant(0, {y}).front(), positive = f_.compare("icmp sgt", y, zero);
    const Val divisor = f_.select(positive, y, constant(1, {y}).front());
    return f_.select(positive, floor_divide_by_positive(f_, x, divisor, remainder), zero);
  });
}

// Both of one width that loses nothing.
void ExprEmitter::match_integers(const Node& n, Values& a, Values& b) {
  const bool compares = n.kind == Kind::boolean;
  // A number beyond 32 bits compares with indices as the last number of 32 bits does.
  const auto may_end = [&](const Values& scalar, const Values& lanes, const Node& of_lanes) {
    return compares && is_uniform(scalar) && !is_uniform(lanes) && is_index_like(of_lanes, dtypes());
  };
  const auto saturated = [&](const Values& x) {
    return Values{f_.max(f_.min(x.front(), i64(INT32_MAX)), i64(INT32_MIN))};
  };
  const Node &x = *n.args[0], &y = *n.args[1];
  if (is_wide(x) && may_end(a, b, y))
    a = saturated(a);
  else if (is_wide(y) && may_end(b, a, x))
    b = saturated(b);
  else if (is_wide(n) || is_wide(x) || is_wide(y))
    a = widened(a), b = widened(b);
  match(a, b);
}

Values ExprEmitter::binary(const Node& n, Values a, Values b) {
  if (n.op == Op::logical_and || n.op == Op::logical_or) {
    match(a, b);
    return each(a, b, [&](const Val& x, const Val& y) { return f_.binary(n.op == Op::logical_and ? "and" : "or", x, y); });
  }
  Op op = n.op;
  if (op == Op::div && is_uniform(b) && !is_uniform(a)) {   // one division for all lanes; a rounding apart from each
    op = Op::mul;
    b = {f_.binary("fdiv", f32(1), to_real(b).front())};
  }
  const bool integers = n.op != Op::div && n.args[0]->kind != Kind::real && n.args[1]->kind != Kind::real;
  if (integers) {
    match_integers(n, a, b);
  } else {
    a = to_real(a), b = to_real(b);
    match(a, b);
  }
  if (op == Op::floor_div || op == Op::floor_mod) return divide(n, a, b);
  return each(a, b, [&](const Val& x, const Val& y) -> Val {
    switch (op) {
      case Op::add: return integers ? arithmetic(n, op, x, y) : f_.binary("fadd", x, y);
      case Op::sub: return integers ? arithmetic(n, op, x, y) : f_.binary("fsub", x, y);
      case Op::mul: return integers ? arithmetic(n, op, x, y) : f_.binary("fmul", x, y);
      case Op::div: return f_.binary("fdiv", x, y);
      case Op::less: return f_.compare(integers ? "icmp slt" : "fcmp olt", x, y);
      case Op::less_equal: return f_.compare(integers ? "icmp sle" : "fcmp ole", x, y);
      case Op::equal: return f_.compare(integers ? "icmp eq" : "fcmp oeq", x, y);
      case Op::not_equal: return f_.compare(integers ? "icmp ne" : "fcmp une", x, y);
      case Op::min:
      case Op::max: {
        const bool is_min = op == Op::min;
        if (integers) return f_.select(f_.compare(is_min ? "icmp slt" : "icmp sgt", x, y), x, y);
        const Val chosen = f_.select(f_.compare(is_min ? "fcmp olt" : "fcmp ogt", x, y), x, y);
        return f_.select(f_.compare("fcmp uno", x, x), x, chosen);
      }
      default: internal_check(false, "binary op without a form"); return x;
    }
  });
}

}  // namespace attile::llvm_text
