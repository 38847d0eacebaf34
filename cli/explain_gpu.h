// The part of `attile explain` that is about a GPU's kernels: what ptxas made of them, how they fill the device, what
// they move and what of that was measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/call_data.h"
#include "cli/gpu_kernels.h"
#include "cli/gpu_model.h"
#include "cli/json.h"
#include "cli/kernel_flags.h"
#include "cli/ncu.h"
#include "cli/peaks.h"

namespace attile::cli {

struct GpuLaunch {
  GpuKernel kernel;
  CudaOccupancy occupancy;
  std::int64_t tasks = 0;
  std::int64_t places = 0;  // tasks that the device runs at a time
  double waves() const { return places > 0 ? static_cast<double>(tasks) / static_cast<double>(places) : 0; }
};

struct GpuExplanation {
  CudaLimits limits;
  std::vector<GpuLaunch> launches;
  std::string not_compiled;  // why registers are not known; empty where they are
  std::int64_t parts = 1;
  GpuTraffic traffic;
  std::optional<Peaks> peaks;  // of a device of this machine
  std::optional<MeasuredBytes> measured;
  std::string not_measured;
};

// The schedule is legal. `run_words`: the call as words of `attile run`, to be measured by Nsight Compute; none where
// it was not asked for. Without NVRTC all but registers is explained.
GpuExplanation explain_gpu(const KernelSource& source, const CallData& data,
                           const std::optional<std::vector<std::string>>& run_words);
void print_gpu(const GpuExplanation& e);
void add_json(Json& json, const GpuExplanation& e);

}  // namespace attile::cli
