// The model of GPU kernels: what each unit of a multiprocessor has to do, how far units overlap, how many tasks are
// resident and how they fill the device.
#include <algorithm>
#include <cmath>

#include "autotune/cost_model.h"
#include "runtime/cuda_occupancy.h"
#include "runtime/cuda_parts.h"
#include "schedules/cuda_footprint.h"

namespace attile {
inline namespace v1 {
namespace {

double round16(double n) { return std::ceil(n / 16) * 16; }

DType operand_type(const Problem& p) {
  const auto q = p.dtypes.find("q");
  return q == p.dtypes.end() ? (p.dtypes.empty() ? DType::float32 : p.dtypes.begin()->second) : q->second;
}

struct Task {  // cycles of one tile of keys of one task, unit by unit
  double matrix = 0, exp = 0, issue = 0, shared = 0, l2 = 0;
};

Task fragments_tile(const Problem& p, const Schedule& s, const CostSizes& z, const Constants& c) {
  const double rows = s.tile_rows, keys = s.tile_keys, d = round16(z.d_score) + round16(z.d_value),
               scores = rows * keys;
  const bool exact = operand_type(p) == DType::float32;
  const double flops = (exact ? c.at("tf32_flops") / (p.tf32 ? 1 : 3) : c.at("mma_flops")) * c.at("mma_share");
  Task t;
  t.matrix = 2 * scores * d / flops;
  t.exp = scores / c.at("exp_per_cycle");
  const double rescaled = s.lazy_rescale ? 0.1 : 1;
  // Of the products: one instruction a warp for 16×8×16.
  const double products = scores * d / (16 * 8 * 16) * 32 * (exact ? 8 : 1);
  t.issue =
      (scores * c.at("score_instructions") + rescaled * rows * z.d_value * c.at("rescale_instructions") + products) /
      c.at("issue_per_cycle");
  // Warps of other rows read all of K and V. Those that share rows read all of q, and pass their weights around.
  const double stream = keys * (z.d_score + z.d_value) * z.operand_bytes, sharers = s.column_warps,
               readers = s.partition == Partition::rows ? s.warps / sharers : 1;
  const double row_reads = s.rows_in_registers ? 0 : rows * z.d_score * z.operand_bytes * sharers;
  const double weights = sharers > 1 ? scores * z.operand_bytes * (1 + sharers) : 0;
  t.shared = (stream * (readers + 1) + row_reads + weights) / c.at("shared_bytes_per_cycle");
  t.l2 = stream / c.at("l2_bytes_per_cycle");
  return t;
}

// A warp for each row: multiply-adds, K and V once for each row from L1 or L2.
Task positions_tile(const Schedule& s, const CostSizes& z, const Constants& c) {
  const double rows = s.tile_rows, keys = s.tile_keys, d = z.d_score + z.d_value;
  Task t;
  t.matrix = 2 * rows * keys * d / c.at("fma_flops");
  t.exp = rows * keys / c.at("exp_per_cycle");
  t.issue = rows * keys * (c.at("score_instructions") + d) / c.at("issue_per_cycle");
  t.l2 = rows * keys * d * z.operand_bytes / c.at("l2_bytes_per_cycle");
  return t;
}

// ptxas fills the registers that it may have with loads ahead of their use: a limit is what it takes.
int resident_tasks(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) {
  if (s.lanes != Lanes::fragments) return 8;
  const CudaOccupancy occupancy = cuda_occupancy(cuda_limits(t), 32 * s.warps, static_cast<int>(register_limit(s)),
                                                 cuda_footprint(a, p, s).shared());
  return std::max(occupancy.blocks(), 1);
}

}  // namespace

Cost predict_cuda(const Algorithm& a, const Problem& p, const CallShape& shape, const Schedule& s, const Target& t,
                  const Constants& c) {
  const CostSizes z = cost_sizes(a, p, shape, s);
  const double sms = std::max(t.multiprocessors, 1);
  Cost cost;
  cost.clock_hz = c.at("clock_ghz") * 1e9;
  cost.resident = resident_tasks(a, p, s, t);
  const double places = sms * cost.resident, whole = z.heads * z.row_tiles;
  const double parts = s.splits > 0 ? s.splits
                                    : static_cast<double>(cuda_parts(static_cast<std::int64_t>(whole),
                                                                     static_cast<std::int64_t>(std::ceil(z.key_tiles)),
                                                                     static_cast<std::int64_t>(places)));
  cost.tasks = static_cast<std::int64_t>(whole * parts);
  cost.waves = static_cast<double>(cost.tasks) / places;
  const Task tile = s.lanes == Lanes::fragments ? fragments_tile(p, s, z, c) : positions_tile(s, z, c);
  // Of one multiprocessor, with its share of all tiles.
  const double tiles = whole * z.key_tiles / sms;
  const double bytes =
      z.kv_heads * z.keys * (z.d_score + z.d_value) * z.operand_bytes * std::min(shape.visible * 2, 1.0) +
      2 * z.heads * z.rows * z.d_value * z.operand_bytes;
  const double hbm = bytes / (c.at("read_gbs") * 1e9) * cost.clock_hz;
  cost.units = {
      {"matrix unit", tile.matrix * tiles},        {"exp", tile.exp * tiles}, {"issue slots", tile.issue * tiles},
      {"shared-memory port", tile.shared * tiles}, {"L2", tile.l2 * tiles},   {"HBM", hbm}};
  // Between the busiest unit alone (all overlap) and their sum (none does).
  const double overlap = c.at("overlap");
  double together = 0;
  for (const UnitCost& u : cost.units) together += std::pow(u.cycles, overlap);
  together = std::pow(together, 1 / overlap);
  const double waits = (c.at("tile_cycles") + (s.stages <= 1 ? c.at("copy_cycles") : 0)) / cost.resident * tiles;
  cost.prologue = cost.waves * c.at("task_cycles");
  const double uneven = shape.visible < 0.999 ? 1 + c.at("uneven_tasks") / std::max(cost.waves, 0.35)
                                              : std::ceil(cost.waves - 1e-9) / cost.waves;
  cost.cycles = (together + waits + cost.prologue) * std::max(uneven, 1.0) + (parts > 1 ? c.at("part_cycles") : 0);
  return cost;
}

}  // namespace v1
}  // namespace attile
