#include "codegen/cuda_interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace attile::cuda_text {
namespace {

// A text longer than this has a name: what is built from it does not double with every use.
constexpr std::size_t longest_text = 400;

// Ends are i32 where the values are (codegen/integer_width.h), of whatever type else: arithmetic that may need 64 bits
// begins with this.
std::string wide(const std::string& text) { return fmt::format("static_cast<i64>({})", text); }

}  // namespace

std::string both(const std::string& a, const std::string& b) {
  if (a == "false" || b == "false") return "false";
  return a == "true" ? b : b == "true" ? a : fmt::format("({} && {})", a, b);
}
std::string either(const std::string& a, const std::string& b) {
  if (a == "true" || b == "true") return "true";
  return a == "false" ? b : b == "false" ? a : fmt::format("({} || {})", a, b);
}
std::string negated(const std::string& a) { return a == "true" ? "false" : a == "false" ? "true" : fmt::format("!{}", a); }

bool IntervalText::is_uniform_here(const Expr& e) const {
  const Algorithm& a = frame_.algorithm();
  return !has_free_dim(e, a.parallel) && !has_free_dim(e, a.streamed) && !(frame_.group_in_rows() && has_free_dim(e, head));
}

bool IntervalText::scans(const Expr& predicate) const {
  std::set<const Node*> visited;
  const std::function<bool(const Expr&)> any = [&](const Expr& e) {
    if (!visited.insert(e.get()).second) return false;
    if (e->op == Op::element && !is_uniform_here(e) && has_free_dim(e, frame_.algorithm().streamed)) return e->kind == Kind::integer;
    return std::any_of(e->args.begin(), e->args.end(), any);
  };
  return any(predicate);
}

Truth IntervalText::truth(const Expr& predicate, const Region& region) {
  region_ = region;
  intervals_.clear(), truths_.clear();
  return truth_of(predicate);
}

std::string IntervalText::shortened(const std::string& text) { return text.size() > longest_text ? expr_.named(text) : text; }

Truth IntervalText::truth_of(const Expr& e) {
  if (const auto it = truths_.find(e.get()); it != truths_.end()) return it->second;
  const Truth found = compute_truth(e);
  return truths_[e.get()] = {shortened(found.possible), shortened(found.certain)};
}

Truth IntervalText::compute_truth(const Expr& e) {
  if (is_uniform_here(e)) {
    const std::string exact = expr_.text(e);
    return {exact, exact};
  }
  switch (e->op) {
    case Op::logical_and: {
      const Truth a = truth_of(e->args[0]), b = truth_of(e->args[1]);
      return {both(a.possible, b.possible), both(a.certain, b.certain)};
    }
    case Op::logical_or: {
      const Truth a = truth_of(e->args[0]), b = truth_of(e->args[1]);
      return {either(a.possible, b.possible), either(a.certain, b.certain)};
    }
    case Op::logical_not: {
      const Truth a = truth_of(e->args[0]);
      return {negated(a.certain), negated(a.possible)};
    }
    case Op::less:
    case Op::less_equal:
    case Op::equal:
    case Op::not_equal: return compare(*e);
    default: return {"true", "false"};
  }
}

Truth IntervalText::compare(const Node& n) {
  if (n.args[0]->kind != Kind::integer || n.args[1]->kind != Kind::integer) return {"true", "false"};
  const Algorithm& algorithm = frame_.algorithm();
  const bool own_index = n.args[0]->op == Op::index && n.args[0]->dim == algorithm.streamed;
  if (n.op == Op::less && own_index && n.args[1]->op == Op::length && n.args[1]->dim == algorithm.streamed)   // no tile begins past the end
    return {"true", fmt::format("({} + {} <= position_length)", region_.position, region_.positions)};
  const Interval a = interval(n.args[0]), b = interval(n.args[1]);
  const auto is = [](const std::string& x, const char* op, const std::string& y) { return fmt::format("({} {} {})", x, op, y); };
  if (n.op == Op::less) return {is(a.low, "<", b.high), is(a.high, "<", b.low)};
  if (n.op == Op::less_equal) return {is(a.low, "<=", b.high), is(a.high, "<=", b.low)};
  const std::string overlap = both(is(a.low, "<=", b.high), is(b.low, "<=", a.high));
  const std::string points = both(is(a.low, "==", b.high), is(a.high, "==", b.low));
  if (n.op == Op::equal) return {overlap, points};
  return {negated(points), negated(overlap)};
}

void IntervalText::hoist(const Expr& predicate, const Region& region) {
  region_ = region;
  intervals_.clear();
  std::set<const Node*> visited;
  hoist_nodes(predicate, visited);
}

void IntervalText::hoist_nodes(const Expr& e, std::set<const Node*>& visited) {
  if (!visited.insert(e.get()).second) return;
  if (e->kind == Kind::integer && !has_free_dim(e, frame_.algorithm().streamed)) {
    if (e->op == Op::constant) return;
    const Interval found = interval(e);
    const std::string low = expr_.named(found.low);
    hoisted_[region_.row][e.get()] = {low, found.low == found.high ? low : expr_.named(found.high)};
    return;
  }
  for (const Expr& arg : e->args) hoist_nodes(arg, visited);
}

Interval IntervalText::interval(const Expr& e) {
  const auto& known = hoisted_[region_.row];
  const auto it = known.find(e.get());
  if (it != known.end()) return it->second;
  if (const auto found = intervals_.find(e.get()); found != intervals_.end()) return found->second;
  const Interval found = compute(e);
  return intervals_[e.get()] = {shortened(found.low), shortened(found.high)};
}

Interval IntervalText::compute(const Expr& e) {
  if (is_uniform_here(e)) {
    const std::string exact = expr_.text(e);
    return {exact, exact};
  }
  switch (e->op) {
    case Op::index: return index_interval(e->dim);
    case Op::element: return element_interval(*e);
    case Op::negate: {
      const Interval a = interval(e->args[0]);
      return {negative(*e, a.high), negative(*e, a.low)};
    }
    case Op::abs: {
      const Interval a = interval(e->args[0]);
      const auto larger = [](const std::string& x, const std::string& y) { return fmt::format("max_({}, {})", wide(x), wide(y)); };
      return {larger(larger(a.low, negative(*e, a.high)), "0"), larger(negative(*e, a.low), a.high)};
    }
    case Op::floor_mod: return {"0", unknown(*e).high};
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::min:
    case Op::max: return arithmetic(*e, interval(e->args[0]), interval(e->args[1]));
    case Op::select: {
      const Interval a = interval(e->args[1]), b = interval(e->args[2]);
      return {fmt::format("min_({}, {})", wide(a.low), wide(b.low)), fmt::format("max_({}, {})", wide(a.high), wide(b.high))};
    }
    case Op::floor_div: {
      if (!is_uniform_here(e->args[1])) break;
      const Interval a = interval(e->args[0]);
      const std::string divisor = wide(expr_.text(e->args[1]));
      return {fmt::format("floor_div({}, {})", wide(a.low), divisor), fmt::format("floor_div({}, {})", wide(a.high), divisor)};
    }
    default: break;
  }
  return unknown(*e);
}

// As far as the magnitude goes; so that arithmetic on intervals cannot overflow where that on values cannot.
Interval IntervalText::unknown(const Node& n) const {
  const double most = expr_.magnitude(n);
  if (most >= 0x1p63) return {"lowest_i64", "highest_i64"};
  return {constant_text(-most, Kind::integer), constant_text(most, Kind::integer)};
}
std::string IntervalText::negative(const Node& n, const std::string& x) const {
  if (expr_.saturates(n)) return fmt::format("sub_ending(0, {})", x);
  return expr_.is_wide(n) ? fmt::format("(-{})", wide(x)) : fmt::format("(-{})", x);
}

Interval IntervalText::arithmetic(const Node& n, const Interval& a, const Interval& b) {
  const auto call = [](const char* f, const std::string& x, const std::string& y) { return fmt::format("{}({}, {})", f, wide(x), wide(y)); };
  const auto infix = [&](const char* op, const std::string& x, const std::string& y) {
    if (expr_.saturates(n)) return call(ending_function(n.op), x, y);
    return fmt::format("({} {} {})", expr_.is_wide(n) ? wide(x) : x, op, y);
  };
  switch (n.op) {
    case Op::add: return {infix("+", a.low, b.low), infix("+", a.high, b.high)};
    case Op::sub: return {infix("-", a.low, b.high), infix("-", a.high, b.low)};
    case Op::min: return {call("min_", a.low, b.low), call("min_", a.high, b.high)};
    case Op::max: return {call("max_", a.low, b.low), call("max_", a.high, b.high)};
    default: {
      const std::string ll = infix("*", a.low, b.low), lh = infix("*", a.low, b.high),
                        hl = infix("*", a.high, b.low), hh = infix("*", a.high, b.high);
      return {call("min_", call("min_", ll, lh), call("min_", hl, hh)), call("max_", call("max_", ll, lh), call("max_", hl, hh))};
    }
  }
}

Interval IntervalText::index_interval(const Dim& dim) const {
  const Algorithm& a = frame_.algorithm();
  if (dim == a.streamed) return {region_.position, fmt::format("({} + {} - 1)", region_.position, region_.positions)};
  const std::string last = fmt::format("({} + {} - 1)", region_.row, region_.rows);
  if (dim == a.parallel) return {frame_.query_of(region_.row), frame_.query_of(last)};
  const std::int64_t group = frame_.context.problem.group;
  return {fmt::format("(kv_head * {})", group), fmt::format("(kv_head * {} + {})", group, group - 1)};
}

// A tensor of integers read at one varying index: the extremes over the range of that index.
Interval IntervalText::element_interval(const Node& n) {
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
  const std::string extent = wide(frame_.visible_extent(n.name, varying));
  const std::string from = expr_.named(fmt::format("max_({}, static_cast<i64>(0))", wide(range.low)));
  const std::string to = expr_.named(fmt::format("min_({}, {} - 1)", wide(range.high), extent));
  std::vector<std::string> at;
  std::string outside = fmt::format("{} < 0 || {} >= {}", range.low, range.high, extent);
  for (std::size_t i = 0; i < n.args.size(); ++i) {
    if (static_cast<int>(i) == varying) {
      at.push_back(fmt::format("({0} <= {1} ? {0} : 0)", from, to));
    } else if (n.args[i]->op == Op::index) {
      at.push_back(expr_.text(n.args[i]));
    } else {   // an index of the user's own may be out of range: then nothing is known
      const std::string index = expr_.named(expr_.text(n.args[i]));
      const std::string bad = expr_.named(fmt::format("{0} < 0 || {0} >= {1}", index, frame_.visible_extent(n.name, static_cast<int>(i))));
      outside += " || " + bad;
      at.push_back(fmt::format("({} ? 0 : {})", bad, index));
    }
  }
  const std::string found = expr_.named(fmt::format("{}{} + {}, {}, {} - {} + 1)", region_.alike ? "scan_together(" : "scan(" + region_.early + ", ", frame_.args.data(n.name),
                                                    frame_.offset(n.name, at), frame_.args.stride(n.name, varying), to, from));
  const std::string beyond = expr_.named(outside), value = constant_text(n.value, Kind::integer);
  return {fmt::format("({0} ? min_({1}, {2}) : {1})", beyond, wide(found + ".low"), wide(value)),
          fmt::format("({0} ? max_({1}, {2}) : {1})", beyond, wide(found + ".high"), wide(value))};
}

}  // namespace attile::cuda_text
