// Checks that an algorithm's rescale rule keeps its law. Internal to dsl/.
#pragma once

#include "dsl/algorithm.h"

namespace attile {
inline namespace v1 {

// Throws Error(argument) with a counter-example unless, for every sum x that the rule lists,
// x(s, to) = x(s, from)·factor(from, to), factor composes, factor(a, a) = 1 and factor(−inf, a) is finite.
// Checked at random points of several magnitudes in double; everything that a summand does not derive from the
// reference is a free value; scalars are taken as positive. Points at which a side over- or underflows do not count.
void check_law(const Algorithm& a);

}  // namespace v1
}  // namespace attile
