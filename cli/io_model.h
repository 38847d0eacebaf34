// Bytes and operations of a call for each order of its loops, counted from the kernels that would run
// (codegen/traffic).
#pragma once

#include <string>
#include <vector>

#include "cli/call_data.h"
#include "cli/kernel_flags.h"
#include "codegen/traffic.h"

namespace attile::cli {

struct OrderTraffic {
  std::string order;     // "standard", "FA-1", "FA-2", "chosen"
  std::string schedule;  // that it was counted for
  Traffic traffic;
  double intensity() const;  // operations a byte of main memory
};

// Standard attention (three kernels, S and P in memory; only for plain and causal attention), keys outside, rows
// outside, and the kernel's own schedule, which must be legal. The first three share the tile sizes of the chosen one
// where rows run along its lanes, and otherwise those of the initial schedule.
std::vector<OrderTraffic> traffic_by_order(const KernelSource& source, const CallData& data);

}  // namespace attile::cli
