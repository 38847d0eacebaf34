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
  s.rows_in_registers = s.lazy_rescale = s.late_copies = false;
  return s;
}

// From the most to the least that a change costs nothing: room for other tasks, registers for q, stages, the tile.
bool shrunk(Schedule& s) {
  if (s.blocks_per_sm > 1) return --s.blocks_per_sm, true;
  if (s.rows_in_registers) return s.rows_in_registers = false, true;
  if (s.stages > 2) return --s.stages, true;
  const int least_rows = s.partition == Partition::rows ? 16 * s.warps : 16;
  const int least_keys = s.partition == Partition::rows ? 16 : 16 * s.warps;
  if (s.tile_rows > least_rows) return s.tile_rows = std::max(least_rows, s.tile_rows / 2 / least_rows * least_rows), true;
  if (s.tile_keys > 2 * least_keys) return s.tile_keys = std::max(least_keys, s.tile_keys / 2 / least_keys * least_keys), true;
  if (s.stages > 1) return s.stages = 1, true;
  if (s.tile_keys > least_keys) return s.tile_keys = least_keys, true;
  return false;
}

}  // namespace

Schedule cuda_made_legal(const Algorithm& a, const Problem& p, Schedule s, const Target& t) {
  drop_unavailable(a, p, s);
  s.splits = std::clamp(s.splits, 0, 1024);
  if (s.lanes == Lanes::fragments)
    do {
      if (legal(a, p, s, t)) return s;
    } while (shrunk(s));
  return positions_form(s);
}

}  // namespace v1
}  // namespace attile
