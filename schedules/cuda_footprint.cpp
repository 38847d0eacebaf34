#include "schedules/cuda_footprint.h"

#include <algorithm>

namespace attile {
inline namespace v1 {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

std::int64_t extent(const Problem& p, const Dim& d) {
  const auto found = p.extents.find(d.name);
  return found == p.extents.end() ? 1 : found->second;
}
DType type_of(const Problem& p, const std::string& tensor) {
  const auto found = p.dtypes.find(tensor);
  return found == p.dtypes.end() ? DType::float32 : found->second;
}

}  // namespace

std::int64_t shared_columns(std::int64_t columns) { return round_up(columns, 8); }
std::int64_t shared_pitch(std::int64_t columns, DType type) {
  return shared_columns(columns) * static_cast<std::int64_t>(size_of(type));
}

std::int64_t warp_rows(const Schedule& s) { return s.partition == Partition::rows ? s.tile_rows * s.column_warps / s.warps : s.tile_rows; }
std::int64_t warp_positions(const Schedule& s) {
  return s.tile_keys / (s.partition == Partition::rows ? s.column_warps : s.warps);
}
int least_rows(const Schedule& s) { return s.partition == Partition::rows ? 16 * s.warps / s.column_warps : 16; }
int least_keys(const Schedule& s) { return 16 * (s.partition == Partition::rows ? s.column_warps : s.warps); }

std::int64_t sum_columns(const Algorithm& a, const Problem& p, const StateDecl& s) {
  if (s.kind != StateKind::sum) return 0;
  for (const Dim& d : s.update->dims)
    if (!is_batch_like(d) && d != a.parallel && d != a.streamed) return extent(p, d);
  return 0;
}

std::int64_t register_limit(const Schedule& s) {
  const std::int64_t share = 65536 / (std::int64_t{32} * s.warps * std::max(s.blocks_per_sm, 1));
  return std::min<std::int64_t>(255, share / 8 * 8);
}

CudaFootprint cuda_footprint(const Algorithm& a, const Problem& p, const Schedule& s) {
  CudaFootprint out;
  const std::int64_t rows = warp_rows(s), positions = warp_positions(s);
  std::int64_t scores = 0, columns = 0;
  for (const Operand& o : product_operands(a)) {
    const std::int64_t pitch = shared_pitch(extent(p, o.feature), type_of(p, o.tensor));
    if (o.streamed) {
      out.stream_operands += pitch * s.tile_keys * s.stages;
      if (s.column_warps > 1) out.weights = std::max(out.weights, s.tile_rows * shared_pitch(s.tile_keys, type_of(p, o.tensor)));
      continue;
    }
    ++scores;
    out.row_operands += pitch * s.tile_rows;
    const std::int64_t units = pitch / 16;
    if (s.rows_in_registers) out.registers += rows / 16 * 4 * ((units + 1) / 2);
  }
  for (const StateDecl& state : a.states) columns += round_up(sum_columns(a, p, state), 8);
  out.registers += rows * positions / 32 * std::max<std::int64_t>(scores, 1);  // weights take the place of scores
  out.registers += rows * (columns / s.column_warps) / 32;
  if (s.column_warps > 1) out.maxima = 4 * rows * s.warps;
  const auto operands = product_operands(a);
  const bool parts = !p.tf32 && std::any_of(operands.begin(), operands.end(), [&](const Operand& o) { return type_of(p, o.tensor) == DType::float32; });
  if (parts) out.registers += 8 + rows;  // high and low parts of what a step multiplies
  for (const OutputDecl& o : a.outputs)
    for (const Dim& d : o.value->dims)
      if (!is_batch_like(d) && d != a.parallel && d != a.streamed && d != slot)
        out.results = std::max(out.results, s.tile_rows * shared_pitch(extent(p, d), DType::bfloat16));
  if (s.partition == Partition::positions) out.join = 4 * s.tile_rows * s.warps * (std::max<std::int64_t>(columns, 1) + 4);
  return out;
}

}  // namespace v1
}  // namespace attile
