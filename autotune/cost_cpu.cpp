// The model of CPU kernels: a core's multiply-add (or dot) units with the loads that feed them, the exponential, what
// is done once a score, packing, the caches.
#include <algorithm>
#include <cmath>

#include "autotune/cost_model.h"
#include "runtime/host_cpu.h"
#include "runtime/parallel_for.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr double units_of_a_core = 2, loads_a_cycle = 2,
                 chains = 8;  // multiply-adds under way that keep the units busy

struct Case {
  const Schedule& s;
  const CostSizes& z;
  const Constants& c;
  double lanes = 16;  // floats of a vector
  double threads = 1;
  double l1 = 0, l2 = 0;
  double clock = 0;  // cycles a second
  double dots = 1;   // speed of the dot instruction over multiply-adds
};

void add(Cost& cost, const char* unit, double cycles) { cost.units.push_back({unit, cycles}); }

// Bytes that a panel reads of a tile of K and V, from where they lie.
double cache_cycles(const Case& k, double tile_bytes, double times, double beside) {
  const double bytes = tile_bytes * times;
  if (tile_bytes + beside <= k.l1) return 0;
  return bytes / (tile_bytes + beside <= k.l2 ? k.c.at("l2_bytes_per_cycle") : k.c.at("l3_bytes_per_cycle"));
}

void rows_form(const Case& k, Cost& cost) {
  const Schedule& s = k.s;
  const CostSizes& z = k.z;
  const double panel = s.panel_vectors * k.lanes, vectors = z.heads * z.pairs / k.lanes, d = z.d_score + z.d_value;
  const double products = static_cast<double>(s.block) * s.panel_vectors;
  const double feeding =
      std::max({1.0, (s.panel_vectors + s.block) / loads_a_cycle / (products / units_of_a_core), chains / products});
  add(cost, "FMA", vectors * d / units_of_a_core / k.dots * feeding);
  add(cost, "exp", vectors * k.c.at("exp_cycles"));
  add(cost, "scores", vectors * k.c.at("score_cycles"));
  add(cost, "rescale",
      z.heads * z.row_tiles * (s.tile_rows / k.lanes) * z.key_tiles * z.d_value * k.c.at("rescale_cycles"));
  const double packed = s.pack_ahead ? z.kv_heads * z.keys : z.heads * z.row_tiles * z.key_tiles * s.tile_keys;
  add(cost, "packing", packed * d * k.c.at("pack_cycles"));
  const double panels = z.heads * z.row_tiles * std::ceil(s.tile_rows / panel) * z.key_tiles;
  add(cost, "tiles", panels * k.c.at("tile_cycles"));
  const double tile_bytes = s.tile_keys * d * (s.bf16_dot ? 2 : 4), scores = 2 * panel * s.tile_keys * 4,
               state = s.tile_rows * z.d_value * 4;
  add(cost, "caches",
      cache_cycles(k, tile_bytes, panels, scores) + cache_cycles(k, scores, panels, panel * z.d_score * 4) +
          cache_cycles(k, state, 2 * z.heads * z.row_tiles * z.key_tiles, tile_bytes));
}

void positions_form(const Case& k, Cost& cost) {
  const Schedule& s = k.s;
  const CostSizes& z = k.z;
  const double d = z.d_score + z.d_value, passes = z.heads * z.row_tiles, seen = z.key_tiles * s.tile_keys;
  const double rows = std::min<double>(s.tile_rows, z.rows);
  add(cost, "FMA",
      passes * seen * d / k.lanes * (0.5 + rows / units_of_a_core) * k.c.at("position_cycles") /
          (s.bf16_dot ? k.dots : 1));
  add(cost, "exp", passes * rows * seen / k.lanes * (k.c.at("exp_cycles") + k.c.at("score_cycles")));
  add(cost, "rescale", passes * rows * z.key_tiles * z.d_value / k.lanes * k.c.at("rescale_cycles"));
  add(cost, "tiles", passes * z.key_tiles * k.c.at("tile_cycles"));
  if (s.splits > 1) add(cost, "parts", passes * s.splits * k.c.at("part_cycles"));
}

}  // namespace

Cost predict_cpu(const Algorithm& a, const Problem& p, const CallShape& shape, const Schedule& s, const Target& t,
                 const Constants& c) {
  const CostSizes z = cost_sizes(a, p, shape, s);
  Case k{s, z, c};
  k.lanes = t.vector_bytes / 4.0;
  k.threads = worker_count();
  k.l1 = static_cast<double>(t.l1_bytes), k.l2 = static_cast<double>(t.l2_bytes);
  k.clock = c.at("fma_gflops") * 1e9 / (2 * units_of_a_core * k.lanes);
  k.dots = s.bf16_dot ? std::max(1.0, c.at("bf16_dot_gflops") / c.at("fma_gflops")) : 1;
  Cost cost;
  cost.clock_hz = k.clock;
  s.lanes == Lanes::positions ? positions_form(k, cost) : rows_form(k, cost);
  cost.tasks = static_cast<std::int64_t>(z.heads * z.row_tiles * std::max(s.splits, 1));
  cost.waves = static_cast<double>(cost.tasks) / k.threads;
  cost.prologue = static_cast<double>(cost.tasks) * c.at("task_cycles");
  double work = cost.prologue;
  for (const UnitCost& u : cost.units) work += u.cycles;
  // Masks make tasks unequal: the longest go first, and the last ones even it out.
  const double uneven =
      shape.visible < 0.999 ? 1 + 0.5 / std::max(cost.waves, 0.5) : std::ceil(cost.waves) / cost.waves;
  const double streams = s.lanes == Lanes::positions ? z.heads * z.row_tiles : z.kv_heads;
  const double bytes = streams * z.keys * shape.visible * (z.d_score + z.d_value) * z.operand_bytes;
  const double readers = std::min(k.threads, static_cast<double>(cost.tasks));
  const double memory = bytes / (std::min(c.at("read_gbs") * readers, c.at("memory_gbs")) * 1e9) * k.clock;
  add(cost, "memory", memory);
  const double share = work / k.threads * uneven;
  cost.cycles =
      s.lanes == Lanes::positions ? std::max(share, memory) + 0.3 * std::min(share, memory) : share + 0.3 * memory;
  return cost;
}

}  // namespace v1
}  // namespace attile
