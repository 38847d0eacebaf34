// select: chooses the instruction family of every product from the layouts of its operands.
//
// Afterwards no MmaKind is `unselected`. After place, whose layouts decide.
#pragma once

#include "codegen/lower.h"

namespace attile::ir {
Kernel select_instructions(Kernel kernel, const Context& context);
}
