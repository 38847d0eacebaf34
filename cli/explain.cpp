// attile explain: what a schedule needs, why it was chosen and whether it is legal, what the orders of its loops move
// through memory, and which limit of this machine the problem meets; of a GPU's kernels what ptxas made of them and how
// they fill the device.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/explain_gpu.h"
#include "cli/io_model.h"
#include "cli/json.h"
#include "cli/kernel_flags.h"
#include "cli/peaks.h"
#include "cli/work.h"
#include "dsl/error.h"
#include "runtime/parallel_for.h"
#include "schedules/cuda_footprint.h"
#include "schedules/footprint.h"
#include "schedules/registry.h"

namespace attile::cli {
namespace {

struct ExplainFlags {
  KernelFlags kernel;
  bool json = false, measure = false;
  std::vector<std::string> run_words;  // the same call as words of `attile run`
};

// The limits of this machine and the time that the chosen schedule's operations and bytes would take at them.
struct Roofline {
  Peaks peaks;
  int threads = 1;
  double crossover = 0;  // operations a byte at which both limits are met
  double arithmetic_s = 0, memory_s = 0;
  bool arithmetic_bound() const { return arithmetic_s >= memory_s; }
};

struct Explanation {
  KernelSource source;
  std::string chosen_by;
  std::vector<std::string> reasons;  // against the schedule
  Footprint footprint;
  Work once;                         // every tensor moved once, every visible pair computed
  std::vector<OrderTraffic> orders;  // empty for a schedule that is not legal
  std::optional<Roofline> roofline;  // on this machine's CPU only
  std::optional<GpuExplanation> gpu;
  bool on_gpu() const { return source.chip.target.family == TargetFamily::cuda; }
};

std::string chosen_by(const ExplainFlags& f, const KernelSource& s) {
  if (!f.kernel.machine.schedule.empty()) return "given by --schedule";
  if (!s.tuned.empty()) return s.tuned;
  const KnownSchedule* known = best_known(s.algorithm, s.problem, s.chip.target);
  if (known == nullptr) return "no schedule is known for this problem; the initial one, made legal";
  std::string text = fmt::format("best known for \"{}\"", known->name);
  if (known->gflops > 0) text += fmt::format(", {:.4g} GFLOP/s on {}", known->gflops, known->measured);
  return text + (known->schedule == s.schedule ? "" : ", made legal");
}

Roofline measured_roofline(const KernelSource& s, const Traffic& traffic) {
  Roofline r;
  r.peaks = measure_peaks(s.problem, s.schedule, *s.chip.device);
  r.threads = worker_count();
  r.crossover = r.peaks.gflops / r.peaks.read_gbs;
  r.arithmetic_s = static_cast<double>(traffic.flops) / (r.peaks.gflops * 1e9);
  r.memory_s = static_cast<double>(traffic.total().total()) / (r.peaks.read_gbs * 1e9);
  return r;
}

std::vector<std::string> run_words(const ExplainFlags& f, const KernelSource& s) {
  std::vector<std::string> words{"run", "--repeat=1", "--device=" + to_string(*s.chip.device)};
  words.insert(words.end(), f.run_words.begin(), f.run_words.end());
  if (f.kernel.attention.out_dtype.empty())
    words.push_back(fmt::format("--out-dtype={}", to_string(s.problem.dtypes.at("o"))));
  if (f.kernel.lse) words.insert(words.end(), {"--lse-out", "/dev/null"});
  return words;
}

Explanation explain(const ExplainFlags& f) {
  Explanation e{kernel_source(f.kernel), "", {}, {}, {}, {}, {}, {}};
  const KernelSource& s = e.source;
  e.chosen_by = chosen_by(f, s);
  e.reasons = legality(s.algorithm, s.problem, s.schedule, s.chip.target);
  if (f.measure && (!e.on_gpu() || !s.chip.device))
    throw Error(ErrorKind::argument, "--measure", "it needs a GPU of this machine",
                "leave it out, or give --device cuda");
  if (!e.on_gpu()) e.footprint = footprint(s.algorithm, s.problem, s.schedule, s.chip.target);
  const DType out = s.problem.dtypes.at("o");
  const CallData data(f.kernel.attention, Contents::shapes, f.kernel.lse, out);
  e.once = work_of(data.call(), data.sequences());
  if (!e.reasons.empty()) return e;
  if (e.on_gpu()) {
    e.gpu = explain_gpu(s, data, f.measure ? std::optional(run_words(f, s)) : std::nullopt);
    return e;
  }
  e.orders = traffic_by_order(s, data);
  if (s.chip.device) e.roofline = measured_roofline(s, e.orders.back().traffic);
  return e;
}

void print_line(const char* name, const std::string& text) { fmt::print("{:<10} {}\n", name, text); }

void print_orders(const Explanation& e) {
  const auto row = [](const std::string& name, const std::string& read, const std::string& written,
                      const std::string& panels, double flops, const std::string& exponentials, double intensity) {
    fmt::print("{:<10} {:>9} {:>9} {:>10} {:>8.4g} {:>8} {:>10.3g}\n", name, read, written, panels, flops / 1e9,
               exponentials, intensity);
  };
  fmt::print("\n{:<10} {:>9} {:>9} {:>10} {:>8} {:>8} {:>10}\n", "order", "read", "written", "to panels", "GFLOP",
             "Gexp", "FLOP/byte");
  row("once", bytes_text(e.once.bytes), "", "", e.once.flops, "", e.once.flops / std::max(e.once.bytes, 1.0));
  for (const OrderTraffic& o : e.orders) {
    const Bytes total = o.traffic.total();
    row(o.order, bytes_text(static_cast<double>(total.read)), bytes_text(static_cast<double>(total.written)),
        bytes_text(static_cast<double>(o.traffic.tiles.read)), static_cast<double>(o.traffic.flops),
        fmt::format("{:.3g}", static_cast<double>(o.traffic.exponentials) / 1e9), o.intensity());
  }
  fmt::print(
      "once: every tensor moved once and every visible pair computed. standard, FA-1 (keys outside), FA-2 (rows\n"
      "outside), chosen: counted from their kernels, as if fast memory held nothing but the tiles at hand.\n\n");
}

void print_roofline(const Explanation& e) {
  if (!e.roofline) return print_line("roofline", "only for the machine itself (--target host)");
  const Roofline& r = *e.roofline;
  print_line("roofline", fmt::format("both limits are met at {:.3g} FLOP/byte: {:.4g} GFLOP/s of {}, {:.3g} GB/s read "
                                     "(measured now, {} thread{})",
                                     r.crossover, r.peaks.gflops, r.peaks.arithmetic, r.peaks.read_gbs, r.threads,
                                     r.threads == 1 ? "" : "s"));
  print_line("bound by", fmt::format("{}: at these limits {} of arithmetic and {} of memory traffic",
                                     r.arithmetic_bound() ? "arithmetic" : "memory", time_text(r.arithmetic_s),
                                     time_text(r.memory_s)));
}

void print_gpu_part(const Explanation& e) {
  const KernelSource& s = e.source;
  if (s.schedule.lanes == Lanes::fragments) {
    const CudaFootprint p = cuda_footprint(s.algorithm, s.problem, s.schedule);
    print_line("shared",
               fmt::format("{} bytes of at most {}: row operands {}, stream operands {} in {} stages, join {}, "
                           "results {}",
                           p.shared(), s.chip.target.shared_bytes, p.row_operands, p.stream_operands, s.schedule.stages,
                           p.join, p.results));
    print_line("", fmt::format("about {} registers for tiles and {} others, of at most {}", p.registers,
                               other_registers, register_limit(s.schedule)));
  }
  if (e.gpu) print_gpu(*e.gpu);
}

void print_text(const Explanation& e) {
  const KernelSource& s = e.source;
  print_line("problem", s.problem_text);
  print_line("kernel for", to_string(s.problem));
  print_line("target", to_string(s.chip.target));
  print_line("schedule", to_string(s.schedule));
  print_line("chosen", e.chosen_by);
  if (e.reasons.empty()) print_line("legal", "yes");
  for (const std::string& reason : e.reasons) print_line("not legal", reason);
  if (e.on_gpu()) return print_gpu_part(e);
  const Footprint& p = e.footprint;
  print_line(
      "scratch",
      fmt::format("{} bytes a worker, of at most {}: row operands {}, stream operands {}, stream tiles {}, "
                  "states {}, results {}",
                  p.total(), scratch_limit, p.row_operands, p.stream_operands, p.stream_tiles, p.states, p.results));
  print_line("caches", fmt::format("L1 {} bytes, L2 {} bytes", s.chip.target.l1_bytes, s.chip.target.l2_bytes));
  if (e.orders.empty()) return;
  print_orders(e);
  print_roofline(e);
}

Json bytes_json(const Bytes& b) { return {{"read", b.read}, {"written", b.written}}; }

Json order_json(const OrderTraffic& o) {
  Json tensors = Json::object();
  for (const auto& [tensor, bytes] : o.traffic.memory) tensors[tensor] = bytes_json(bytes);
  return {{"order", o.order},
          {"schedule", o.schedule},
          {"memory_bytes", bytes_json(o.traffic.total())},
          {"tensors", tensors},
          {"tile_bytes", bytes_json(o.traffic.tiles)},
          {"flops", o.traffic.flops},
          {"exponentials", o.traffic.exponentials},
          {"flops_per_byte", o.intensity()}};
}

Json roofline_json(const Roofline& r) {
  return {{"gflops", r.peaks.gflops},
          {"read_gbs", r.peaks.read_gbs},
          {"threads", r.threads},
          {"crossover_flops_per_byte", r.crossover},
          {"arithmetic_s", r.arithmetic_s},
          {"memory_s", r.memory_s},
          {"bound_by", r.arithmetic_bound() ? "arithmetic" : "memory"}};
}

Json scratch_json(const Footprint& p) {
  return {{"row_operands", p.row_operands}, {"stream_operands", p.stream_operands},
          {"stream_tiles", p.stream_tiles}, {"states", p.states},
          {"results", p.results},           {"total", p.total()}};
}

void print_json(const Explanation& e) {
  const KernelSource& s = e.source;
  Json json = {{"problem", s.problem_text},
               {"kernel_for", to_string(s.problem)},
               {"target", to_string(s.chip.target)},
               {"schedule", to_string(s.schedule)},
               {"chosen", e.chosen_by},
               {"legal", e.reasons.empty()},
               {"reasons", e.reasons}};
  if (!e.on_gpu()) json["scratch_bytes"] = scratch_json(e.footprint);
  json["once"] = {{"bytes", e.once.bytes}, {"flops", e.once.flops}};
  if (!e.on_gpu()) json["orders"] = Json::array();
  for (const OrderTraffic& o : e.orders) json["orders"].push_back(order_json(o));
  if (e.roofline) json["roofline"] = roofline_json(*e.roofline);
  if (e.gpu) add_json(json, *e.gpu);
  fmt::print("{}\n", json_text(json));
}

int run(const ExplainFlags& f) {
  const Explanation e = explain(f);
  if (f.json)
    print_json(e);
  else
    print_text(e);
  return e.reasons.empty() ? good : failed;
}

}  // namespace

// The flags that were given and that `run` has too, as it takes them.
static std::vector<std::string> words_for_run(const CLI::App& verb) {
  std::vector<std::string> words;
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--json" || name == "--measure" || name == "--device" || name == "--lse")
      continue;
    words.push_back(fmt::format("{}={}", name, option->results().back()));
  }
  return words;
}

Action add_explain(CLI::App& verb) {
  auto flags = std::make_shared<ExplainFlags>();
  verb.add_flag("--json", flags->json, "The same as JSON");
  verb.add_flag("--measure", flags->measure, "Bytes that a GPU really moves, by Nsight Compute (ncu in PATH)");
  add_target_flag(verb, flags->kernel);
  add_kernel_flags(verb, flags->kernel);
  verb.add_option("--threads", flags->kernel.machine.threads, "Threads that measure the CPU's limits; 0 is every core")
      ->check(CLI::Range(0, 4096))
      ->group("Machine");
  return [flags, &verb] {
    flags->run_words = words_for_run(verb);
    return run(*flags);
  };
}

}  // namespace attile::cli
