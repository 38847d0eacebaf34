// pipeline: copies of the stream run ahead of the work on a GPU.
//
// Afterwards no Copy of a streamed operand is left in the loop over the stream: each lies in a ring of `stages` tiles, the
// tiles of the first stages−1 iterations are begun before the loop, and an iteration awaits its own tile and begins
// the one that takes the place of the tile before. With one stage it waits for the copy it has just begun. After
// select, which reads layouts; before fuse, for which copies are no element-wise ops. With lanes: fragments only.
#pragma once

#include "codegen/lower.h"

namespace attile::ir {
Kernel pipeline(Kernel kernel, const Context& context);
}
