// place: gives every value its space and layout.
//
// Operands of products are copied into task-owned tiles in the layout their product reads; with pack_ahead
// the streamed ones lie in the workspace, packed by a kernel of their own (packing.h), and with lanes:
// positions they stay in global memory, since each is read once. After split_ranges, so that all bodies share
// their operands; before select, which reads layouts.
#pragma once

#include "codegen/lower.h"

namespace attile::ir {
Kernel place(Kernel kernel, const Context& context);
}
