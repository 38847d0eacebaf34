// Sizes that follow from a schedule: legality checks with them and codegen lays out with them.
#pragma once

#include <cstdint>

#include "schedules/schedule.h"

namespace attile {
inline namespace v1 {

// Rows that one register panel holds (lanes: rows), or the whole row tile (lanes: positions). On a GPU: rows of a warp.
ATTILE_API std::int64_t panel_rows(const Schedule& s, const Target& t);

// Vector registers that the inner loop of a product holds (lanes: rows): a block of accumulators, one panel of
// the row operand, one broadcast.
ATTILE_API std::int64_t product_registers(const Schedule& s);

// Bytes of fast memory that one worker needs, by what they hold, four an element. An upper bound but for row values
// and tables of a few KiB: tiles are counted with their padding, and element-wise tiles that fusion removes are
// counted too. A test of codegen compares it with what is laid out.
struct Footprint {
  std::int64_t row_operands = 0;     // q, packed: tile_rows × (D + 1)
  std::int64_t stream_operands = 0;  // k and v, packed in blocks: tile_keys × D each; none with lanes: positions
  std::int64_t stream_tiles = 0;     // scores and weights: panel_rows × tile_keys each
  std::int64_t states = 0;           // tile_rows × (columns + 1) each
  std::int64_t results = 0;          // outputs computed from states, and rows gathered for them: panel_rows × columns
  std::int64_t total() const { return row_operands + stream_operands + stream_tiles + states + results; }
};
ATTILE_API Footprint footprint(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t);

// The most that one worker may need.
inline constexpr std::int64_t scratch_limit = 1 << 20;

}  // namespace v1
}  // namespace attile
