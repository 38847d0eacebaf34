#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "schedules/cuda_footprint.h"
#include "schedules/footprint.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr int largest_tile = 4096, largest_block = 16, largest_row_tile_of_positions = 16, largest_split = 1024,
              largest_head_dim = 1024;

struct Case {
  const Algorithm& a;
  const Problem& p;
  const Schedule& s;
  const Target& t;
  std::vector<Operand> operands = product_operands(a);
};
using Reasons = std::vector<std::string>;

void check_head_dims(const Case& c, Reasons& reasons) {
  for (const Dim& d : compiled_dims(c.a)) {
    const auto found = c.p.extents.find(d.name);
    if (found == c.p.extents.end())
      reasons.push_back(fmt::format("the extent of {} is not given, so nothing can be laid out", d.name));
    else if (found->second < 1 || found->second > largest_head_dim)
      reasons.push_back(
          fmt::format("{} is {}, and head dims go from 1 to {}", d.name, found->second, largest_head_dim));
  }
}

// False where the sizes are so far off that nothing can be computed with them.
bool check_ranges(const Case& c, Reasons& reasons) {
  const std::size_t before = reasons.size();
  const auto range = [&](const char* name, int value, int most) {
    if (value < 1 || value > most)
      reasons.push_back(fmt::format("{} is {}, and it goes from 1 to {}", name, value, most));
  };
  range("tile_rows", c.s.tile_rows, largest_tile);
  range("tile_keys", c.s.tile_keys, largest_tile);
  range("panel_vectors", c.s.panel_vectors, 16);
  range("splits", c.s.splits, largest_split);
  if (c.s.block < 2 || c.s.block > largest_block || !std::has_single_bit(static_cast<unsigned>(c.s.block)))
    reasons.push_back(fmt::format("block is {}, and it is 2, 4, 8 or {}", c.s.block, largest_block));
  return reasons.size() == before;
}

void check_tiles(const Case& c, Reasons& reasons) {
  const Schedule& s = c.s;
  if (s.tile_keys % s.block != 0)
    reasons.push_back(fmt::format("tile_keys {} is no multiple of the block of {} keys", s.tile_keys, s.block));
  if (s.tile_keys % 2 != 0)
    reasons.push_back(fmt::format("tile_keys {} is odd, and keys are laid out in pairs", s.tile_keys));
  if (s.lanes == Lanes::positions) {
    if (s.tile_rows > largest_row_tile_of_positions)
      reasons.push_back(fmt::format("tile_rows {} is more than the {} rows that lanes of positions take at once",
                                    s.tile_rows, largest_row_tile_of_positions));
    return;
  }
  if (s.tile_rows % panel_rows(s, c.t) != 0)
    reasons.push_back(fmt::format("tile_rows {} is no multiple of the {} rows of a panel ({} vectors of {} bytes)",
                                  s.tile_rows, panel_rows(s, c.t), s.panel_vectors, c.t.vector_bytes));
  if (product_registers(s) > c.t.vector_registers)
    reasons.push_back(
        fmt::format("block {} by panel_vectors {} takes {} vector registers ({} accumulators, {} of the panel and "
                    "1 broadcast), and {} has {}",
                    s.block, s.panel_vectors, product_registers(s), s.block * s.panel_vectors, s.panel_vectors,
                    c.t.name, c.t.vector_registers));
}

void check_bf16_dot(const Case& c, Reasons& reasons) {
  if (!c.s.bf16_dot) return;
  if (!c.t.bf16_dot || c.t.vector_bytes != 64)
    reasons.push_back(fmt::format("bf16_dot needs AVX512_BF16 on vectors of 64 bytes, which {} has not", c.t.name));
  if (c.operands.empty()) reasons.push_back(fmt::format("bf16_dot is for products, and '{}' has none", c.a.name));
  for (const Operand& o : c.operands) {
    const auto type = c.p.dtypes.find(o.tensor);
    if (type != c.p.dtypes.end() && type->second != DType::bfloat16)
      reasons.push_back(
          fmt::format("bf16_dot needs bfloat16 operands, and '{}' is {}", o.tensor, to_string(type->second)));
  }
}

void check_lanes(const Case& c, Reasons& reasons) {
  if (c.s.lanes == Lanes::fragments)
    reasons.push_back(fmt::format("lanes: fragments is for GPUs, and {} has rows or positions", c.t.name));
  for (const Operand& o : c.operands)
    if (o.own_rows && (c.s.lanes != Lanes::positions || c.s.tile_rows != 1))
      reasons.push_back(fmt::format(
          "'{}' has rows of its own at every position, which needs lanes: positions and tile_rows 1", o.tensor));
  for (const StateDecl& state : c.a.states)
    if (!state.payload.empty())
      reasons.push_back(
          fmt::format("'{}' selects among the selections of parts, for which no schedule is built yet", state.name));
}

void check_order_and_splits(const Case& c, Reasons& reasons) {
  const auto per_position = [](const OutputDecl& o) { return o.per_position; };
  if (c.s.pack_ahead && (c.s.lanes != Lanes::rows || c.s.order != Order::queries_outer || c.s.splits != 1))
    reasons.push_back("pack_ahead packs for lanes: rows with order: queries_outer and splits: 1 only");
  if (c.s.pack_group && c.p.group <= 1)
    reasons.push_back("pack_group puts several query heads of one kv head into a row tile, and the group is 1");
  if (c.s.splits > 1 && std::any_of(c.a.outputs.begin(), c.a.outputs.end(), per_position))
    reasons.push_back(fmt::format("splits is {}, and an output written at every position has no merge", c.s.splits));
  if (c.s.splits > 1 && selection_count(c.a) > 0)
    reasons.push_back(
        fmt::format("splits is {}, and for the merge of a selection no schedule is built yet", c.s.splits));
  if (c.s.order != Order::keys_outer) return;
  if (c.s.lanes != Lanes::rows) reasons.push_back("order: keys_outer needs lanes: rows");
  if (c.s.splits != 1)
    reasons.push_back(fmt::format("order: keys_outer streams all keys itself, and splits is {}", c.s.splits));
}

void check_scratch(const Case& c, Reasons& reasons) {
  const Footprint f = footprint(c.a, c.p, c.s, c.t);
  if (f.total() > scratch_limit)
    reasons.push_back(
        fmt::format("the tiles of a worker take {} KiB (row operands {}, stream operands {}, scores and weights {}, "
                    "states {}, results {}), and the limit is {} KiB",
                    f.total() >> 10, f.row_operands >> 10, f.stream_operands >> 10, f.stream_tiles >> 10,
                    f.states >> 10, f.results >> 10, scratch_limit >> 10));
}

}  // namespace

std::vector<std::string> legality(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) {
  if (t.family == TargetFamily::cuda) return cuda_legality(a, p, s, t);
  const Case c{a, p, s, t};
  Reasons reasons;
  check_head_dims(c, reasons);
  const bool in_range = check_ranges(c, reasons);
  check_bf16_dot(c, reasons);
  check_lanes(c, reasons);
  check_order_and_splits(c, reasons);
  if (in_range) {
    check_tiles(c, reasons);
    check_scratch(c, reasons);
  }
  return reasons;
}

}  // namespace v1
}  // namespace attile
