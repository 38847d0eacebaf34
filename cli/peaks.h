// The limits of the device that a call runs on, as measured in this process, and a call's time held against them.
#pragma once

#include <string>

#include "cli/work.h"
#include "runtime/device.h"
#include "schedules/schedule.h"

namespace attile::cli {

struct Peaks {
  std::string arithmetic;  // "multiply-adds", "bfloat16 dots", "mma.sync of bfloat16"
  double gflops = 0;       // of the arithmetic that the schedule uses
  double read_gbs = 0;
  double fma_gflops = 0, bf16_dot_gflops = 0;  // of a CPU
};
// On the CPU with the threads now set. About a tenth of a second, most of it for the memory.
Peaks measure_peaks(const Problem& problem, const Schedule& schedule, Device device);

// The name of the arithmetic that a schedule uses on that device.
std::string arithmetic_of(const Problem& problem, const Schedule& schedule, Device device);
// Its limit alone, 10^9 operations a second; on the CPU with about `seconds` of work. float32 products on a GPU's
// matrix unit are three of TF32, unless the problem allows TF32, so a third of it is the limit.
double measure_gflops(const Problem& problem, const Schedule& schedule, Device device, double seconds = 0.02);
double measure_read_gbs_of(Device device);

// The share of the roofline: the time that arithmetic or memory would need at their limits, over the time taken.
double roofline_share(const Peaks& peaks, const Work& work, double seconds);

}  // namespace attile::cli
