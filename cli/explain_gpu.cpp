#include "cli/explain_gpu.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/json.h"
#include "cli/work.h"
#include "codegen/program.h"
#include "dsl/error.h"

namespace attile::cli {
namespace {

CudaLimits limits_of(const Chip& chip) {
  return chip.device ? cuda_limits(cuda_device(chip.device->index)) : cuda_limits(chip.target);
}

std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text)
    if (const char letter = c == '\n' ? ' ' : c; letter != ' ' || !line.ends_with(' ')) line += letter;
  return line;
}

void add_kernels(GpuExplanation& e, const Program& program) {
  std::vector<GpuKernel> kernels;
  try {
    kernels = compiled_kernels(program);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::environment) throw;
    kernels = bare_kernels(program);
    e.not_compiled = one_line(error.message()) + "; " + error.remedy();
  }
  for (GpuKernel& k : kernels) {
    GpuLaunch launch{std::move(k), {}, 0, 0};
    launch.occupancy = launch.kernel.occupancy(e.limits);
    launch.places = std::int64_t{e.limits.multiprocessors} * launch.occupancy.blocks();
    e.launches.push_back(std::move(launch));
  }
}

void measure(GpuExplanation& e, const std::vector<std::string>& words) {
  const std::string ncu = find_ncu();
  if (ncu.empty()) {
    e.not_measured = "Nsight Compute (ncu) is not in PATH";
    return;
  }
  std::vector<std::string> names;
  for (const GpuLaunch& launch : e.launches) names.push_back(launch.kernel.name);
  try {
    e.measured = measure_bytes(ncu, words, names);
  } catch (const Error& error) {
    e.not_measured = error.what();
  }
}

void print_line(const std::string& name, const std::string& text) { fmt::print("{:<10} {}\n", name, text); }

std::string filled_text(const GpuLaunch& l, const CudaLimits& limits) {
  const CudaOccupancy& o = l.occupancy;
  const int blocks = o.blocks();
  std::string text = fmt::format(
      "{} block{} a multiprocessor ({} of {} warps; {} of registers, {} of shared memory, {} of threads; limited by "
      "{})",
      blocks, blocks == 1 ? "" : "s", blocks * o.warps, limits.threads_per_sm / 32, o.by_registers, o.by_shared,
      o.by_threads, o.limited_by());
  return text + fmt::format("; {} tasks, {:.3g} wave{} of {}", l.tasks, l.waves(), l.waves() == 1 ? "" : "s", l.places);
}

// Those of ptxas in full; the front end's are of unused names and the like ("warning #177-D").
void print_warnings(const std::vector<std::string>& warnings) {
  std::size_t of_front_end = 0;
  for (const std::string& warning : warnings)
    if (warning.find("warning #") != std::string::npos)
      ++of_front_end;
    else
      print_line("warning", warning);
  if (of_front_end > 0)
    print_line("",
               fmt::format("{} warning{} of the front end, see --json", of_front_end, of_front_end == 1 ? "" : "s"));
}

void print_traffic(const GpuExplanation& e) {
  const GpuTraffic& t = e.traffic;
  print_line("work",
             fmt::format("{:.4g} GFLOP in visible pairs, {:.4g} in whole tiles; {:.3g} FLOP for each byte of HBM",
                         t.visible_flops / 1e9, t.tile_flops / 1e9,
                         t.visible_flops / std::max(t.hbm_read + t.hbm_written, 1.0)));
  print_line("HBM", fmt::format("{} read and {} written: every tensor once", bytes_text(t.hbm_read),
                                bytes_text(t.hbm_written)));
  std::string l2 = fmt::format("{} read and {} written", bytes_text(t.l2_read), bytes_text(t.l2_written));
  if (t.partial > 0) l2 += fmt::format(" ({} of parts each way)", bytes_text(t.partial));
  print_line("L2", l2 + ": rows once, keys and values once for each row tile that sees them");
  print_line("", "both worked out from sizes and tiles, not counted from the kernel");
}

void print_measured(const GpuExplanation& e) {
  if (!e.measured) return print_line("measured", "not: " + e.not_measured);
  const MeasuredBytes& m = *e.measured;
  print_line("measured", fmt::format("by Nsight Compute, caches cold: HBM {} read and {} written, L2 {} in all",
                                     bytes_text(m.dram_read), bytes_text(m.dram_written), bytes_text(m.l2)));
}

void print_roofline(const GpuExplanation& e) {
  if (!e.peaks) return print_line("roofline", "only for a device of this machine (--device cuda)");
  const Peaks& p = *e.peaks;
  const double arithmetic = e.traffic.visible_flops / (p.gflops * 1e9),
               memory = (e.traffic.hbm_read + e.traffic.hbm_written) / (p.read_gbs * 1e9);
  print_line("roofline", fmt::format("both limits are met at {:.3g} FLOP/byte: {:.4g} TFLOP/s of {}, {:.4g} GB/s read "
                                     "(measured now)",
                                     p.gflops / p.read_gbs, p.gflops / 1e3, p.arithmetic, p.read_gbs));
  print_line("bound by",
             fmt::format("{}: at these limits {} of arithmetic and {} of memory traffic",
                         arithmetic >= memory ? "arithmetic" : "memory", time_text(arithmetic), time_text(memory)));
}

Json launch_json(const GpuLaunch& l) {
  Json json = resources_json(l.kernel);
  const CudaOccupancy& o = l.occupancy;
  json["occupancy"] = {{"blocks", o.blocks()},         {"warps", o.blocks() * o.warps},
                       {"limited_by", o.limited_by()}, {"by_registers", o.by_registers},
                       {"by_shared", o.by_shared},     {"by_threads", o.by_threads}};
  json["tasks"] = l.tasks;
  json["waves"] = l.waves();
  return json;
}

}  // namespace

GpuExplanation explain_gpu(const KernelSource& s, const CallData& data,
                           const std::optional<std::vector<std::string>>& run_words) {
  GpuExplanation e;
  e.limits = limits_of(s.chip);
  const Program program = generate(s.algorithm, s.problem, s.schedule, s.chip.target);
  add_kernels(e, program);
  e.parts = parts_of(program, data, e.launches.front().places);
  const std::vector<std::int64_t> tasks = task_counts(program, data, e.parts);
  for (std::size_t i = 0; i < tasks.size(); ++i) e.launches[i].tasks = tasks[i];
  e.traffic = gpu_traffic(program, data, e.parts);
  if (s.chip.device) e.peaks = measure_peaks(s.problem, s.schedule, *s.chip.device);
  if (run_words)
    measure(e, *run_words);
  else
    e.not_measured = s.chip.device ? "--measure asks Nsight Compute" : "that chip is only named";
  return e;
}

void print_gpu(const GpuExplanation& e) {
  for (const GpuLaunch& l : e.launches) {
    print_line("kernel", fmt::format("{}: {}", l.kernel.name, resources_text(l.kernel)));
    print_line("", filled_text(l, e.limits));
    print_warnings(l.kernel.warnings);
  }
  if (!e.not_compiled.empty()) print_line("registers", "not known: " + e.not_compiled);
  if (e.launches.size() > 1) print_line("parts", fmt::format("{} of the stream, merged by the rule", e.parts));
  print_traffic(e);
  print_measured(e);
  print_roofline(e);
}

void add_json(Json& json, const GpuExplanation& e) {
  json["kernels"] = Json::array();
  for (const GpuLaunch& l : e.launches) json["kernels"].push_back(launch_json(l));
  if (!e.not_compiled.empty()) json["registers_not_known"] = e.not_compiled;
  json["parts"] = e.parts;
  const GpuTraffic& t = e.traffic;
  json["traffic"] = {{"hbm_read", t.hbm_read},     {"hbm_written", t.hbm_written}, {"l2_read", t.l2_read},
                     {"l2_written", t.l2_written}, {"partial", t.partial},         {"flops", t.visible_flops},
                     {"tile_flops", t.tile_flops}};
  if (e.measured)
    json["measured"] = {
        {"hbm_read", e.measured->dram_read}, {"hbm_written", e.measured->dram_written}, {"l2", e.measured->l2}};
  else
    json["not_measured"] = e.not_measured;
  if (e.peaks)
    json["roofline"] = {{"arithmetic", e.peaks->arithmetic},
                        {"gflops", e.peaks->gflops},
                        {"read_gbs", e.peaks->read_gbs},
                        {"crossover_flops_per_byte", e.peaks->gflops / e.peaks->read_gbs}};
}

}  // namespace attile::cli
