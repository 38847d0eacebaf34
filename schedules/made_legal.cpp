#include <algorithm>
#include <bit>

#include "schedules/cuda_footprint.h"
#include "schedules/footprint.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

int round_down(int value, std::int64_t step) {
  return std::max<int>(1, static_cast<int>(value / step)) * static_cast<int>(step);
}

// Choices that this algorithm, problem or target does not offer.
void drop_unavailable(const Algorithm& a, const Problem& p, Schedule& s, const Target& t) {
  const std::vector<Operand> operands = product_operands(a);
  if (std::any_of(operands.begin(), operands.end(), [](const Operand& o) { return o.own_rows; })) {
    s.lanes = Lanes::positions;
    s.tile_rows = 1;
  }
  const auto is_bf16 = [&](const Operand& o) {
    const auto type = p.dtypes.find(o.tensor);
    return type != p.dtypes.end() && type->second == DType::bfloat16;
  };
  s.bf16_dot = s.bf16_dot && t.bf16_dot && t.vector_bytes == 64 && !operands.empty() &&
               std::all_of(operands.begin(), operands.end(), is_bf16);
  s.pack_group = s.pack_group && p.group > 1;
  s.pack_ahead = s.pack_ahead && s.lanes == Lanes::rows && s.order == Order::queries_outer && s.splits == 1;
  const auto per_position = [](const OutputDecl& o) { return o.per_position; };
  if (selection_count(a) > 0 || std::any_of(a.outputs.begin(), a.outputs.end(), per_position)) s.splits = 1;
  if (s.lanes == Lanes::positions || s.splits != 1) s.order = Order::queries_outer;
}

void fit_registers(Schedule& s, const Target& t) {
  s.block = std::clamp(static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(s.block, 2)))), 2, 16);
  s.panel_vectors = std::clamp(s.panel_vectors, 1, 16);
  s.splits = std::clamp(s.splits, 1, 1024);
  if (s.lanes == Lanes::positions) return;
  while (product_registers(s) > t.vector_registers && s.block > 4) s.block /= 2;
  while (product_registers(s) > t.vector_registers && s.panel_vectors > 1) --s.panel_vectors;
  while (product_registers(s) > t.vector_registers && s.block > 2) s.block /= 2;
}

void fit_tiles(Schedule& s, const Target& t) {
  if (s.lanes == Lanes::positions)
    s.tile_rows = std::clamp(s.tile_rows, 1, 16);
  else
    s.tile_rows = round_down(std::clamp(s.tile_rows, 1, 4096), panel_rows(s, t));
  s.tile_keys = round_down(std::clamp(s.tile_keys, 1, 4096), s.block);
}

// Halves whichever tile is larger until all fits in the scratch of a worker; long before a tile is down to one
// block it fits.
void fit_scratch(const Algorithm& a, const Problem& p, Schedule& s, const Target& t) {
  const int least_rows = s.lanes == Lanes::rows ? static_cast<int>(panel_rows(s, t)) : 1;
  while (footprint(a, p, s, t).total() > scratch_limit) {
    const bool rows_left = s.tile_rows > least_rows, keys_left = s.tile_keys > s.block;
    if (!rows_left && !keys_left) return;
    if (keys_left && (s.tile_keys >= s.tile_rows || !rows_left))
      s.tile_keys = round_down(s.tile_keys / 2, s.block);
    else
      s.tile_rows = round_down(s.tile_rows / 2, least_rows);
  }
}

}  // namespace

Schedule made_legal(const Algorithm& a, const Problem& p, Schedule s, const Target& t) {
  if (t.family == TargetFamily::cuda) return cuda_made_legal(a, p, s, t);
  if (s.lanes == Lanes::fragments) s.lanes = Lanes::rows;
  drop_unavailable(a, p, s, t);
  fit_registers(s, t);
  fit_tiles(s, t);
  fit_scratch(a, p, s, t);
  if (legality(a, p, s, t).empty()) return s;
  // The smallest panel there is.
  s.panel_vectors = 1;
  s.block = 2;
  fit_tiles(s, t);
  fit_scratch(a, p, s, t);
  return s;
}

}  // namespace v1
}  // namespace attile
