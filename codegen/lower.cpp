#include "codegen/lower.h"

#include "codegen/ir_verify.h"
#include "codegen/passes/fold_scale.h"
#include "codegen/passes/fuse.h"
#include "codegen/passes/join_warps.h"
#include "codegen/passes/pipeline.h"
#include "codegen/passes/place.h"
#include "codegen/passes/select.h"
#include "codegen/passes/split_ranges.h"
#include "codegen/passes/tile_loops.h"

namespace attile::ir {

static const Pass all_passes[] = {
    {"tile_loops", tile_loops},       // algorithm → loops over tiles, states carried, rescale explicit
    {"join_warps", join_warps},       // states of warps that share positions
    {"fold_scale", fold_scale},       // the scale of the scores into the exponential
    {"split_ranges", split_ranges},   // plain, masked and guarded bodies; hidden tiles skipped
    {"place", place},                 // spaces and layouts
    {"select", select_instructions},  // layouts → instruction families
    {"pipeline", pipeline},           // copies ahead of the work, in rings
    {"fuse", fuse},                   // element-wise runs → sweeps
};

std::span<const Pass> passes() { return all_passes; }

Kernel lower(const Context& context, const Observer& observe) {
  Kernel kernel;
  for (const Pass& pass : passes()) {
    kernel = pass.run(std::move(kernel), context);
    if (observe) observe(pass.name, kernel);
    throw_on_violations(kernel, pass.name);
  }
  return kernel;
}

}  // namespace attile::ir
