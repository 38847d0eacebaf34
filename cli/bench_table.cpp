#include "cli/bench_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cli/json.h"
#include "runtime/cuda_device.h"
#include "runtime/host_cpu.h"
#include "runtime/parallel_for.h"

namespace attile::cli {
namespace {

// Rows are measured together as long as their tensors fit in this.
constexpr double bytes_of_a_group = 1 << 30;
// Shorter runs are repeated within a sample.
constexpr double least_sample_seconds = 1e-3;

// A row with its tensors.
struct Subject {
  BenchRow row;
  std::vector<std::unique_ptr<CallData>> data;
  std::unique_ptr<Runner> runner;
  int calls_a_sample = 1;
  const Program& program() const { return runner->kernel().program(); }
};

// Few operations for each byte: memory decides, and tensors that stay in a cache would flatter. A GPU computes more for
// each byte that it reads.
bool memory_bound(const Work& work, Device device) {
  return work.flops < (device.kind == Device::Kind::cuda ? 300 : 40) * work.bytes;
}

int buffers_of(const Work& work, Device device) {
  if (!memory_bound(work, device) || work.bytes <= 0) return 1;
  const std::int64_t last_cache =
      device.kind == Device::Kind::cuda ? cuda_device(device.index).l2_bytes : host_cpu().l3_bytes;
  const double cache = std::max<double>(2.0 * static_cast<double>(last_cache), 64 << 20);
  return static_cast<int>(std::clamp(std::ceil(cache / work.bytes), 1.0, 256.0));
}

void describe(BenchRow& row, const CallData& data) {
  const auto &q = data.call().q.shape, &k = data.call().k.shape;
  row.problem = data.problem_text();
  row.variant = variant_text(row.asked.flags);
  if (row.asked.tuning) row.variant += *row.asked.tuning == Tuning::never ? ", shipped" : ", tuned";
  row.sequences = data.sequences();
  row.heads = q[1], row.kv_heads = k[1], row.seqlen_q = q[2], row.seqlen_k = k[2], row.head_dim = q[3],
  row.value_dim = data.call().v.shape[3];
  row.work = work_of(data.call(), row.sequences);
  row.buffers = buffers_of(row.work, row.asked.device);
}

Subject subject_of(const BenchCase& asked, const std::optional<Schedule>& schedule) {
  Subject s;
  s.row.asked = asked;
  set_worker_count(asked.threads);
  s.row.threads = worker_count();
  const DType dtype = parse_float_dtype(asked.flags.dtype, "--dtype");
  std::vector<const AttentionCall*> calls;
  do {
    s.data.push_back(std::make_unique<CallData>(asked.flags, Contents::values, false, dtype));
    AttentionCall& call = s.data.back()->call();
    call.schedule = schedule;
    call.device = asked.device;
    call.tuning = asked.tuning;
    calls.push_back(&call);
    if (s.data.size() == 1) describe(s.row, *s.data.front());
  } while (static_cast<int>(s.data.size()) < s.row.buffers);
  s.runner = Runner::make(calls);
  s.row.jit_ms = 1e3 * s.runner->build_seconds();
  s.row.schedule = to_string(s.program().schedule);
  s.row.arithmetic = arithmetic_of(s.program().problem, s.program().schedule, asked.device);
  s.runner->run_all();  // every page touched
  s.calls_a_sample = s.runner->calls_in(least_sample_seconds);
  return s;
}

void measure(std::vector<Subject>& group, int rounds) {
  for (Subject& s : group) {
    set_worker_count(s.row.asked.threads);
    s.row.read_gbs = measure_read_gbs_of(s.row.asked.device);
  }
  for (int round = 0; round < rounds; ++round)
    for (Subject& s : group) {
      set_worker_count(s.row.asked.threads);
      s.row.limits.seconds.push_back(
          measure_gflops(s.program().problem, s.program().schedule, s.row.asked.device, 0.005));
      s.row.times.seconds.push_back(s.runner->seconds(s.calls_a_sample));
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

// "mma.sync of bfloat16, multiply-adds": each once.
static std::string arithmetics(const std::vector<BenchRow>& rows) {
  std::set<std::string> names;
  for (const BenchRow& row : rows) names.insert(row.arithmetic);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Rows of --tuned stand in pairs that were timed in turn.
static std::string ratio_lines(const std::vector<BenchRow>& rows) {
  std::string text;
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    if (rows[i].asked.tuning != Tuning::never || rows[i + 1].asked.tuning != Tuning::cached) continue;
    Times ratios;
    for (std::size_t k = 0; k < rows[i].times.seconds.size(); ++k) ratios.seconds.push_back(rows[i].times.seconds[k] / rows[i + 1].times.seconds[k]);
    const bool same = rows[i].schedule == rows[i + 1].schedule;
    text += fmt::format("{}: tuned {:.3f} times as fast as shipped (median of {} pairs, spread {:.1f}%){}\n", rows[i].problem + (rows[i].asked.flags.causal ? " causal" : ""), ratios.median(),
                        ratios.seconds.size(), ratios.spread() * 100, same ? "; the same schedule" : "");
  }
  return text;
}

std::string bench_table(const std::vector<BenchRow>& rows) {
  std::size_t width = 8, variant_width = 7;
  for (const BenchRow& row : rows) {
    width = std::max(width, row.problem.size());
    variant_width = std::max(variant_width, mask_text(row).size());
  }
  const bool gpu = !rows.empty() && rows.front().on_gpu();
  const auto threads = [&](const std::string& text) { return gpu ? "" : fmt::format("  {:>7}", text); };
  std::string text = fmt::format("{:<{}}  {:<{}}{}  {:>8}  {:>8}  {:>6}  {:>8}  {:>8}  {:>6}\n", "problem", width,
                                 "variant", variant_width, threads("threads"), "median", "best", "spread",
                                 gpu ? "TFLOP/s" : "GFLOP/s", "of limit", "GB/s");
  for (const BenchRow& row : rows)
    text += fmt::format("{:<{}}  {:<{}}{}  {:>8}  {:>8}  {:>5.1f}%  {:>8.4g}  {:>7.1f}%  {:>6.4g}\n", row.problem,
                        width, mask_text(row), variant_width, threads(std::to_string(row.threads)),
                        time_text(row.times.median()), time_text(row.times.best()), row.times.spread() * 100,
                        gflops(row) / (gpu ? 1000 : 1), row.limit_share() * 100, gbs(row));
  text += ratio_lines(rows);
  const std::string spread = "spread: half the distance of the quartiles\n";
  if (!gpu)
    return text +
           "of limit: of the multiply-adds (or bf16 dots, where the schedule uses them) measured between the runs; " +
           spread;
  return text + fmt::format(
                    "of limit: of the arithmetic that the schedule uses ({}), measured between the runs; {}"
                    "on {}, which read {:.4g} GB/s from its memory\n",
                    arithmetics(rows), spread, device_text(rows.front().asked.device), rows.front().read_gbs);
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
                    {"device", to_string(row.asked.device)},
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
                    {"limit_of", row.arithmetic},
                    {"share_of_limit", row.limit_share()},
                    {"read_gbs", row.read_gbs}});
  Json all = {{"version", ATTILE_VERSION}, {"cpu", host_cpu().model}, {"isa", host_cpu().isa()}};
  if (!rows.empty() && rows.front().on_gpu()) all["gpu"] = device_text(rows.front().asked.device);
  all["rows"] = list;
  return json_text(all) + "\n";
}

std::string bench_csv(const std::vector<BenchRow>& rows) {
  std::string text =
      "batch,heads,kv_heads,seqlen_q,seqlen_k,head_dim,value_dim,dtype,causal,variant,threads,buffers,median_s,best_s,"
      "spread,gflops,gbs,limit_gflops,share_of_limit,read_gbs,jit_ms,device\n";
  for (const BenchRow& row : rows)
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},\"{}\",{},{},{:.9g},{:.9g},{:.4g},{:.6g},{:.6g},{:.6g},{:.4g},{:.4g},{:.4g},{}\n",
        row.sequences, row.heads, row.kv_heads, row.seqlen_q, row.seqlen_k, row.head_dim, row.value_dim,
        row.asked.flags.dtype, row.asked.flags.causal, row.variant, row.threads, row.buffers, row.times.median(),
        row.times.best(), row.times.spread(), gflops(row), gbs(row), row.limits.median(), row.limit_share(),
        row.read_gbs, row.jit_ms, to_string(row.asked.device));
  return text;
}

}  // namespace attile::cli
