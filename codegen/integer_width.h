// Which integers of generated code need 64 bits. Indices, lengths, int32 elements, small constants, and sums, quotients
// and choices of these have 32; a scalar of a call, a product, an int64 element and a random word may have more.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "dsl/dtype.h"
#include "dsl/expr.h"

namespace attile {

// Constants that leave room for a sum with an index.
inline bool is_small(std::int64_t value) { return value >= -(std::int64_t{1} << 30) && value <= std::int64_t{1} << 30; }

using DTypeOf = std::function<DType(const std::string& tensor)>;
bool is_wide(const Node& n, const DTypeOf& dtype_of);
// Made of indices, lengths and small constants alone: no value is near the ends of 32 bits.
bool is_index_arithmetic(const Node& n);

}  // namespace attile
