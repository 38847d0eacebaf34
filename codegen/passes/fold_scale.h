// fold_scale: where the scores are a product times a number, the number becomes part of the exponential.
//
// Afterwards the scaled scores are no tile of their own: the reference is kept in units of the product, and weights and
// factors read exp((product − reference) · scale), so that the weight of the largest score is still exactly 1. What
// reads the reference after the stream multiplies it. The number must be > 0, which the kernel says in `positive`; the
// runtime calls the kernel without the pass where it is not. After join_warps, whose factors are folded too; before
// split_ranges, so that all bodies are alike. Of schedules with fold_scale on a GPU only.
#pragma once

#include "codegen/lower.h"

namespace attile::ir {
Kernel fold_scale(Kernel kernel, const Context& context);
}
