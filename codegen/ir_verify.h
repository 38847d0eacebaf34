// The verifier: every violation of the IR's rules, each with its op printed. Run after every pass.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/ir.h"

namespace attile::ir {

// `after` names the pass that made the kernel: later stages demand more (after "place" every value has its
// layout, after "select" every product its kind, after "fuse" no element-wise op stands outside a Sweep).
std::vector<std::string> verify(const Kernel& kernel, std::string_view after);

// Throws Error(internal) listing all violations, if there are any.
void throw_on_violations(const Kernel& kernel, std::string_view after);

}  // namespace attile::ir
