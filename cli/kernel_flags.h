// What emit, explain and cache warm share: flags that say a problem without tensors, a target and a schedule, as the
// values that a kernel is generated from.
#pragma once

#include <optional>
#include <string>

#include "cli/attention_flags.h"
#include "dsl/algorithm.h"
#include "runtime/host_cpu.h"
#include "schedules/schedule.h"

namespace attile::cli {

struct KernelFlags {
  AttentionFlags attention;
  MachineFlags machine;
  std::string target;  // empty: that of --device
  bool lse = false;
};
// Sizes, variant, --lse, --out-dtype and --schedule; --target apart.
void add_kernel_flags(CLI::App& app, KernelFlags& flags);
void add_target_flag(CLI::App& app, KernelFlags& flags);

// A device of this machine, or a named chip that need not be here.
struct Chip {
  Target target;
  HostCpu cpu;                   // empty for a GPU
  std::optional<Device> device;  // none for a named chip
};
// --target and --device exclude one another; "host" is the CPU of this machine. Throws Error.
Chip chip_of(const KernelFlags& flags);

struct KernelSource {
  Algorithm algorithm;
  Problem problem;
  Schedule
      schedule;  // as given, else what a call takes on a device of this machine, else the shipped; may not be legal
  std::string tuned;  // where it came from if it is neither given nor shipped
  Chip chip;
  std::string problem_text;
};
KernelSource kernel_source(const KernelFlags& flags);

}  // namespace attile::cli
