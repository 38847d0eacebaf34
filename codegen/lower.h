// Lowering: an algorithm and a schedule become kernel IR by a short list of passes, the map of this compiler.
// The IR is verified after every pass.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "codegen/ir.h"
#include "schedules/schedule.h"

namespace attile::ir {

struct Context {
  const Algorithm& algorithm;
  const Problem& problem;
  const Schedule& schedule;
  const Target& target;
};

struct Pass {
  std::string_view name;
  Kernel (*run)(Kernel, const Context&);
};
std::span<const Pass> passes();

// Called with the name of each pass and the kernel it returned; dumps and timing are observers.
using Observer = std::function<void(std::string_view pass, const Kernel&)>;
Kernel lower(const Context& context, const Observer& observe = nullptr);

}  // namespace attile::ir
