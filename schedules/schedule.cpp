#include "schedules/schedule.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace attile {
inline namespace v1 {

std::string_view to_string(Lanes lanes) {
  return lanes == Lanes::rows ? "rows" : lanes == Lanes::positions ? "positions" : "fragments";
}
std::string_view to_string(Partition partition) { return partition == Partition::rows ? "rows" : "positions"; }
std::string_view to_string(Order order) { return order == Order::queries_outer ? "queries_outer" : "keys_outer"; }

std::string to_string(const Schedule& s) {
  std::string out = fmt::format("tile {}x{} lanes {}", s.tile_rows, s.tile_keys, to_string(s.lanes));
  out += fmt::format(" panel {} block {} {} splits {}", s.panel_vectors, s.block, to_string(s.order), s.splits);
  if (s.bf16_dot) out += " bf16_dot";
  if (s.pack_group) out += " pack_group";
  if (s.pack_ahead) out += " pack_ahead";
  if (s.longest_first) out += " longest_first";
  const Schedule initial;
  const auto differs = [&](auto Schedule::*member) { return s.*member != initial.*member; };
  if (s.lanes == Lanes::fragments || differs(&Schedule::warps)) out += fmt::format(" warps {}", s.warps);
  if (s.lanes == Lanes::fragments || differs(&Schedule::stages)) out += fmt::format(" stages {}", s.stages);
  if (differs(&Schedule::partition)) out += fmt::format(" partition {}", to_string(s.partition));
  if (differs(&Schedule::column_warps)) out += fmt::format(" column_warps {}", s.column_warps);
  if (s.rows_in_registers) out += " rows_in_registers";
  if (!s.fold_scale) out += " no fold_scale";
  if (s.lazy_rescale) out += " lazy_rescale";
  if (s.late_copies) out += " late_copies";
  if (differs(&Schedule::blocks_per_sm)) out += fmt::format(" blocks_per_sm {}", s.blocks_per_sm);
  return out;
}

static std::uint64_t hash_text(const std::string& text) { return XXH3_64bits(text.data(), text.size()); }
std::uint64_t hash_of(const Schedule& s) { return hash_text(to_string(s)); }
std::uint64_t hash_of(const Problem& p) { return hash_text(to_string(p)); }
std::uint64_t hash_of(const Target& t) { return hash_text(to_string(t)); }

}  // namespace v1
}  // namespace attile
