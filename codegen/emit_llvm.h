// Kernel IR → LLVM IR text. The skeleton only: which task, which loops, which of the visibility bodies. What a
// tile op becomes is the lane form's (lane_form.h), what a layout's arithmetic is, llvm_tiles'.
//
// The function is void (ptr args, i64 task, ptr scratch): `args` are the 8-byte slots of `parameters`, `scratch`
// is the worker's own memory of `scratch_bytes`, 64-byte aligned. Tasks are independent.
#pragma once

#include "codegen/lower.h"
#include "codegen/program.h"

namespace attile {

// `split`: the kernel sweeps one part of the stream; its outputs have a further dim `part`, innermost in the task order.
EmittedKernel emit_llvm(const ir::Kernel& kernel, const ir::Context& context, bool split);

// A packing kernel (codegen/packing.h); `packed` receives the operands it writes.
EmittedKernel emit_llvm_packing(const ir::Kernel& kernel, const ir::Context& context, std::vector<PackedOperand>& packed);

}  // namespace attile
