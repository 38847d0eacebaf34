// The measuring behind `attile bench`, and its rows as text, JSON and CSV.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/attention_flags.h"
#include "cli/call_data.h"
#include "cli/output_file.h"
#include "cli/peaks.h"
#include "cli/runner.h"
#include "cli/work.h"

namespace attile::cli {

struct BenchCase {
  AttentionFlags flags;
  int threads = 0;  // 0: every core
  Device device;
  std::optional<Tuning> tuning;  // with --tuned: the shipped schedule, or what tuning found
};

struct BenchRow {
  BenchCase asked;
  std::string problem, variant, schedule, arithmetic;
  std::int64_t sequences = 1, heads = 0, kv_heads = 0, seqlen_q = 0, seqlen_k = 0, head_dim = 0, value_dim = 0;
  int threads = 0;
  int buffers = 1;  // copies of the tensors taken in turn, so that no cache keeps them between runs
  double jit_ms = 0;
  Work work;
  Times times;   // of one call, one entry a round
  Times limits;  // GFLOP/s that the arithmetic of the schedule could reach, one entry a round
  double read_gbs = 0;
  double limit_share() const;  // median over the rounds
  bool on_gpu() const { return asked.device.kind == Device::Kind::cuda; }
};

std::vector<BenchRow> run_bench(const std::vector<BenchCase>& cases, const std::optional<Schedule>& schedule,
                                int rounds);

std::string bench_table(const std::vector<BenchRow>& rows);
std::string bench_json(const std::vector<BenchRow>& rows);
std::string bench_csv(const std::vector<BenchRow>& rows);

}  // namespace attile::cli
