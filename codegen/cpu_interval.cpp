#include "codegen/cpu_interval.h"

#include <fmt/format.h>


namespace attile::llvm_text {
namespace {

const Val yes{"true", "i1"}, no{"false", "i1"};

// i64 (ptr base, i64 stride, i64 n) over elements of `type`: the least value in the low half, the greatest in the high
// half. Where one has more than 32 bits, these are the least and the greatest of 32 bits.
std::string scan_function(Module& m, DType type) {
  const std::string element = type == DType::int32 ? "i32" : "i64", name = "scan_" + element;
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal i64 @{}(ptr noalias %base, i64 %stride, i64 %n) noinline", name));
  const auto number = [&](std::int64_t n) { return Val{fmt::format("{}", n), element}; };
  const Var least = f.variable(element), greatest = f.variable(element);
  f.set(least, number(INT32_MAX));
  f.set(greatest, number(INT32_MIN));
  f.loop(i64(0), {"%n", "i64"}, 1, [&](Val i) {
    const Val x = f.load(element, f.gep(element, {"%base", "ptr"}, f.mul(i, {"%stride", "i64"})), element == "i32" ? 4 : 8);
    f.set(least, f.min(f.get(least), x));
    f.set(greatest, f.max(f.get(greatest), x));
  });
  Val low = f.get(least), high = f.get(greatest);
  if (element == "i64") {
    const Val wide = f.binary("or", f.compare("icmp slt", low, i64(INT32_MIN)), f.compare("icmp sgt", high, i64(INT32_MAX)));
    low = f.cast("trunc", f.select(wide, i64(INT32_MIN), low), "i32");
    high = f.cast("trunc", f.select(wide, i64(INT32_MAX), high), "i32");
  }
  const Val both = f.binary("or", f.cast("zext", low, "i64"), f.binary("shl", f.cast("zext", high, "i64"), i64(32)));
  f.statement(fmt::format("ret i64 {}", both.name));
  f.finish_returned();
  return name;
}

}  // namespace

bool IntervalEmitter::is_uniform_here(const Expr& e) const {
  const Algorithm& a = frame_.context.algorithm;
  return !has_free_dim(e, a.parallel) && !has_free_dim(e, a.streamed) && !(frame_.group_in_rows() && has_free_dim(e, head));
}

Truth IntervalEmitter::truth(const Expr& predicate) {
  truths_.clear(), intervals_.clear();
  return truth_of(predicate);
}

Truth IntervalEmitter::truth_of(const Expr& e) {
  const auto it = truths_.find(e.get());
  return it != truths_.end() ? it->second : truths_[e.get()] = compute_truth(e);
}

Truth IntervalEmitter::compute_truth(const Expr& e) {
  if (is_uniform_here(e)) {
    const Val exact = expr_.emit(e).front();
    return {exact, exact};
  }
  switch (e->op) {
    case Op::logical_and: {
      const Truth a = truth_of(e->args[0]), b = truth_of(e->args[1]);
      return {f_.binary("and", a.possible, b.possible), f_.binary("and", a.certain, b.certain)};
    }
    case Op::logical_or: {
      const Truth a = truth_of(e->args[0]), b = truth_of(e->args[1]);
      return {f_.binary("or", a.possible, b.possible), f_.binary("or", a.certain, b.certain)};
    }
    case Op::logical_not: {
      const Truth a = truth_of(e->args[0]);
      return {f_.binary("xor", a.certain, yes), f_.binary("xor", a.possible, yes)};
    }
    case Op::less: case Op::less_equal: case Op::equal: case Op::not_equal: return compare(*e);
    default: return {yes, no};
  }
}

Truth IntervalEmitter::compare(const Node& n) {
  if (n.args[0]->kind != Kind::integer || n.args[1]->kind != Kind::integer) return {yes, no};
  const Interval a = interval(n.args[0]), b = interval(n.args[1]);
  if (n.op == Op::less) return {f_.compare("icmp slt", a.low, b.high), f_.compare("icmp slt", a.high, b.low)};
  if (n.op == Op::less_equal) return {f_.compare("icmp sle", a.low, b.high), f_.compare("icmp sle", a.high, b.low)};
  const Val overlap = f_.binary("and", f_.compare("icmp sle", a.low, b.high), f_.compare("icmp sle", b.low, a.high));
  const Val points = f_.binary("and", f_.compare("icmp eq", a.low, b.high), f_.compare("icmp eq", a.high, b.low));
  if (n.op == Op::equal) return {overlap, points};
  return {f_.binary("xor", points, yes), f_.binary("xor", overlap, yes)};
}

void IntervalEmitter::hoist(const Expr& predicate) {
  intervals_.clear();
  std::set<const Node*> seen;
  hoist(predicate, seen);
}

void IntervalEmitter::hoist(const Expr& e, std::set<const Node*>& seen) {
  if (!seen.insert(e.get()).second) return;
  if (e->kind == Kind::integer && !has_free_dim(e, frame_.context.algorithm.streamed)) {
    hoisted_[e.get()] = interval(e);
    return;
  }
  for (const Expr& arg : e->args) hoist(arg, seen);
}

Interval IntervalEmitter::interval(const Expr& e) {
  if (const auto it = hoisted_.find(e.get()); it != hoisted_.end()) return it->second;
  const auto it = intervals_.find(e.get());
  return it != intervals_.end() ? it->second : intervals_[e.get()] = compute_interval(e);
}

Interval IntervalEmitter::compute_interval(const Expr& e) {
  if (is_uniform_here(e)) {
    const Val exact = expr_.emit(e).front();
    return {exact, exact};
  }
  switch (e->op) {
    case Op::index: return index_interval(e->dim);
    case Op::element: return element_interval(*e);
    case Op::negate: {
      const Interval a = interval(e->args[0]);
      return {expr_.arithmetic(*e, Op::sub, i64(0), a.high), expr_.arithmetic(*e, Op::sub, i64(0), a.low)};
    }
    case Op::abs: {
      const Interval a = interval(e->args[0]);
      const auto minus = [&](const Val& x) { return expr_.arithmetic(*e, Op::sub, i64(0), x); };
      return {high_of(high_of(a.low, minus(a.high)), i64(0)), high_of(minus(a.low), a.high)};
    }
    case Op::floor_mod: return {i64(0), unknown(*e).high};
    case Op::add: case Op::sub: case Op::mul: case Op::min: case Op::max:
      return arithmetic(*e, interval(e->args[0]), interval(e->args[1]));
    case Op::select: {
      const Interval a = interval(e->args[1]), b = interval(e->args[2]);
      return {low_of(a.low, b.low), high_of(a.high, b.high)};
    }
    case Op::floor_div: {
      if (!is_uniform_here(e->args[1])) break;
      const Interval a = interval(e->args[0]);
      const Values divisor = expr_.emit(e->args[1]);
      return {expr_.divide(*e, {a.low}, divisor).front(), expr_.divide(*e, {a.high}, divisor).front()};
    }
    default: break;
  }
  return unknown(*e);
}

// As far as the magnitude goes; so that arithmetic on intervals cannot overflow where that on values cannot.
Interval IntervalEmitter::unknown(const Node& n) const {
  const double most = expr_.magnitude(n);
  if (most >= 0x1p63) return {i64(INT64_MIN), i64(INT64_MAX)};
  const auto whole = static_cast<std::int64_t>(most);
  return {i64(-whole), i64(whole)};
}

Interval IntervalEmitter::arithmetic(const Node& n, const Interval& a, const Interval& b) {
  switch (n.op) {
    case Op::add: return {expr_.arithmetic(n, n.op, a.low, b.low), expr_.arithmetic(n, n.op, a.high, b.high)};
    case Op::sub: return {expr_.arithmetic(n, n.op, a.low, b.high), expr_.arithmetic(n, n.op, a.high, b.low)};
    case Op::min: return {low_of(a.low, b.low), low_of(a.high, b.high)};
    case Op::max: return {high_of(a.low, b.low), high_of(a.high, b.high)};
    default: {
      const auto product = [&](const Val& x, const Val& y) { return expr_.arithmetic(n, Op::mul, x, y); };
      const Val ll = product(a.low, b.low), lh = product(a.low, b.high), hl = product(a.high, b.low), hh = product(a.high, b.high);
      return {low_of(low_of(ll, lh), low_of(hl, hh)), high_of(high_of(ll, lh), high_of(hl, hh))};
    }
  }
}

Interval IntervalEmitter::index_interval(const Dim& dim) {
  const Algorithm& a = frame_.context.algorithm;
  if (dim == a.streamed) return {region_.position, f_.sub(f_.add(region_.position, region_.positions), i64(1))};
  const Val last = f_.sub(f_.add(region_.row, region_.rows), i64(1));
  if (dim == a.parallel) return {frame_.row_index(region_.row), frame_.row_index(last)};
  const Val first_head = f_.mul(frame_.at.head, i64(frame_.context.problem.group));
  return {first_head, f_.add(first_head, i64(frame_.context.problem.group - 1))};
}

// A tensor of integers read at one varying index: the extremes over the range of that index.
Interval IntervalEmitter::element_interval(const Node& n) {
  const DType type = frame_.dtype(n.name);
  if (n.kind != Kind::integer || (type != DType::int32 && type != DType::int64)) return unknown(n);
  int varying = -1;
  for (std::size_t i = 0; i < n.args.size(); ++i) {
    if (is_uniform_here(n.args[i])) continue;
    if (varying >= 0) return unknown(n);
    varying = static_cast<int>(i);
  }
  if (varying < 0) return unknown(n);
  const Interval range = interval(n.args[static_cast<std::size_t>(varying)]);
  const Val last = f_.sub(frame_.visible_extent(n.name, varying), i64(1));
  const Val from = f_.max(range.low, i64(0)), to = f_.min(range.high, last);
  std::vector<Val> at;
  Val outside = f_.binary("or", f_.compare("icmp slt", range.low, i64(0)), f_.compare("icmp sgt", range.high, last));
  for (std::size_t i = 0; i < n.args.size(); ++i) {
    if (static_cast<int>(i) == varying) {
      at.push_back(f_.select(f_.compare("icmp sle", from, to), from, i64(0)));
      continue;
    }
    const Val index = expr_.emit(n.args[i]).front();
    if (n.args[i]->op != Op::index) {   // an index of the user's own may be out of range: then nothing is known
      const Val extent = frame_.visible_extent(n.name, static_cast<int>(i));
      const Val bad = f_.binary("or", f_.compare("icmp slt", index, i64(0)), f_.compare("icmp sge", index, extent));
      outside = f_.binary("or", outside, bad);
      at.push_back(f_.select(bad, i64(0), index));
    } else {
      at.push_back(index);
    }
  }
  const Val count = f_.max(f_.sub(f_.add(to, i64(1)), from), i64(0));
  const Val both = f_.call("i64", scan_function(frame_.module, type), {frame_.address(n.name, at), frame_.args.stride(n.name, varying), count});
  Val least = f_.cast("sext", f_.cast("trunc", both, "i32"), "i64"), greatest = f_.binary("ashr", both, i64(32));
  if (type == DType::int64) {
    const Val wide = f_.binary("and", f_.compare("icmp eq", least, i64(INT32_MIN)), f_.compare("icmp eq", greatest, i64(INT32_MAX)));
    least = f_.select(wide, i64(INT64_MIN), least), greatest = f_.select(wide, i64(INT64_MAX), greatest);
  }
  const Val beyond = i64(static_cast<std::int64_t>(n.value));
  return {f_.select(outside, low_of(least, beyond), least), f_.select(outside, high_of(greatest, beyond), greatest)};
}

}  // namespace attile::llvm_text
