#include "cli/peaks.h"

#include <algorithm>

#include "runtime/measure.h"

namespace attile::cli {

Peaks measure_peaks() { return {measure_fma_gflops(), measure_bf16_dot_gflops(), measure_read_gbs()}; }

double gflops_limit(const Peaks& peaks, const Schedule& schedule) {
  return schedule.bf16_dot ? peaks.bf16_dot_gflops : peaks.fma_gflops;
}

double roofline_share(const Peaks& peaks, const Schedule& schedule, const Work& work, double seconds) {
  const double arithmetic = work.flops / (gflops_limit(peaks, schedule) * 1e9),
               memory = work.bytes / (peaks.read_gbs * 1e9);
  return std::max(arithmetic, memory) / seconds;
}

}  // namespace attile::cli
