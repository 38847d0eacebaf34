// Visibility of whole tiles on the host: what emitted code decides at run time by intervals (cpu_interval), decided
// here with the numbers of a call. Sound, not sharp: what cannot be bounded may be either.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "dsl/algorithm.h"

namespace attile::ir {

struct TileTruth {
  bool possible = true;  // may be true somewhere
  bool certain = false;  // is true everywhere
};

// Rows and positions of one sequence, both ends included.
struct TileRegion {
  std::int64_t first_row, last_row, first_position, last_position;
};

// What a call says beside tensors. Scalars that are not given may be anything.
struct CallLengths {
  std::int64_t rows = 0, positions = 0;
  std::map<std::string, double> scalars = {};
};

TileTruth truth_in(const Expr& predicate, const Algorithm& a, const CallLengths& call, const TileRegion& region);

}  // namespace attile::ir
