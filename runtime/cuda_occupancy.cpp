#include "runtime/cuda_occupancy.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace attile {
inline namespace v1 {
namespace {

struct Row {
  int chip, threads_per_sm, blocks_per_sm;
};
constexpr std::array<Row, 7> rows{{
    {80, 2048, 32},
    {86, 1536, 16},
    {89, 1536, 24},
    {90, 2048, 32},
    {100, 2048, 32},
    {103, 2048, 32},
    {120, 1536, 24},
}};
constexpr int registers_per_sm = 65536, warp_lanes = 32;
// Registers are given to a warp in units of 256, and to one of the four parts of a multiprocessor.
constexpr int register_unit = 256, partitions = 4;
constexpr std::int64_t shared_unit = 128, shared_reserved = 1024;

template <typename T>
T round_up(T n, T step) {
  return (n + step - 1) / step * step;
}

}  // namespace

CudaLimits cuda_limits(const Target& t) {
  const int chip = t.arch.starts_with("sm_") ? std::atoi(t.arch.c_str() + 3) : 0;
  Row limits = rows.front();
  for (const Row& row : rows)
    if (row.chip <= chip) limits = row;
  return {t.multiprocessors, limits.threads_per_sm, limits.blocks_per_sm,
          registers_per_sm,  t.shared_per_sm,       shared_reserved};
}

CudaLimits cuda_limits(const CudaDevice& d) {
  return {d.sms, d.threads_per_sm, d.blocks_per_sm, d.registers_per_sm, d.shared_per_sm, d.shared_reserved_per_block};
}

int CudaOccupancy::blocks() const { return std::min({by_registers, by_shared, by_threads, by_blocks}); }

const char* CudaOccupancy::limited_by() const {
  const int least = blocks();
  if (by_registers == least) return "registers";
  if (by_shared == least) return "shared memory";
  return by_threads == least ? "threads" : "blocks";
}

CudaOccupancy cuda_occupancy(const CudaLimits& limits, int threads, int registers, std::int64_t shared_bytes) {
  CudaOccupancy o;
  o.warps = (std::max(threads, 1) + warp_lanes - 1) / warp_lanes;
  o.by_blocks = limits.blocks_per_sm;
  o.by_threads = limits.threads_per_sm / (o.warps * warp_lanes);
  const std::int64_t shared = round_up(shared_bytes, shared_unit) + limits.shared_reserved_per_block;
  o.by_shared = static_cast<int>(
      std::min<std::int64_t>(limits.shared_per_sm / std::max<std::int64_t>(shared, 1), limits.blocks_per_sm));
  o.by_registers = limits.blocks_per_sm;
  if (registers > 0) {
    const int of_warp = round_up(registers * warp_lanes, register_unit);
    const int warps = limits.registers_per_sm / partitions / of_warp * partitions;
    o.by_registers = std::min(warps / o.warps, limits.blocks_per_sm);
  }
  return o;
}

}  // namespace v1
}  // namespace attile
