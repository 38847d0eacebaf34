#include "codegen/tile_visibility.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace attile::ir {
namespace {

// Beyond every integer, and of what a product is still a number.
constexpr double unbounded = 0x1p100;

struct Interval {
  double low = -unbounded, high = unbounded;
  Interval() = default;
  Interval(double from, double to)
      : low(std::clamp(from, -unbounded, unbounded)), high(std::clamp(to, -unbounded, unbounded)) {}
  bool point() const { return low == high && std::fabs(low) < unbounded; }
};

class Intervals {
 public:
  Intervals(const Algorithm& a, const CallLengths& call, const TileRegion& region)
      : a_(a), call_(call), region_(region) {}

  TileTruth truth(const Expr& e) {
    const auto it = truths_.find(e.get());
    return it != truths_.end() ? it->second : truths_[e.get()] = compute_truth(e);
  }

 private:
  TileTruth compute_truth(const Expr& e) {
    switch (e->op) {
      case Op::logical_and: {
        const TileTruth a = truth(e->args[0]), b = truth(e->args[1]);
        return {a.possible && b.possible, a.certain && b.certain};
      }
      case Op::logical_or: {
        const TileTruth a = truth(e->args[0]), b = truth(e->args[1]);
        return {a.possible || b.possible, a.certain || b.certain};
      }
      case Op::logical_not: {
        const TileTruth a = truth(e->args[0]);
        return {!a.certain, !a.possible};
      }
      case Op::less:
      case Op::less_equal:
      case Op::equal:
      case Op::not_equal: return compare(*e);
      default: return {};
    }
  }

  TileTruth compare(const Node& n) {
    if (n.args[0]->kind != Kind::integer || n.args[1]->kind != Kind::integer) return {};
    const Interval a = interval(n.args[0]), b = interval(n.args[1]);
    if (n.op == Op::less) return {a.low < b.high, a.high < b.low};
    if (n.op == Op::less_equal) return {a.low <= b.high, a.high <= b.low};
    const bool overlap = a.low <= b.high && b.low <= a.high, points = a.point() && b.point() && a.low == b.low;
    if (n.op == Op::equal) return {overlap, points};
    return {!points, !overlap};
  }

  Interval interval(const Expr& e) {
    const auto it = intervals_.find(e.get());
    return it != intervals_.end() ? it->second : intervals_[e.get()] = compute_interval(e);
  }
  Interval compute_interval(const Expr& e) {
    const auto arg = [&](std::size_t i) { return interval(e->args[i]); };
    switch (e->op) {
      case Op::constant: return {e->value, e->value};
      case Op::scalar: {
        const auto given = call_.scalars.find(e->name);
        return given == call_.scalars.end() ? Interval{} : Interval{given->second, given->second};
      }
      case Op::length: return length(e->dim);
      case Op::index: return index(e->dim);
      case Op::negate: return {-arg(0).high, -arg(0).low};
      case Op::add: return {arg(0).low + arg(1).low, arg(0).high + arg(1).high};
      case Op::sub: return {arg(0).low - arg(1).high, arg(0).high - arg(1).low};
      case Op::min: return {std::min(arg(0).low, arg(1).low), std::min(arg(0).high, arg(1).high)};
      case Op::max: return {std::max(arg(0).low, arg(1).low), std::max(arg(0).high, arg(1).high)};
      case Op::select: return {std::min(arg(1).low, arg(2).low), std::max(arg(1).high, arg(2).high)};
      case Op::mul: {
        const Interval a = arg(0), b = arg(1);
        const auto [low, high] = std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
        return {low, high};
      }
      case Op::floor_div: {
        const Interval a = arg(0), b = arg(1);
        if (!b.point() || b.low <= 0) return {};
        return {std::floor(a.low / b.low), std::floor(a.high / b.low)};
      }
      default: return {};
    }
  }

  Interval length(const Dim& dim) const {
    if (dim == a_.parallel) return whole(call_.rows);
    return dim == a_.streamed ? whole(call_.positions) : Interval{};
  }
  static Interval whole(std::int64_t n) { return {static_cast<double>(n), static_cast<double>(n)}; }
  Interval index(const Dim& dim) const {
    if (dim == a_.parallel) return {static_cast<double>(region_.first_row), static_cast<double>(region_.last_row)};
    if (dim != a_.streamed) return {0, unbounded};
    return {static_cast<double>(region_.first_position), static_cast<double>(region_.last_position)};
  }

  const Algorithm& a_;
  const CallLengths& call_;
  const TileRegion& region_;
  std::map<const Node*, TileTruth> truths_;  // trees share branches
  std::map<const Node*, Interval> intervals_;
};

}  // namespace

TileTruth truth_in(const Expr& predicate, const Algorithm& a, const CallLengths& call, const TileRegion& region) {
  return Intervals(a, call, region).truth(predicate);
}

}  // namespace attile::ir
