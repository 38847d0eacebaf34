// What follows from an algorithm's rescale rule without writing it again: the stream split into parts, and
// the merge of the parts. (r, sums) pairs form a commutative monoid with identity (−inf, 0); see
// Milakov & Gimelshein 2018 (arXiv:1805.02867) for the softmax case.
#pragma once

#include "dsl/algorithm.h"

namespace attile {
inline namespace v1 {

// The dim that numbers the parts of a split stream.
inline const Dim part{"part"};

struct SplitAlgorithm {
  // Sweeps one part of the stream; outputs the raw states, named "part.<state>", instead of finishing.
  Algorithm partial;
  // Streams over `part`, reading the tensors "part.<state>" with dims (batch, head, query, part[, x]), and
  // finishes as the original does. A selection arrives as "part.<state>.values" and "part.<state>.indices" with
  // x = slot. Parts stand in the order of their positions, so that ties still go to the lower one.
  // part·length(…)-style bookkeeping is the program's, not the algorithm's.
  Algorithm merge;
};

// Do the outputs stay the same while the reference lags behind the maximum by up to `slack`, and does no weight grow by
// more than `most`? Checked at random points in double.
ATTILE_API bool takes_lagging_reference(const Algorithm& a, double slack, double most);

// Throws Error(unsupported) where there is nothing to merge: a tile output, no state at all, or a merge again.
ATTILE_API SplitAlgorithm split(const Algorithm& a);

}  // namespace v1
}  // namespace attile
