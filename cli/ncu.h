// Bytes that a GPU really moved, by Nsight Compute: `attile run` as its child, each kernel's first launch.
#pragma once

#include <string>
#include <vector>

namespace attile::cli {

struct MeasuredBytes {
  double dram_read = 0, dram_written = 0, l2 = 0;  // over the kernels named
};
// The program `ncu`; empty when it is in no folder of $PATH.
std::string find_ncu();
// `words`: of `attile`, the verb first. Throws Error(environment) with the program's words where it cannot measure.
MeasuredBytes measure_bytes(const std::string& ncu, const std::vector<std::string>& words,
                            const std::vector<std::string>& kernels);

// The sum of what `ncu --csv --print-units base` says, over all rows. Throws Error(environment) for a text without
// them.
MeasuredBytes read_ncu_csv(const std::string& text);

}  // namespace attile::cli
