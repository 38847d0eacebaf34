// What a task takes of a GPU multiprocessor: legality checks with it, codegen lays shared memory out with it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "schedules/operands.h"
#include "schedules/schedule.h"

namespace attile {
inline namespace v1 {

// Columns of a tile in shared memory: whole rows of the matrix instructions' 8×8 blocks.
ATTILE_API std::int64_t shared_columns(std::int64_t columns);
// Bytes from one row of a tile in shared memory to the next. Within a row, units of 16 bytes are permuted so that eight rows at
// one column lie in eight different groups of banks (codegen/device/tile.cuh).
ATTILE_API std::int64_t shared_pitch(std::int64_t columns, DType type);

// Rows and positions that one warp has of a tile (lanes: fragments). Its columns of V are a share of column_warps.
ATTILE_API std::int64_t warp_rows(const Schedule& s);
ATTILE_API std::int64_t warp_positions(const Schedule& s);
// Of which tile_rows and tile_keys are multiples: 16 for each warp that has its own.
int least_rows(const Schedule& s);
int least_keys(const Schedule& s);
// The head dim of a sum's summand; 0 for a sum of one number a row.
std::int64_t sum_columns(const Algorithm& a, const Problem& p, const StateDecl& s);

struct CudaFootprint {
  std::int64_t row_operands = 0;     // bytes of shared memory: tile_rows each
  std::int64_t stream_operands = 0;  // stages × tile_keys each
  std::int64_t weights = 0;          // column_warps: a tile of weights on their way between warps, and
  std::int64_t maxima = 0;           // what each warp says of its rows
  std::int64_t join = 0;             // partition: positions; after the stream, in place of all else
  std::int64_t results = 0;          // 16-bit outputs on their way to memory, likewise
  std::int64_t registers = 0;        // per thread: accumulators and row operands that are alive at once
  std::int64_t shared() const { return std::max({row_operands + stream_operands + weights + maxima, join, results}); }
};
ATTILE_API CudaFootprint cuda_footprint(const Algorithm& a, const Problem& p, const Schedule& s);

// What cuda_footprint does not count: addresses, loop counters, row states, operands on their way.
inline constexpr std::int64_t other_registers = 36;
// Shared memory of the text itself: answers about tiles (codegen/device/visibility.cuh).
inline constexpr std::int64_t walk_bytes = 128;
// Registers that a thread may have when `blocks_per_sm` tasks share a multiprocessor.
ATTILE_API std::int64_t register_limit(const Schedule& s);

// Reasons why warps cannot have the same rows as column_warps says; empty if they can.
std::vector<std::string> column_faults(const Algorithm& a, const Problem& p, const Schedule& s);

// How far a reference may lag with lazy_rescale: 8 in units of log 2, so that 16-bit weights keep their range.
inline constexpr double lag_of_reference = 8 * 0.6931471805599453;

// The parts of legality() and made_legal() for GPU targets.
std::vector<std::string> cuda_legality(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t);
Schedule cuda_made_legal(const Algorithm& a, const Problem& p, Schedule s, const Target& t);

}  // namespace v1
}  // namespace attile
