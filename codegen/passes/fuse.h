// fuse: runs of element-wise ops on stream tiles become one Sweep, so that a tile is read and written once.
//
// Afterwards Map, Mask, RowReduce, Insert and per-position Store on stream tiles stand only inside Sweeps.
// Last: it needs the final order of ops.
#pragma once

#include "codegen/lower.h"

namespace attile::ir {
Kernel fuse(Kernel kernel, const Context& context);
}
