// What the fake driver's kernels leave behind: how they were launched.
#pragma once

#include <cstdint>

#include "runtime/cuda_types.h"

namespace attile::test {

struct FakeLaunch {
  unsigned grid_x, grid_y, grid_z, threads, shared_bytes;
  cu::Stream stream;
  int device;
  std::uint64_t second_slot;
  unsigned attributes;
};

}  // namespace attile::test
