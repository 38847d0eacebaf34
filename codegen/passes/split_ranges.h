// split_ranges: tiles that the mask does not touch lose their masks, tiles that it hides are skipped.
//
// Afterwards the panel body stands under a Visibility op: `plain` without any Mask, `masked` with those that
// matter (a weight that vanishes at a score of −inf needs none of its own), `guarded` with all of them and
// guarded sums, `hidden` with zeros for outputs at every position. The key-tile loop carries the predicate as its
// skip condition, unless there are such outputs. Stands before place, so that all bodies are placed alike.
#pragma once

#include "codegen/lower.h"

namespace attile::ir {
Kernel split_ranges(Kernel kernel, const Context& context);
}
