// Where decoding ends: how many rows a sequence's head may have for Problem::few_rows.
#pragma once

#include <cstdint>

#include "dsl/algorithm.h"

namespace attile {
inline namespace v1 {

inline bool are_few_rows(Lengths lengths, std::int64_t rows, std::int64_t group) {
  return lengths != Lengths::packed && rows * group <= 8;
}

}  // namespace v1
}  // namespace attile
