// attile run: one attention call, from files or generated, timed and compared.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/attention_flags.h"
#include "cli/call_data.h"
#include "cli/command.h"
#include "cli/gpu_kernels.h"
#include "cli/json.h"
#include "cli/npy.h"
#include "cli/output_file.h"
#include "cli/peaks.h"
#include "cli/reference.h"
#include "cli/runner.h"
#include "cli/work.h"
#include "dsl/error.h"
#include "runtime/parallel_for.h"

namespace attile::cli {
namespace {

struct RunFlags {
  AttentionFlags attention;
  MachineFlags machine;
  std::string out, lse_out;
  bool check = false, json = false;
  int repeat = 10;
};

struct Report {
  std::string problem, variant, schedule;
  Device device;
  int threads = 0;
  BuildInfo build;
  std::vector<GpuKernel> kernels;  // on a GPU
  int calls = 1;                   // in a sample
  double jit_seconds = 0;
  Times times;
  Work work;
  Peaks peaks;
  double roofline = 0;
  std::optional<ReferenceCheck> check;
  std::vector<std::string> written;
  bool on_gpu() const { return device.kind == Device::Kind::cuda; }
};

std::string kernel_text(const Report& r) {
  const char* compile = r.build.from_disk ? "read" : "compile";
  return fmt::format("{} in {} (generate {:.3g} ms, {} {:.3g} ms, load {:.3g} ms)",
                     r.build.from_disk ? "from the disk cache" : "built", time_text(r.jit_seconds), r.build.generate_ms,
                     compile, r.build.compile_ms, r.build.load_ms);
}

std::string rows_text(const ReferenceCheck& check) {
  std::string text = check.rows == check.all_rows
                         ? fmt::format("all {} rows", check.rows)
                         : fmt::format("{} of {} rows, spread over the problem", check.rows, check.all_rows);
  if (check.undecided > 0)
    text += fmt::format(" ({} left out: two scores at the edge of the selection are equal within rounding)",
                        check.undecided);
  return text;
}

std::string output_text(const OutputCheck& o) {
  const std::string outcome = fmt::format("{} {}", o.output, o.agrees ? "agrees" : "DIFFERS");
  return fmt::format("{}: largest error {:.2e} (tolerance {:.2e}) at {}: {:.9g}, reference {:.9g}", outcome, o.error,
                     o.tolerance, o.place, o.got, o.want);
}

std::string time_line(const Report& r) {
  const std::string times = fmt::format("{} median of {}, best {}", time_text(r.times.median()), r.times.seconds.size(),
                                        time_text(r.times.best()));
  if (r.on_gpu()) return fmt::format("{}, {} call{} a sample", times, r.calls, r.calls == 1 ? "" : "s");
  return fmt::format("{}, {} thread{}", times, r.threads, r.threads == 1 ? "" : "s");
}

void print_report(const Report& r) {
  const auto line = [](const char* name, const std::string& text) { fmt::print("{:<10} {}\n", name, text); };
  const double seconds = r.times.median();
  line("problem", r.problem);
  line("variant", r.variant);
  line("schedule", r.schedule);
  if (r.on_gpu()) line("device", device_text(r.device));
  line("kernel", kernel_text(r));
  for (const GpuKernel& k : r.kernels)
    line("", (r.kernels.size() > 1 ? k.name + ": " : std::string()) + resources_text(k));
  line("time", time_line(r));
  const double unit = r.on_gpu() ? 1e12 : 1e9;
  const char* name = r.on_gpu() ? "TFLOP" : "GFLOP";
  line("work",
       fmt::format("{:.4g} GFLOP, {:.4g} {}/s; {} at least, {:.3g} GB/s", r.work.flops / 1e9,
                   r.work.flops / seconds / unit, name, bytes_text(r.work.bytes), r.work.bytes / seconds / 1e9));
  line("roofline", fmt::format("{:.0f}% (measured now: {:.4g} {}/s of {}, {:.4g} GB/s read)", r.roofline * 100,
                               r.peaks.gflops * 1e9 / unit, name, r.peaks.arithmetic, r.peaks.read_gbs));
  if (r.check) {
    if (r.check->outputs.empty()) line("check", "no rows to compare");
    for (const OutputCheck& o : r.check->outputs) line("check", output_text(o));
    if (!r.check->outputs.empty())
      line("", fmt::format("against the untiled double reference, {}", rows_text(*r.check)));
  }
  for (const std::string& path : r.written) line("wrote", path);
}

Json check_json(const ReferenceCheck& check) {
  Json outputs = Json::array();
  for (const OutputCheck& o : check.outputs)
    outputs.push_back({{"output", o.output},
                       {"agrees", o.agrees},
                       {"error", o.error},
                       {"tolerance", o.tolerance},
                       {"place", o.place},
                       {"got", o.got},
                       {"want", o.want}});
  return {{"agrees", check.agrees()},
          {"rows", check.rows},
          {"all_rows", check.all_rows},
          {"undecided_rows", check.undecided},
          {"outputs", outputs}};
}

Json peaks_json(const Report& r) {
  const Peaks& p = r.peaks;
  Json json = {{"arithmetic", p.arithmetic}, {"gflops", p.gflops}, {"read_gbs", p.read_gbs}};
  if (!r.on_gpu()) json.update({{"fma_gflops", p.fma_gflops}, {"bf16_dot_gflops", p.bf16_dot_gflops}});
  return json;
}

Json report_json(const Report& r) {
  const double seconds = r.times.median();
  Json json = {
      {"problem", r.problem}, {"variant", r.variant}, {"schedule", r.schedule}, {"device", to_string(r.device)}};
  if (r.on_gpu())
    json["gpu"] = device_text(r.device);
  else
    json["threads"] = r.threads;
  json["kernel"] = {{"from_disk", r.build.from_disk},
                    {"jit_ms", r.jit_seconds * 1e3},
                    {"generate_ms", r.build.generate_ms},
                    {"compile_ms", r.build.compile_ms},
                    {"load_ms", r.build.load_ms}};
  for (const GpuKernel& k : r.kernels) json["kernels"].push_back(resources_json(k));
  json["time"] = {{"median_s", seconds},
                  {"best_s", r.times.best()},
                  {"repeats", r.times.seconds.size()},
                  {"calls_a_sample", r.calls}};
  json["flops"] = r.work.flops;
  json["gflops"] = r.work.flops / seconds / 1e9;
  json["bytes"] = r.work.bytes;
  json["gbs"] = r.work.bytes / seconds / 1e9;
  json["roofline_share"] = r.roofline;
  json["peaks"] = peaks_json(r);
  if (r.check) json["check"] = check_json(*r.check);
  json["written"] = r.written;
  return json;
}

void write_npy(OutputFile& file, const Array& array) {
  file.write(npy_header(array));
  file.write(std::span(array.data(), array.bytes()));
}

// Outputs are begun before the work and take their places after the check.
class Outputs {
 public:
  explicit Outputs(const RunFlags& f) {
    if (!f.out.empty() && f.out == f.lse_out)
      throw Error(ErrorKind::argument, "--lse-out", "it is the file of --out too");
    if (!f.out.empty()) files_.emplace_back("o", OutputFile(f.out));
    if (!f.lse_out.empty()) files_.emplace_back("lse", OutputFile(f.lse_out));
  }
  std::vector<std::string> write(CallData& data) {
    std::vector<std::string> written;
    for (auto& [name, file] : files_) write_npy(file, data.output(name));
    for (auto& [name, file] : files_) {
      file.finish();
      const Array& array = data.output(name);
      written.push_back(
          fmt::format("{}: {} {} {}", file.path(), name, shape_text(array.shape()), to_string(array.dtype())));
    }
    return written;
  }

 private:
  std::vector<std::pair<std::string, OutputFile>> files_;
};

// Shorter calls are repeated within a sample; on the CPU every call is one.
constexpr double least_gpu_sample = 1e-3;

Report compute(const RunFlags& f, CallData& data) {
  Report r;
  const AttentionCall& call = data.call();
  r.problem = data.problem_text();
  r.variant = variant_text(f.attention);
  r.device = call.device;
  r.threads = worker_count();
  std::unique_ptr<Runner> runner = Runner::make({&call});
  r.jit_seconds = runner->build_seconds();
  const Program program = runner->kernel().program();
  r.build = runner->kernel().build_info();
  r.schedule = to_string(program.schedule);
  runner->run_all();
  if (r.on_gpu()) {
    r.kernels = cached_kernels(program);
    r.calls = runner->calls_in(least_gpu_sample);
  }
  r.times = sampled(*runner, r.calls, f.repeat);
  runner->finish();
  runner.reset();  // a GPU's memory is free again
  r.work = work_of(call, data.sequences());
  r.peaks = measure_peaks(program.problem, program.schedule, call.device);
  r.roofline = roofline_share(r.peaks, r.work, r.times.median());
  if (f.check) r.check = check_against_reference(call);
  return r;
}

int run(const RunFlags& f) {
  const Device device = use_machine(f.machine);
  CallData data(f.attention, Contents::values, !f.lse_out.empty());
  data.call().device = device;
  data.call().schedule = chosen_schedule(f.machine, target_of(device));
  Outputs outputs(f);
  Report report = compute(f, data);
  const bool agrees = !report.check || report.check->agrees();
  if (agrees) report.written = outputs.write(data);
  if (f.json)
    fmt::print("{}\n", json_text(report_json(report)));
  else
    print_report(report);
  return agrees ? good : failed;
}

}  // namespace

Action add_run(CLI::App& verb) {
  auto flags = std::make_shared<RunFlags>();
  add_input_flags(verb, flags->attention);
  add_size_flags(verb, flags->attention);
  add_variant_flags(verb, flags->attention);
  verb.add_option("--out", flags->out, "Where o goes, .npy; only if the run and its check succeed")
      ->type_name("FILE")
      ->group("Outputs");
  verb.add_option("--lse-out", flags->lse_out, "Where the log-sum-exp goes, .npy of float32")
      ->type_name("FILE")
      ->group("Outputs");
  verb.add_option("--out-dtype", flags->attention.out_dtype, "float32, bfloat16 or float16 (float32)")
      ->type_name("TYPE")
      ->group("Outputs");
  verb.add_flag("--check", flags->check, "Compare with the untiled double reference");
  verb.add_flag("--json", flags->json, "The report as JSON");
  verb.add_option("--repeat", flags->repeat, "Timed runs at most (10)")->check(CLI::Range(1, 1000000).description(""));
  add_machine_flags(verb, flags->machine);
  add_schedule_flag(verb, flags->machine);
  return [flags] { return run(*flags); };
}

}  // namespace attile::cli
