#include "schedules/footprint.h"

#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr std::int64_t float_bytes = 4;

std::int64_t extent(const Problem& p, const Dim& d) {
  const auto found = p.extents.find(d.name);
  return found == p.extents.end() ? 1 : found->second;
}

// Elements a row that a state holds.
std::int64_t columns(const Algorithm& a, const Problem& p, const StateDecl& s) {
  if (s.kind == StateKind::selection) return 2 * s.count;
  std::int64_t cols = 1;
  for (const Dim& d : s.update->dims)
    if (!is_batch_like(d) && d != a.parallel && d != a.streamed) cols *= extent(p, d);
  return cols;
}

}  // namespace

std::int64_t panel_rows(const Schedule& s, const Target& t) {
  if (s.lanes == Lanes::positions) return s.tile_rows;
  return std::int64_t{s.panel_vectors} * (t.vector_bytes / float_bytes);
}

std::int64_t product_registers(const Schedule& s) {
  return std::int64_t{s.block} * s.panel_vectors + s.panel_vectors + 1;
}

Footprint footprint(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) {
  Footprint out;
  const std::int64_t operand_bytes = s.bf16_dot ? 2 : float_bytes;
  std::int64_t tiles = 0;
  for (const Operand& o : product_operands(a)) {
    if (!o.streamed) {
      out.row_operands += s.tile_rows * extent(p, o.feature) * operand_bytes;
      ++tiles;  // the products of the rows with the stream
    } else if (s.lanes == Lanes::rows) {
      out.stream_operands += s.tile_keys * extent(p, o.feature) * operand_bytes;
    }
  }
  for (const StateDecl& state : a.states) out.states += s.tile_rows * columns(a, p, state) * float_bytes;
  tiles += static_cast<std::int64_t>(a.states.size());
  for (const OutputDecl& o : a.outputs) tiles += o.per_position;
  out.stream_tiles = tiles * panel_rows(s, t) * s.tile_keys * float_bytes;
  return out;
}

}  // namespace v1
}  // namespace attile
