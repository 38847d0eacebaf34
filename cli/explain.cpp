// attile explain: what a schedule needs, why it was chosen and whether it is legal, what the orders of its loops move
// through memory, and which limit of this machine the problem meets.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/io_model.h"
#include "cli/kernel_flags.h"
#include "cli/peaks.h"
#include "cli/work.h"
#include "runtime/parallel_for.h"
#include "schedules/footprint.h"
#include "schedules/registry.h"

namespace attile::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainFlags {
  KernelFlags kernel;
  bool json = false;
};

// The limits of this machine and the time that the chosen schedule's operations and bytes would take at them.
struct Roofline {
  Peaks peaks;
  int threads = 1;
  double gflops = 0;     // of the arithmetic that the schedule uses
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
  std::optional<Roofline> roofline;  // on this machine only
};

std::string chosen_by(const ExplainFlags& f, const KernelSource& s) {
  if (!f.kernel.machine.schedule.empty()) return "given by --schedule";
  const KnownSchedule* known = best_known(s.algorithm, s.problem, s.chip.target);
  if (known == nullptr) return "no schedule is known for this problem; the initial one, made legal";
  std::string text = fmt::format("best known for \"{}\"", known->name);
  if (known->gflops > 0) text += fmt::format(", {:.4g} GFLOP/s on {}", known->gflops, known->measured);
  return text + (known->schedule == s.schedule ? "" : ", made legal");
}

Roofline measured_roofline(const Schedule& schedule, const Traffic& traffic) {
  Roofline r;
  r.peaks = measure_peaks();
  r.threads = worker_count();
  r.gflops = gflops_limit(r.peaks, schedule);
  r.crossover = r.gflops / r.peaks.read_gbs;
  r.arithmetic_s = static_cast<double>(traffic.flops) / (r.gflops * 1e9);
  r.memory_s = static_cast<double>(traffic.total().total()) / (r.peaks.read_gbs * 1e9);
  return r;
}

Explanation explain(const ExplainFlags& f) {
  Explanation e{kernel_source(f.kernel), "", {}, {}, {}, {}, {}};
  const KernelSource& s = e.source;
  e.chosen_by = chosen_by(f, s);
  e.reasons = legality(s.algorithm, s.problem, s.schedule, s.chip.target);
  e.footprint = footprint(s.algorithm, s.problem, s.schedule, s.chip.target);
  const DType out = s.problem.dtypes.at("o");
  const CallData data(f.kernel.attention, Contents::shapes, f.kernel.lse, out);
  e.once = work_of(data.call(), data.sequences());
  if (!e.reasons.empty()) return e;
  e.orders = traffic_by_order(s, data);
  if (f.kernel.target == "host") e.roofline = measured_roofline(s.schedule, e.orders.back().traffic);
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
  print_line("roofline",
             fmt::format("both limits are met at {:.3g} FLOP/byte: {:.4g} GFLOP/s of {}, {:.3g} GB/s read "
                         "(measured now, {} thread{})",
                         r.crossover, r.gflops, e.source.schedule.bf16_dot ? "bfloat16 dots" : "multiply-adds",
                         r.peaks.read_gbs, r.threads, r.threads == 1 ? "" : "s"));
  print_line("bound by", fmt::format("{}: at these limits {} of arithmetic and {} of memory traffic",
                                     r.arithmetic_bound() ? "arithmetic" : "memory", time_text(r.arithmetic_s),
                                     time_text(r.memory_s)));
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
  return {{"gflops", r.gflops},
          {"read_gbs", r.peaks.read_gbs},
          {"threads", r.threads},
          {"crossover_flops_per_byte", r.crossover},
          {"arithmetic_s", r.arithmetic_s},
          {"memory_s", r.memory_s},
          {"bound_by", r.arithmetic_bound() ? "arithmetic" : "memory"}};
}

void print_json(const Explanation& e) {
  const KernelSource& s = e.source;
  const Footprint& p = e.footprint;
  Json json = {{"problem", s.problem_text},
               {"kernel_for", to_string(s.problem)},
               {"target", to_string(s.chip.target)},
               {"schedule", to_string(s.schedule)},
               {"chosen", e.chosen_by},
               {"legal", e.reasons.empty()},
               {"reasons", e.reasons}};
  json["scratch_bytes"] = {{"row_operands", p.row_operands}, {"stream_operands", p.stream_operands},
                           {"stream_tiles", p.stream_tiles}, {"states", p.states},
                           {"results", p.results},           {"total", p.total()}};
  json["once"] = {{"bytes", e.once.bytes}, {"flops", e.once.flops}};
  json["orders"] = Json::array();
  for (const OrderTraffic& o : e.orders) json["orders"].push_back(order_json(o));
  if (e.roofline) json["roofline"] = roofline_json(*e.roofline);
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
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

Action add_explain(CLI::App& verb) {
  auto flags = std::make_shared<ExplainFlags>();
  verb.add_flag("--json", flags->json, "The same as JSON");
  add_target_flag(verb, flags->kernel);
  add_kernel_flags(verb, flags->kernel);
  verb.add_option("--threads", flags->kernel.machine.threads, "Threads that measure the limits; 0 is every core")
      ->check(CLI::Range(0, 4096))
      ->group("Machine");
  return [flags] { return run(*flags); };
}

}  // namespace attile::cli
