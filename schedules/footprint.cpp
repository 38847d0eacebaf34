#include "schedules/footprint.h"

#include "schedules/cuda_footprint.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr std::int64_t float_bytes = 4;

std::int64_t extent(const Problem& p, const Dim& d) {
  const auto found = p.extents.find(d.name);
  return found == p.extents.end() ? 1 : found->second;
}

// Elements a row that `e` has beside its positions.
std::int64_t columns(const Algorithm& a, const Problem& p, const Expr& e) {
  std::int64_t cols = 1;
  for (const Dim& d : e->dims)
    if (!is_batch_like(d) && d != a.parallel && d != a.streamed) cols *= d == slot ? selection_count(a) : extent(p, d);
  return cols;
}

std::int64_t columns(const Algorithm& a, const Problem& p, const StateDecl& s) {
  return s.kind == StateKind::selection ? 2 * s.count : columns(a, p, s.update);
}

// Elements a row of what stands between the states and the output: the result, and the rows that a dot over the
// slots of a selection gathers.
std::int64_t result_columns(const Algorithm& a, const Problem& p, const OutputDecl& o) {
  if (o.per_position || o.value->op == Op::variable) return 0;
  std::int64_t cols = columns(a, p, o.value);
  for (const Dim& d : gathered_dims(a, o.value)) cols += extent(p, d);
  return cols;
}

}  // namespace

std::int64_t panel_rows(const Schedule& s, const Target& t) {
  if (t.family == TargetFamily::cuda) return s.lanes == Lanes::positions ? 1 : warp_rows(s);
  if (s.lanes == Lanes::positions) return s.tile_rows;
  return std::int64_t{s.panel_vectors} * (t.vector_bytes / float_bytes);
}

std::int64_t product_registers(const Schedule& s) {
  return std::int64_t{s.block} * s.panel_vectors + s.panel_vectors + 1;
}

Footprint footprint(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) {
  Footprint out;
  std::int64_t tiles = 0;
  for (const Operand& o : product_operands(a)) {
    if (!o.streamed) {
      out.row_operands += s.tile_rows * (extent(p, o.feature) + 1) * float_bytes;
      ++tiles;  // the products of the rows with the stream
    } else if (s.lanes == Lanes::rows) {
      out.stream_operands += (s.tile_keys + s.block) * (extent(p, o.feature) + s.block) * float_bytes;
    }
  }
  for (const StateDecl& state : a.states) out.states += s.tile_rows * (columns(a, p, state) + 1) * float_bytes;
  tiles += static_cast<std::int64_t>(a.states.size());
  for (const OutputDecl& o : a.outputs) {
    tiles += o.per_position;
    out.results += panel_rows(s, t) * result_columns(a, p, o) * float_bytes;
  }
  out.stream_tiles = tiles * panel_rows(s, t) * s.tile_keys * float_bytes;
  if (s.lanes == Lanes::positions) {   // one row's products before their lanes are added up, and row sums by lane
    const std::int64_t width = t.vector_bytes / float_bytes;
    out.stream_tiles += (s.tile_keys + 2 * width) * t.vector_bytes;
    out.states += static_cast<std::int64_t>(a.states.size()) * (s.tile_rows + 8) * t.vector_bytes;
  }
  return out;
}

}  // namespace v1
}  // namespace attile
