// Kernel IR → CUDA C++ text against the headers of codegen/device. The twin of emit_llvm: the skeleton only: which task,
// which loops, which tiles are visited, where masks are applied. What a tile op becomes is the form's (cuda_form.h).
//
// The kernel is extern "C" void name(const Arguments a): `Arguments` holds the 8-byte slots of `parameters`. A block is a
// task, numbered along x, then y; its dynamic shared memory has `shared_bytes`.
#pragma once

#include "codegen/lower_program.h"
#include "codegen/program.h"

namespace attile {

// A partial kernel sweeps one part of the stream; its outputs have a further dim `part`, innermost in the task order.
EmittedKernel emit_cuda(const ir::LoweredKernel& lowered);

}  // namespace attile
