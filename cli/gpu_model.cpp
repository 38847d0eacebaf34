#include "cli/gpu_model.h"

#include <algorithm>
#include <optional>

#include "cli/work.h"
#include "dsl/derive.h"
#include "runtime/cuda_parts.h"
#include "runtime/launch.h"

namespace attile::cli {
namespace {

CallSizes sizes_of(const CallData& data) {
  const AttentionCall& call = data.call();
  CallSizes sizes;
  sizes.sequences = data.sequences();
  sizes.heads = call.q.shape[1], sizes.kv_heads = call.k.shape[1];
  sizes.rows = call.q.shape[2], sizes.positions = sizes.keys = call.k.shape[2];
  return sizes;
}

std::int64_t tasks_of(const EmittedKernel& kernel, const Program& program, const Algorithm& a, CallSizes sizes) {
  const auto any = [](std::string_view) { return 0; };
  const LaunchPlan plan(kernel, a, program.problem, any, any);
  sizes.row_tiles = plan.row_tiles(sizes);
  return plan.task_count(sizes);
}

// Adds up what the row tiles of one (sequence, head) move.
class TileWalk {
 public:
  TileWalk(const AttentionCall& call, const Program& program) : call_(call), s_(program.schedule) {
    group_ = s_.pack_group ? std::max<std::int64_t>(program.problem.group, 1) : 1;
    tile_rows_ = program.kernels.front().tile_rows;
    by_rows_ = s_.lanes == Lanes::fragments;
  }

  void sequence(const SequenceSizes& sizes) {
    const std::int64_t rows = sizes.rows * group_, step = by_rows_ ? tile_rows_ : 1;
    for (std::int64_t first = 0; first < rows; first += step) tile(sizes, first, std::min(first + step, rows));
  }

  double row_bytes = 0, key_bytes = 0, pair_bytes = 0, tile_flops = 0;

 private:
  static double width(const TensorRef& t) {
    return static_cast<double>(t.shape[3]) * static_cast<double>(size_of(t.dtype));
  }
  void tile(const SequenceSizes& sizes, std::int64_t first, std::int64_t end) {
    const KeyRange top = visible_keys(call_, sizes, first / group_),
                   bottom = visible_keys(call_, sizes, (end - 1) / group_);
    const std::int64_t from = std::min(top.from, bottom.from), to = std::max(top.to, bottom.to), keys = s_.tile_keys;
    row_bytes += static_cast<double>(end - first) * width(call_.q);
    if (to <= from) return;
    const std::int64_t tiles = (to + keys - 1) / keys - from / keys;
    const auto seen = static_cast<double>(std::min((from / keys + tiles) * keys, sizes.keys) - from / keys * keys);
    key_bytes += seen * (width(call_.k) + width(call_.v));
    for (const auto& t : {call_.bias, call_.mask})
      if (t) pair_bytes += seen * static_cast<double>(end - first) * static_cast<double>(size_of(t->dtype));
    tile_flops += 2 * static_cast<double>((by_rows_ ? tile_rows_ : 1) * tiles * keys) *
                  static_cast<double>(call_.q.shape[3] + call_.v.shape[3]);
  }

  const AttentionCall& call_;
  const Schedule& s_;
  std::int64_t group_ = 1, tile_rows_ = 1;
  bool by_rows_ = true;
};

double partial_bytes(const AttentionCall& call, const SequenceSizes& s, std::int64_t parts) {
  if (parts == 1) return 0;
  return static_cast<double>(parts * s.rows * call.q.shape[1] * (call.v.shape[3] + 2) * 4);
}

}  // namespace

std::vector<std::int64_t> task_counts(const Program& program, const CallData& data, std::int64_t parts) {
  CallSizes sizes = sizes_of(data);
  sizes.parts = parts;
  std::optional<SplitAlgorithm> halves;
  if (program.schedule.splits != 1) halves = split(program.algorithm);
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    const Algorithm& a = !halves ? program.algorithm : i == 0 ? halves->partial : halves->merge;
    counts.push_back(tasks_of(program.kernels[i], program, a, sizes));
  }
  return counts;
}

std::int64_t parts_of(const Program& program, const CallData& data, std::int64_t places) {
  if (program.schedule.splits > 0) return program.schedule.splits;
  const std::int64_t tiles = (sizes_of(data).positions + program.schedule.tile_keys - 1) / program.schedule.tile_keys;
  return cuda_parts(task_counts(program, data, 1).front(), tiles, std::max<std::int64_t>(places, 1));
}

GpuTraffic gpu_traffic(const Program& program, const CallData& data, std::int64_t parts) {
  const AttentionCall& call = data.call();
  const Work once = work_of(call, data.sequences());
  GpuTraffic out;
  out.visible_flops = once.flops;
  out.hbm_written = bytes_of(call.o) + (call.lse ? bytes_of(*call.lse) : 0);
  out.hbm_read = once.bytes - out.hbm_written;
  TileWalk walk(call, program);
  const auto heads = static_cast<double>(program.kernels.front().group_in_rows ? call.k.shape[1] : call.q.shape[1]);
  for (const SequenceSizes& s : sequences_of(call, data.sequences())) {
    walk.sequence(s);
    out.partial += partial_bytes(call, s, parts);
  }
  out.tile_flops = heads * walk.tile_flops;
  out.l2_read = heads * (walk.row_bytes * static_cast<double>(parts) + walk.key_bytes + walk.pair_bytes) + out.partial;
  out.l2_written = out.hbm_written + out.partial;
  return out;
}

}  // namespace attile::cli
