// The kernel that packs K and V for a kernel lowered with pack_ahead: one task per tile of the stream, each writing
// every workspace operand of `main` for that tile.
#pragma once

#include "codegen/ir.h"

namespace attile::ir {
Kernel packing_kernel(const Kernel& main);
}
