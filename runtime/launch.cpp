#include "runtime/launch.h"

#include <bit>
#include <utility>

#include "dsl/error.h"
#include "runtime/parallel_for.h"

namespace attile {
inline namespace v1 {
namespace {

std::int64_t CallSizes::*size_named(std::string_view name) {
  static constexpr std::pair<std::string_view, std::int64_t CallSizes::*> known[] = {
      {"sequences", &CallSizes::sequences}, {"heads", &CallSizes::heads},         {"kv_heads", &CallSizes::kv_heads},
      {"rows", &CallSizes::rows},           {"positions", &CallSizes::positions}, {"parts", &CallSizes::parts},
      {"keys", &CallSizes::keys},
      {"row_tiles", &CallSizes::row_tiles}, {"key_tiles", &CallSizes::key_tiles}};
  for (const auto& [known_name, size] : known)
    if (known_name == name) return size;
  internal_check(false, "unknown size " + std::string(name));
  return nullptr;
}

}  // namespace

bool is_aligned(const TensorRef& t, std::int64_t bytes) {
  std::int64_t all = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(t.data));
  for (int i = 0; i + 1 < t.rank; ++i)
    if (t.shape[static_cast<std::size_t>(i)] > 1) all |= t.strides[static_cast<std::size_t>(i)] * static_cast<std::int64_t>(size_of(t.dtype));
  return all % bytes == 0;
}

LaunchPlan::LaunchPlan(const EmittedKernel& k, const Algorithm& a, const Problem& p, const Lookup& tensor,
                       const Lookup& number)
    : tile_rows_(k.tile_rows),
      rows_per_query_(k.group_in_rows ? p.group : 1),
      scratch_bytes_(static_cast<std::size_t>(k.scratch_bytes)),
      packed_(a.lengths == Lengths::packed),
      group_in_rows_(k.group_in_rows),
      per_part_(k.per_part),
      per_key_tile_(k.per_key_tile),
      per_head_(k.per_head) {
  for (const Parameter& parameter : k.parameters) {
    Slot slot{parameter.kind, 0, static_cast<std::size_t>(parameter.dim)};
    const bool is_number = parameter.kind == Parameter::Kind::real || parameter.kind == Parameter::Kind::integer;
    if (parameter.kind == Parameter::Kind::size) {
      slot.size = size_named(parameter.name);
    } else {
      const int found = is_number ? number(parameter.name) : tensor(parameter.name);
      internal_check(found >= 0, "no argument for the parameter " + parameter.name);
      slot.number = static_cast<std::size_t>(found);
    }
    slots_.push_back(slot);
  }
}

std::int64_t LaunchPlan::row_tiles(const CallSizes& sizes) const {
  const std::int64_t rows = sizes.rows * rows_per_query_;
  if (packed_) return rows / tile_rows_ + sizes.sequences;
  return (rows + tile_rows_ - 1) / tile_rows_;
}

std::int64_t LaunchPlan::all_row_tiles(const CallSizes& sizes) const {
  const std::int64_t heads = group_in_rows_ ? sizes.kv_heads : sizes.heads;
  return row_tiles(sizes) * heads * (packed_ ? 1 : sizes.sequences);
}

std::int64_t LaunchPlan::task_count(const CallSizes& sizes) const {
  const std::int64_t heads = group_in_rows_ ? sizes.kv_heads : sizes.heads;
  const std::int64_t sequences = packed_ ? (sizes.sequences > 0 ? 1 : 0) : sizes.sequences;
  if (per_head_) return heads * sizes.sequences;
  if (per_key_tile_) return sizes.key_tiles * sizes.kv_heads * sequences;
  return sizes.row_tiles * heads * sequences * (per_part_ ? sizes.parts : 1);
}

std::uint64_t LaunchPlan::value_of(const Slot& slot, const CallSizes& sizes, std::span<const TensorRef* const> tensors,
                                   std::span<const Arguments::Number* const> numbers) const {
  switch (slot.kind) {
    case Parameter::Kind::data: return reinterpret_cast<std::uint64_t>(tensors[slot.number]->data);
    case Parameter::Kind::stride: {
      const TensorRef& t = *tensors[slot.number];
      return static_cast<std::uint64_t>(t.shape[slot.dim] == 1 ? 0 : t.strides[slot.dim]);
    }
    case Parameter::Kind::extent: return static_cast<std::uint64_t>(tensors[slot.number]->shape[slot.dim]);
    case Parameter::Kind::real: return std::bit_cast<std::uint32_t>(static_cast<float>(numbers[slot.number]->real));
    case Parameter::Kind::integer: return static_cast<std::uint64_t>(numbers[slot.number]->integer);
    case Parameter::Kind::size: return static_cast<std::uint64_t>(sizes.*slot.size);
    case Parameter::Kind::aligned: return is_aligned(*tensors[slot.number], static_cast<std::int64_t>(slot.dim));
  }
  return 0;
}

void LaunchPlan::fill(Block& block, const CallSizes& sizes, std::span<const TensorRef* const> tensors,
                      std::span<const Arguments::Number* const> numbers) const {
  block.reserve(slots_.size());
  for (const Slot& slot : slots_) block.push_back(value_of(slot, sizes, tensors, numbers));
}

void LaunchPlan::launch(Function* function, CallSizes sizes, std::span<const TensorRef* const> tensors,
                        std::span<const Arguments::Number* const> numbers) const {
  sizes.row_tiles = row_tiles(sizes);
  std::array<std::byte, 1024> memory;
  std::pmr::monotonic_buffer_resource pool(memory.data(), memory.size());
  Block block(&pool);
  fill(block, sizes, tensors, numbers);
  parallel_for(task_count(sizes),
               [&](std::int64_t task, int) { function(block.data(), task, worker_scratch(scratch_bytes_)); });
}

}  // namespace v1
}  // namespace attile
