// What a program for a GPU launches and moves for the sizes of a call: worked out from sizes and tiles, nothing is run.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/call_data.h"
#include "codegen/program.h"

namespace attile::cli {

// Blocks that each kernel of the program is launched with. `parts`: of a split schedule, else 1.
std::vector<std::int64_t> task_counts(const Program& program, const CallData& data, std::int64_t parts);

// Parts of the stream: the schedule's number, or for splits: 0 what the run time takes on a device that runs `places`
// tasks at a time.
std::int64_t parts_of(const Program& program, const CallData& data, std::int64_t places);

struct GpuTraffic {
  double hbm_read = 0, hbm_written = 0;  // every input once, every output once
  // Rows once for each part of the stream, keys and values once for each row tile that sees them, bias and mask once
  // for each head; with lanes: positions keys and values once for each row, of which some lie in L1.
  double l2_read = 0, l2_written = 0;
  double partial = 0;        // of l2: what the parts of a split write and the merge reads
  double visible_flops = 0;  // of the pairs that the masks leave
  double tile_flops = 0;     // of whole tiles, as the matrix unit computes them
};
GpuTraffic gpu_traffic(const Program& program, const CallData& data, std::int64_t parts);

}  // namespace attile::cli
