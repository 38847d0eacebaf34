// Which kernels a program has: one, packing and main, or partial and merge, each lowered with what it was lowered for.
// generate() emits them, traffic() counts them.
#pragma once

#include <vector>

#include "codegen/lower.h"

namespace attile::ir {

enum class Role : std::uint8_t {
  main,
  packing,  // packs the streamed operands for `main`, a task for each tile of the stream
  partial,  // sweeps one part of the stream, a task for each part
  merge,    // streams over the parts
};

struct LoweredKernel {
  Role role;
  Algorithm algorithm;
  Problem problem;
  Schedule schedule;
  Target target;
  Kernel kernel;
  Context context() const { return {algorithm, problem, schedule, target}; }
};

// In the order in which they run. The schedule must be legal.
std::vector<LoweredKernel> lower_program(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t);

}  // namespace attile::ir
