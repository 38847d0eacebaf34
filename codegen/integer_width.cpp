#include "codegen/integer_width.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace attile {
namespace {

constexpr double two_to_28 = 0x1p28, two_to_31 = 0x1p31, two_to_63 = 0x1p63;

class Magnitudes {
 public:
  explicit Magnitudes(const DTypeOf& dtype_of) : dtype_of_(dtype_of) {}

  double of(const Node& n) {  // trees share branches
    const auto found = known_.find(&n);
    return found != known_.end() ? found->second : known_[&n] = std::min(compute(n), two_to_63);
  }

 private:
  double compute(const Node& n) {
    const auto arg = [&](std::size_t i) { return of(*n.args[i]); };
    switch (n.op) {
      case Op::constant: return std::fabs(n.value);
      case Op::index:
      case Op::length:
      case Op::variable: return two_to_28;  // integer states are positions
      case Op::element: return std::max(dtype_of_(n.name) == DType::int64 ? two_to_63 : two_to_31, std::fabs(n.value));
      case Op::random: return 2 * two_to_31;
      case Op::negate:
      case Op::abs:
      case Op::floor_div: return arg(0);
      case Op::floor_mod: return arg(1);
      case Op::add:
      case Op::sub: return arg(0) + arg(1);
      case Op::mul: return arg(0) * arg(1);
      case Op::min:
      case Op::max: return std::max(arg(0), arg(1));
      case Op::select: return std::max(arg(1), arg(2));
      default: return two_to_63;
    }
  }

  const DTypeOf& dtype_of_;
  std::map<const Node*, double> known_;
};

}  // namespace

double magnitude(const Node& n, const DTypeOf& dtype_of) { return Magnitudes(dtype_of).of(n); }

bool is_wide(const Node& n, const DTypeOf& dtype_of) {
  if (n.kind != Kind::integer) return false;
  if (n.op == Op::element) return dtype_of(n.name) == DType::int64 || std::fabs(n.value) >= two_to_31;
  return magnitude(n, dtype_of) >= two_to_31;
}
bool saturates(const Node& n, const DTypeOf& dtype_of) {
  return n.kind == Kind::integer && magnitude(n, dtype_of) >= two_to_63;
}
bool is_index_like(const Node& n, const DTypeOf& dtype_of) { return magnitude(n, dtype_of) < two_to_31 - 1; }

}  // namespace attile
