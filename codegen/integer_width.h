// How many bits the integers of generated code need, from a bound on their values. Lanes and intervals go by it alike:
// where 64 bits are too few as well, both end at the last number.
#pragma once

#include <functional>
#include <string>

#include "dsl/dtype.h"
#include "dsl/expr.h"

namespace attile {

using DTypeOf = std::function<DType(const std::string& tensor)>;

// The largest absolute value that an integer can have, or more: of an index or a length 2^28 (longer ones are no matter
// for arithmetic on them: sums of a few still fit in 32 bits), of a scalar of the call and an int64 element 2^63.
double magnitude(const Node& n, const DTypeOf& dtype_of);

// Is it held in 64 bits? Elements are held as their type; else what may reach 2^31.
bool is_wide(const Node& n, const DTypeOf& dtype_of);
// May it exceed 64 bits?
bool saturates(const Node& n, const DTypeOf& dtype_of);
// Is no value near the ends of 32 bits?
bool is_index_like(const Node& n, const DTypeOf& dtype_of);

}  // namespace attile
