#include <algorithm>

#include "dsl/derive.h"
#include "schedules/cuda_footprint.h"

namespace attile {
inline namespace v1 {
namespace {

void drop_unavailable(const Algorithm& a, const Problem& p, Schedule& s) {
  s.order = Order::queries_outer;
  s.bf16_dot = s.pack_ahead = false;
  s.pack_group = s.pack_group && p.group > 1;
  s.lazy_rescale = s.lazy_rescale && s.lanes == Lanes::fragments && takes_lagging_reference(a, lag_of_reference, 256);
  if (s.lanes == Lanes::rows) s.lanes = Lanes::fragments;
  s.warps = std::clamp(s.warps, 1, 8);
  s.column_warps = std::clamp(s.column_warps, 1, s.warps);
  if (s.column_warps > 1 && !column_faults(a, p, s).empty()) s.column_warps = 1;
  if (s.splits != 1 && !split_fault(a).empty()) s.splits = 1;
}

bool legal(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) { return cuda_legality(a, p, s, t).empty(); }

// A warp for each row takes every algorithm, type and head dim.
Schedule positions_form(Schedule s) {
  s.lanes = Lanes::positions;
  s.partition = Partition::rows;
  s.warps = s.tile_rows = 4;
  s.tile_keys = 32;
  s.stages = s.blocks_per_sm = 1;
  s.column_warps = 1;
  s.rows_in_registers = s.lazy_rescale = s.late_copies = false;
  return s;
}

// From the most to the least that a change costs nothing: room for other tasks, registers for q, stages, the tile.
bool shrunk(Schedule& s) {
  if (s.blocks_per_sm > 1) return --s.blocks_per_sm, true;
  if (s.rows_in_registers) return s.rows_in_registers = false, true;
  if (s.stages > 2) return --s.stages, true;
  const int rows = least_rows(s), keys = least_keys(s);
  if (s.tile_rows > rows) return s.tile_rows = std::max(rows, s.tile_rows / 2 / rows * rows), true;
  if (s.tile_keys > 2 * keys) return s.tile_keys = std::max(keys, s.tile_keys / 2 / keys * keys), true;
  if (s.stages > 1) return s.stages = 1, true;
  if (s.tile_keys > keys) return s.tile_keys = keys, true;
  if (s.column_warps > 1 && s.warps > s.column_warps) return s.warps /= 2, true;
  return false;
}

}  // namespace

Schedule cuda_made_legal(const Algorithm& a, const Problem& p, Schedule s, const Target& t) {
  drop_unavailable(a, p, s);
  s.splits = std::clamp(s.splits, 0, 1024);
  // Where one warp has no room for the columns of V, two or more may.
  for (; s.lanes == Lanes::fragments && s.column_warps <= s.warps; s.column_warps *= 2) {
    Schedule smaller = s;
    do {
      if (legal(a, p, smaller, t)) return smaller;
    } while (shrunk(smaller));
    if (s.partition == Partition::positions) break;
  }
  return positions_form(s);
}

}  // namespace v1
}  // namespace attile
