#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "dsl/derive.h"
#include "schedules/cuda_footprint.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr int largest_head_dim = 1024, largest_fragment_dim = 576;
using Reasons = std::vector<std::string>;

struct Case {
  const Algorithm& a;
  const Problem& p;
  const Schedule& s;
  const Target& t;
  std::vector<Operand> operands = product_operands(a);
  DType type(const std::string& tensor) const {
    const auto found = p.dtypes.find(tensor);
    return found == p.dtypes.end() ? DType::float32 : found->second;
  }
  bool fragments() const { return s.lanes == Lanes::fragments; }
};

void check_head_dims(const Case& c, Reasons& reasons) {
  const int most = c.fragments() ? largest_fragment_dim : largest_head_dim;
  for (const Dim& d : compiled_dims(c.a)) {
    const auto found = c.p.extents.find(d.name);
    if (found == c.p.extents.end())
      reasons.push_back(fmt::format("the extent of {} is not given, so nothing can be laid out", d.name));
    else if (found->second < 1 || found->second > most)
      reasons.push_back(fmt::format("{} is {}, and with lanes: {} head dims go from 1 to {}", d.name, found->second,
                                    to_string(c.s.lanes), most));
  }
}

bool check_ranges(const Case& c, Reasons& reasons) {
  const std::size_t before = reasons.size();
  const auto range = [&](const char* name, int value, int most) {
    if (value < 1 || value > most) reasons.push_back(fmt::format("{} is {}, and it goes from 1 to {}", name, value, most));
  };
  range("tile_rows", c.s.tile_rows, 512);
  range("tile_keys", c.s.tile_keys, 512);
  if (c.s.splits < 0 || c.s.splits > 1024) reasons.push_back(fmt::format("splits is {}, and it goes from 1 to 1024, or is 0: as many as keep the device busy", c.s.splits));
  range("stages", c.s.stages, 4);
  range("blocks_per_sm", c.s.blocks_per_sm, 8);
  range("column_warps", c.s.column_warps, 8);
  if (c.s.warps != 1 && c.s.warps != 2 && c.s.warps != 4 && c.s.warps != 8)
    reasons.push_back(fmt::format("warps is {}, and it is 1, 2, 4 or 8", c.s.warps));
  return reasons.size() == before;
}

void check_cpu_fields(const Case& c, Reasons& reasons) {
  if (c.s.lanes == Lanes::rows) reasons.push_back(fmt::format("lanes: rows is for CPUs, and {} has fragments or positions", c.t.name));
  if (c.s.order != Order::queries_outer) reasons.push_back("order: keys_outer is for CPUs: it keeps the states of all rows in memory");
  if (c.s.bf16_dot) reasons.push_back("bf16_dot is an instruction of CPUs");
  if (c.s.pack_ahead) reasons.push_back("pack_ahead is for CPUs: a GPU reads K and V as they lie");
}

void check_splits(const Case& c, Reasons& reasons) {
  if (const std::string fault = c.s.splits != 1 ? split_fault(c.a) : ""; !fault.empty())
    reasons.push_back(fmt::format("splits is {}, and {}", c.s.splits, fault));
  if (c.s.pack_group && c.p.group <= 1)
    reasons.push_back("pack_group puts several query heads of one kv head into a row tile, and the group is 1");
}

void check_positions_form(const Case& c, Reasons& reasons) {
  if (c.s.column_warps != 1) reasons.push_back("column_warps are for lanes: fragments; with lanes: positions a warp has a row of its own");
  if (c.s.tile_rows != c.s.warps)
    reasons.push_back(fmt::format("tile_rows {} with lanes: positions is the number of warps, {}", c.s.tile_rows, c.s.warps));
  if (c.s.tile_keys % 32 != 0) reasons.push_back(fmt::format("tile_keys {} is no multiple of the 32 lanes of a warp", c.s.tile_keys));
  if (c.s.tile_keys > 128) reasons.push_back(fmt::format("tile_keys {} with lanes: positions is at most 128", c.s.tile_keys));
}

void check_operands(const Case& c, Reasons& reasons) {
  for (const Operand& o : c.operands) {
    if (o.own_rows)
      reasons.push_back(fmt::format("'{}' has rows of its own at every position, which needs lanes: positions", o.tensor));
    if (!o.streamed && std::any_of(c.operands.begin(), c.operands.end(), [&](const Operand& other) {
          return other.streamed && other.feature == o.feature && c.type(other.tensor) != c.type(o.tensor);
        }))
      reasons.push_back(fmt::format("'{}' is {} and what it is multiplied with is not: a matrix instruction takes one type", o.tensor,
                                    to_string(c.type(o.tensor))));
  }
  if (c.operands.empty()) reasons.push_back(fmt::format("lanes: fragments is for products, and '{}' has none", c.a.name));
  if (selection_count(c.a) > 0) reasons.push_back("a selection keeps its slots with lanes: positions only");
}

// A weight of a 16-bit sum beyond the type's range would become infinite.
void check_weights(const Case& c, Reasons& reasons) {
  if (c.a.rule()) return;
  for (const StateDecl& s : c.a.states) {
    if (s.kind != StateKind::sum || s.update->op != Op::dot || s.update->args[0]->op == Op::sigmoid) continue;
    for (const Operand& o : c.operands)
      if (o.streamed && depends_on_tensor(s.update->args[1], o.tensor) && c.type(o.tensor) == DType::float16)
        reasons.push_back(fmt::format("the weights of '{}' have no bound, and float16 ends at 65504", s.name));
  }
}

// The answer takes a millisecond and depends on the algorithm alone; a space asks it for every schedule.
bool may_lag(const Algorithm& a) {
  thread_local std::unordered_map<std::uint64_t, bool> answers;
  const std::uint64_t key = hash_of(a);
  if (const auto found = answers.find(key); found != answers.end()) return found->second;
  if (answers.size() > 1000) answers.clear();
  return answers[key] = takes_lagging_reference(a, lag_of_reference, 256);
}

void check_lag(const Case& c, Reasons& reasons) {
  if (c.s.lazy_rescale && !may_lag(c.a))
    reasons.push_back(fmt::format("lazy_rescale lets the reference lag behind the maximum, and '{}' has an output that shows it, or no rule", c.a.name));
}

void check_fragments(const Case& c, Reasons& reasons) {
  const int rows = least_rows(c.s), positions = least_keys(c.s);
  if (c.s.tile_rows % rows != 0)
    reasons.push_back(fmt::format("tile_rows {} is no multiple of {}, the rows of {} matrix instructions", c.s.tile_rows, rows, rows / 16));
  if (c.s.tile_keys % positions != 0)
    reasons.push_back(fmt::format("tile_keys {} is no multiple of {}, the keys of {} matrix instructions", c.s.tile_keys, positions, positions / 16));
  const CudaFootprint f = cuda_footprint(c.a, c.p, c.s);
  if (f.shared() + walk_bytes > c.t.shared_bytes)
    reasons.push_back(fmt::format("a task takes {} KiB of shared memory (row operands {}, stream operands {} in {} stages), and {} has {} KiB",
                                  (f.shared() + 1023) >> 10, (f.row_operands + 1023) >> 10, (f.stream_operands + 1023) >> 10, c.s.stages, c.t.name,
                                  c.t.shared_bytes >> 10));
  if (f.registers + other_registers > register_limit(c.s))
    reasons.push_back(fmt::format("a thread needs about {} registers ({} for tiles), and {} warps with blocks_per_sm {} leave {}",
                                  f.registers + other_registers, f.registers, c.s.warps, c.s.blocks_per_sm, register_limit(c.s)));
}

}  // namespace

std::vector<std::string> column_faults(const Algorithm& a, const Problem& p, const Schedule& s) {
  Reasons reasons;
  if (s.warps % s.column_warps != 0) reasons.push_back(fmt::format("column_warps {} does not divide the {} warps", s.column_warps, s.warps));
  if (s.partition != Partition::rows) reasons.push_back("column_warps have the same rows, and with partition: positions all warps have");
  int sums = 0;
  for (const StateDecl& state : a.states) {
    const std::int64_t columns = sum_columns(a, p, state);
    if (columns == 0) continue;
    ++sums;
    if (columns % (16 * s.column_warps) != 0)
      reasons.push_back(fmt::format("column_warps {} share the {} columns of '{}', which are no multiple of {}", s.column_warps, columns, state.name,
                                    16 * s.column_warps));
  }
  for (const OutputDecl& o : a.outputs)
    for (const Dim& d : o.value->dims)
      if (const auto found = p.extents.find(d.name); !o.per_position && found != p.extents.end() && found->second % (16 * s.column_warps) != 0)
        reasons.push_back(fmt::format("column_warps {} share the {} columns of output '{}', which are no multiple of {}", s.column_warps, found->second,
                                      o.name, 16 * s.column_warps));
  if (sums != 1) reasons.push_back(fmt::format("column_warps share the columns of one sum, and '{}' has {}", a.name, sums));
  return reasons;
}

std::vector<std::string> cuda_legality(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) {
  const Case c{a, p, s, t};
  Reasons reasons;
  check_head_dims(c, reasons);
  const bool in_range = check_ranges(c, reasons);
  check_cpu_fields(c, reasons);
  check_splits(c, reasons);
  if (!c.fragments()) {
    check_positions_form(c, reasons);
    return reasons;
  }
  check_operands(c, reasons);
  check_weights(c, reasons);
  check_lag(c, reasons);
  if (!in_range) return reasons;
  if (s.column_warps > 1)
    for (std::string& fault : column_faults(a, p, s)) reasons.push_back(std::move(fault));
  check_fragments(c, reasons);
  return reasons;
}

}  // namespace v1
}  // namespace attile
