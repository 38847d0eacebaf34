// The machine's limits as measured in this process, and a call's time held against them.
#pragma once

#include "cli/work.h"
#include "schedules/schedule.h"

namespace attile::cli {

struct Peaks {
  double fma_gflops = 0, bf16_dot_gflops = 0, read_gbs = 0;
};
// With the threads now set; about a tenth of a second, most of it for the memory.
Peaks measure_peaks();

// The limit of the arithmetic that a schedule uses.
double gflops_limit(const Peaks& peaks, const Schedule& schedule);
// The share of the roofline: the time that arithmetic or memory would need at their limits, over the time taken.
double roofline_share(const Peaks& peaks, const Schedule& schedule, const Work& work, double seconds);

}  // namespace attile::cli
