// tile_loops: the algorithm becomes loops over tiles, with carried states and the rescale rule made explicit.
//
// Afterwards every dot is a ScoreMma or a SumMma, every state update an op, masks are Mask ops, and each sum of
// the rule is rescaled before it is added to. Values have extents but neither space nor layout. First of all
// passes: the others know nothing of algorithms.
#pragma once

#include "codegen/lower.h"

namespace attile::ir {
Kernel tile_loops(Kernel kernel, const Context& context);
}
