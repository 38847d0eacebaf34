// Sizes that follow from a schedule: legality checks with them and codegen lays out with them.
#pragma once

#include <cstdint>

#include "schedules/schedule.h"

namespace attile {
inline namespace v1 {

// Rows that one register panel holds (lanes: rows), or the whole row tile (lanes: positions).
ATTILE_API std::int64_t panel_rows(const Schedule& s, const Target& t);

// Vector registers that the inner loop of a product holds (lanes: rows): a block of accumulators, one panel of
// the row operand, one broadcast.
ATTILE_API std::int64_t product_registers(const Schedule& s);

// Bytes of fast memory that one worker needs, by what they hold. An upper bound: element-wise tiles that fusion
// removes are counted. tests/codegen compares it with what is laid out.
struct Footprint {
  std::int64_t row_operands = 0;     // q, packed: tile_rows × D
  std::int64_t stream_operands = 0;  // k and v, packed: tile_keys × D each; nothing with lanes: positions
  std::int64_t stream_tiles = 0;     // scores and weights: panel_rows × tile_keys each
  std::int64_t states = 0;           // tile_rows × columns each
  std::int64_t total() const { return row_operands + stream_operands + stream_tiles + states; }
};
ATTILE_API Footprint footprint(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t);

// The most that one worker may need.
inline constexpr std::int64_t scratch_limit = 1 << 20;

}  // namespace v1
}  // namespace attile
