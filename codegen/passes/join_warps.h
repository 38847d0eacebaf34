// join_warps: where warps share the positions of a task, their states are merged by the rule.
//
// Afterwards a Join stands between the stream and the finish of a schedule with partition: positions; before it each warp
// has states of its own. After tile_loops, before fold_scale, which
// changes what factors read.
#pragma once

#include "codegen/lower.h"

namespace attile::ir {
Kernel join_warps(Kernel kernel, const Context& context);
}
