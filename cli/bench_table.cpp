#include "cli/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/host_cpu.h"
#include "runtime/measure.h"
#include "runtime/parallel_for.h"

namespace attile::cli {
namespace {

using Json = nlohmann::ordered_json;

// Rows are measured together as long as their tensors fit in this.
constexpr double bytes_of_a_group = 1 << 30;
// Shorter runs are repeated within a sample.
constexpr double least_sample_seconds = 1e-3;

// A row with its tensors.
struct Subject {
  BenchRow row;
  std::vector<std::unique_ptr<CallData>> data;
  std::vector<Arguments> arguments;
  std::optional<Kernel> kernel;
  std::size_t calls_a_sample = 1, next = 0;

  void call() {
    kernel->run(arguments[next]);
    next = (next + 1) % arguments.size();
  }
};

// Few operations for each byte: memory decides, and tensors that stay in a cache would flatter.
bool memory_bound(const Work& work) { return work.flops < 40 * work.bytes; }

int buffers_of(const Work& work) {
  if (!memory_bound(work) || work.bytes <= 0) return 1;
  const double cache = std::max<double>(2.0 * static_cast<double>(host_cpu().l3_bytes), 64 << 20);
  return static_cast<int>(std::clamp(std::ceil(cache / work.bytes), 1.0, 256.0));
}

void describe(BenchRow& row, const CallData& data) {
  const auto &q = data.call().q.shape, &k = data.call().k.shape;
  row.problem = data.problem_text();
  row.variant = variant_text(row.asked.flags);
  row.sequences = data.sequences();
  row.heads = q[1], row.kv_heads = k[1], row.seqlen_q = q[2], row.seqlen_k = k[2], row.head_dim = q[3],
  row.value_dim = data.call().v.shape[3];
  row.work = work_of(data.call(), row.sequences);
  row.buffers = buffers_of(row.work);
}

Subject subject_of(const BenchCase& asked, const std::optional<Schedule>& schedule) {
  Subject s;
  s.row.asked = asked;
  set_worker_count(asked.threads);
  s.row.threads = worker_count();
  const DType dtype = parse_float_dtype(asked.flags.dtype, "--dtype");
  do {
    s.data.push_back(std::make_unique<CallData>(asked.flags, Contents::values, false, dtype));
    s.data.back()->call().schedule = schedule;
    s.arguments.push_back(attention_arguments(s.data.back()->call()));
    if (s.data.size() == 1) describe(s.row, *s.data.front());
  } while (static_cast<int>(s.data.size()) < s.row.buffers);
  s.row.jit_ms = 1e3 * seconds_of([&] { s.kernel = attention_kernel(s.data.front()->call()); });
  s.row.schedule = to_string(s.kernel->program().schedule);
  for (std::size_t i = 0; i < s.data.size(); ++i) s.call();  // every page touched
  const double once = std::min(seconds_of([&] { s.call(); }), seconds_of([&] { s.call(); }));
  s.calls_a_sample = static_cast<std::size_t>(std::clamp(least_sample_seconds / std::max(once, 1e-7), 1.0, 10000.0));
  return s;
}

double limit_now(const Schedule& schedule) {
  return schedule.bf16_dot ? measure_bf16_dot_gflops(0.005) : measure_fma_gflops(0.005);
}

void measure(std::vector<Subject>& group, int rounds) {
  for (Subject& s : group) {
    set_worker_count(s.row.asked.threads);
    s.row.read_gbs = measure_read_gbs();
  }
  for (int round = 0; round < rounds; ++round)
    for (Subject& s : group) {
      set_worker_count(s.row.asked.threads);
      s.row.limits.seconds.push_back(limit_now(s.kernel->program().schedule));
      const double seconds = seconds_of([&] {
        for (std::size_t i = 0; i < s.calls_a_sample; ++i) s.call();
      });
      s.row.times.seconds.push_back(std::max(seconds / static_cast<double>(s.calls_a_sample), 1e-9));
    }
}

std::string mask_text(const BenchRow& row) { return row.variant == "softmax" ? "-" : row.variant; }
double gflops(const BenchRow& row) { return row.work.flops / row.times.median() / 1e9; }
double gbs(const BenchRow& row) { return row.work.bytes / row.times.median() / 1e9; }

}  // namespace

double BenchRow::limit_share() const {
  Times shares;
  for (std::size_t i = 0; i < times.seconds.size(); ++i)
    shares.seconds.push_back(work.flops / times.seconds[i] / 1e9 / limits.seconds[i]);
  return shares.median();
}

std::vector<BenchRow> run_bench(const std::vector<BenchCase>& cases, const std::optional<Schedule>& schedule,
                                int rounds) {
  std::vector<BenchRow> rows;
  std::vector<Subject> group;
  double bytes = 0;
  const auto finish_group = [&] {
    measure(group, rounds);
    for (Subject& s : group) rows.push_back(std::move(s.row));
    group.clear();
    bytes = 0;
  };
  for (const BenchCase& asked : cases) {
    group.push_back(subject_of(asked, schedule));
    bytes += group.back().row.work.bytes * group.back().row.buffers;
    if (bytes > bytes_of_a_group) finish_group();
  }
  if (!group.empty()) finish_group();
  return rows;
}

std::string bench_table(const std::vector<BenchRow>& rows) {
  std::size_t width = 8, variant_width = 7;
  for (const BenchRow& row : rows) {
    width = std::max(width, row.problem.size());
    variant_width = std::max(variant_width, mask_text(row).size());
  }
  std::string text =
      fmt::format("{:<{}}  {:<{}}  {:>7}  {:>8}  {:>8}  {:>6}  {:>8}  {:>8}  {:>6}\n", "problem", width, "variant",
                  variant_width, "threads", "median", "best", "spread", "GFLOP/s", "of limit", "GB/s");
  for (const BenchRow& row : rows)
    text += fmt::format("{:<{}}  {:<{}}  {:>7}  {:>8}  {:>8}  {:>5.1f}%  {:>8.4g}  {:>7.1f}%  {:>6.3g}\n", row.problem,
                        width, mask_text(row), variant_width, row.threads, time_text(row.times.median()),
                        time_text(row.times.best()), row.times.spread() * 100, gflops(row), row.limit_share() * 100,
                        gbs(row));
  return text +
         "of limit: of the multiply-adds (or bf16 dots, where the schedule uses them) measured between the runs; "
         "spread: half the distance of the quartiles\n";
}

std::string bench_json(const std::vector<BenchRow>& rows) {
  Json list = Json::array();
  for (const BenchRow& row : rows)
    list.push_back({{"problem", row.problem},
                    {"variant", row.variant},
                    {"batch", row.sequences},
                    {"heads", row.heads},
                    {"kv_heads", row.kv_heads},
                    {"seqlen_q", row.seqlen_q},
                    {"seqlen_k", row.seqlen_k},
                    {"head_dim", row.head_dim},
                    {"value_dim", row.value_dim},
                    {"dtype", row.asked.flags.dtype},
                    {"causal", row.asked.flags.causal},
                    {"threads", row.threads},
                    {"buffers", row.buffers},
                    {"schedule", row.schedule},
                    {"jit_ms", row.jit_ms},
                    {"median_s", row.times.median()},
                    {"best_s", row.times.best()},
                    {"spread", row.times.spread()},
                    {"samples_s", row.times.seconds},
                    {"flops", row.work.flops},
                    {"bytes", row.work.bytes},
                    {"gflops", gflops(row)},
                    {"gbs", gbs(row)},
                    {"limit_gflops", row.limits.median()},
                    {"share_of_limit", row.limit_share()},
                    {"read_gbs", row.read_gbs}});
  const Json all = {{"version", ATTILE_VERSION}, {"cpu", host_cpu().model}, {"isa", host_cpu().isa()}, {"rows", list}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string bench_csv(const std::vector<BenchRow>& rows) {
  std::string text =
      "batch,heads,kv_heads,seqlen_q,seqlen_k,head_dim,value_dim,dtype,causal,variant,threads,buffers,median_s,best_s,"
      "spread,gflops,gbs,limit_gflops,share_of_limit,read_gbs,jit_ms\n";
  for (const BenchRow& row : rows)
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},\"{}\",{},{},{:.9g},{:.9g},{:.4g},{:.6g},{:.6g},{:.6g},{:.4g},{:.4g},{:.4g}\n",
        row.sequences, row.heads, row.kv_heads, row.seqlen_q, row.seqlen_k, row.head_dim, row.value_dim,
        row.asked.flags.dtype, row.asked.flags.causal, row.variant, row.threads, row.buffers, row.times.median(),
        row.times.best(), row.times.spread(), gflops(row), gbs(row), row.limits.median(), row.limit_share(),
        row.read_gbs, row.jit_ms);
  return text;
}

}  // namespace attile::cli
