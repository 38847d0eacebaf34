// A square of vectors transposed in registers.
#pragma once

#include <vector>

#include "codegen/llvm_builder.h"

namespace attile::llvm_text {

// Rows of one vector each → columns; rows.size() is a power of two and the lane count.
std::vector<Val> transpose(Function& f, std::vector<Val> rows);

}  // namespace attile::llvm_text
