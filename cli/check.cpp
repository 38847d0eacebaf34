// attile check: reference cases in JSON against kernels of every type, and with --all-schedules of every legal
// schedule.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/array.h"
#include "cli/attention_flags.h"
#include "cli/case_file.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/reference.h"
#include "dsl/error.h"
#include "runtime/cuda_tensors.h"
#include "runtime/kernel.h"
#include "schedules/registry.h"

namespace attile::cli {
namespace {

struct CheckFlags {
  std::vector<std::string> files;
  std::string dtype;
  MachineFlags machine;
  bool all_schedules = false, json = false, tf32 = false;
};

// One run of a file in one type, with every schedule asked for.
struct Outcome {
  std::size_t schedules = 0;
  double worst = 0;     // largest error in units of its tolerance
  std::string fault;    // empty: all agree
  std::string not_run;  // why no kernel ran
};

struct Line {
  std::string file, about;
  std::vector<std::pair<DType, Outcome>> outcomes;
  std::vector<std::string> not_run;  // outputs that no forward pass gives
  std::string fault;                 // of the file itself
  bool good() const {
    return fault.empty() &&
           std::all_of(outcomes.begin(), outcomes.end(), [](const auto& o) { return o.second.fault.empty(); });
  }
};

// The case's tensors with room for the outputs.
class CaseCall {
 public:
  CaseCall(const CaseFile& file, const CaseRun& run, DType type, Device device, bool tf32)
      : run_(run),
        algorithm_(attention(run.options)),
        inputs_(file, run, type),
        device_(device),
        tf32_(tf32 && type == DType::float32 && device.kind == Device::Kind::cuda) {
    for (const auto& [name, view] : inputs_.inputs().tensors) {
      if (algorithm_.find_input(name) == nullptr) continue;
      arguments_.tensor(name, strided(view.data, view.dtype, view.shape, view.strides));
    }
    for (const auto& [name, value] : inputs_.inputs().scalars)
      arguments_.numbers.push_back({name, value, static_cast<std::int64_t>(value)});
    const auto &q = file.q.shape, &v = file.v.shape;
    outputs_.emplace("o", Array(DType::float32, {q[0], q[1], q[2], v[3]}));
    if (run.options.lse) outputs_.emplace("lse", Array(DType::float32, {q[0], q[1], q[2]}));
    for (const auto& [name, array] : outputs_) arguments_.tensor(name, array.ref());
    for (const double value : file.v.values)
      if (std::isfinite(value)) largest_value_ = std::max(largest_value_, std::fabs(value));
    set_tolerances(type);
  }

  const Algorithm& algorithm() const { return algorithm_; }
  Problem problem() const {
    Problem p = problem_of(algorithm_, arguments_);
    p.tf32 = tf32_;
    return p;
  }

  // "" or where an output differs; `worst` is raised to the largest error met.
  std::string run(const std::optional<Schedule>& schedule, double& worst) {
    for (auto& [name, array] : outputs_) array.fill(std::numeric_limits<double>::quiet_NaN());
    compute(Kernel::get(algorithm_, problem(), schedule, device_));
    std::string fault;
    for (const auto& [name, expected] : run_.expected) {
      const Array& array = outputs_.at(name);
      std::vector<double> actual;
      for (std::int64_t i = 0; i < array.count(); ++i) actual.push_back(array.get(i));
      const auto& [absolute, relative] = tolerances_.at(name);
      worst = std::max(worst, worst_share(expected.values, actual, absolute, relative));
      if (fault.empty()) fault = case_mismatch(name, expected, actual, absolute, relative);
    }
    return fault;
  }

 private:
  void compute(const Kernel& kernel) {
    if (device_.kind == Device::Kind::cpu) return kernel.run(arguments_);
    CudaTensors there(algorithm_, arguments_, device_);
    kernel.run(there.arguments());
    there.copy_back();
  }
  void set_tolerances(DType type) {
    double largest_lse = 0;
    if (const auto lse = run_.expected.find("lse"); lse != run_.expected.end())
      for (const double value : lse->second.values)
        if (std::isfinite(value)) largest_lse = std::max(largest_lse, std::fabs(value));
    double scale = largest_value_;
    const bool normalised = run_.options.rule == Rule::softmax || run_.options.rule == Rule::softmax_plus_one;
    if (const auto o = run_.expected.find("o"); o != run_.expected.end() && !normalised)
      for (const double value : o->second.values) scale = std::max(scale, std::fabs(value));
    tolerances_["o"] = {(output_tolerance(type, type, tf32_) + score_tolerance(largest_lse)) * scale, 0};
    tolerances_["lse"] = {lse_tolerance(tf32_), lse_tolerance(tf32_)};
  }
  static double worst_share(const std::vector<double>& want, const std::vector<double>& got, double absolute,
                            double relative) {
    double worst = 0;
    for (std::size_t i = 0; i < std::min(want.size(), got.size()); ++i)
      if (std::isfinite(want[i]) && std::isfinite(got[i]) && want[i] != got[i])
        worst = std::max(worst, std::fabs(want[i] - got[i]) / (absolute + relative * std::fabs(want[i])));
    return worst;
  }

  const CaseRun& run_;
  Algorithm algorithm_;
  CaseArguments inputs_;
  Device device_;
  bool tf32_;
  Arguments arguments_;
  std::map<std::string, Array> outputs_;
  std::map<std::string, std::pair<double, double>> tolerances_;
  double largest_value_ = 0;
};

Outcome run_case(const CheckFlags& f, const CaseFile& file, const CaseRun& run, DType type, Device device) {
  Outcome outcome;
  try {
    CaseCall call(file, run, type, device, f.tf32);
    const Target target = target_of(device);
    std::vector<std::optional<Schedule>> schedules{chosen_schedule(f.machine, target)};
    if (f.all_schedules) {
      const std::vector<Schedule> all = legal_schedules(call.algorithm(), call.problem(), target);
      schedules.assign(all.begin(), all.end());
    }
    for (const std::optional<Schedule>& schedule : schedules) {
      const std::string fault = call.run(schedule, outcome.worst);
      ++outcome.schedules;
      if (fault.empty()) continue;
      outcome.fault = schedule ? fmt::format("{} [{}]", fault, to_string(*schedule)) : fault;
      return outcome;
    }
  } catch (const Error& e) {
    (e.kind() == ErrorKind::unsupported ? outcome.not_run : outcome.fault) = e.what();
  }
  return outcome;
}

std::vector<DType> dtypes_of(const CheckFlags& f) {
  if (f.dtype.empty()) return {DType::float32, DType::bfloat16, DType::float16};
  return {parse_float_dtype(f.dtype, "--dtype")};
}

std::vector<Line> lines_of(const CheckFlags& f, const std::string& path, Device device) {
  CaseFile file;
  try {
    file = read_case_file(path);
  } catch (const Error& e) {
    return {{path, "", {}, {}, e.what()}};
  }
  std::vector<Line> lines;
  for (const CaseRun& run : file.runs) {
    Line line{file.id, run.about.empty() ? file.about : run.about, {}, run.not_run, ""};
    for (const DType type : dtypes_of(f)) line.outcomes.emplace_back(type, run_case(f, file, run, type, device));
    lines.push_back(std::move(line));
  }
  return lines;
}

// As much of a description as fits beside the numbers, whole words.
std::string shortened(const std::string& about) {
  constexpr std::size_t most = 72;
  if (about.size() <= most) return about;
  const auto space = about.rfind(' ', most);
  return about.substr(0, space == std::string::npos ? 0 : space) + " ...";
}

void print_line(const Line& line) {
  if (!line.fault.empty()) return fmt::print("FAILED   {}\n", line.fault);
  std::string shares, faults, reasons;
  for (const auto& [type, outcome] : line.outcomes) {
    if (!outcome.not_run.empty())
      reasons += fmt::format("not run  {}  {}: {}\n", line.file, to_string(type), outcome.not_run);
    else if (!outcome.fault.empty())
      faults += fmt::format("\n         {}: {}", to_string(type), outcome.fault);
    else
      shares += fmt::format("  {} {:.2g}", to_string(type), outcome.worst) +
                (outcome.schedules > 1 ? fmt::format(" ({} schedules)", outcome.schedules) : "");
  }
  if (!shares.empty() || !faults.empty())
    fmt::print("{}  {}{}  {}{}\n", line.good() ? "ok     " : "FAILED ", line.file, shares, shortened(line.about),
               faults);
  fmt::print("{}", reasons);
  if (line.not_run.empty()) return;
  std::string names;
  for (const std::string& name : line.not_run) names += (names.empty() ? "" : ", ") + name;
  fmt::print("not run  {}  {}: gradients are not in this build\n", line.file, names);
}

Json line_json(const Line& line) {
  Json json = {{"file", line.file}, {"about", line.about}, {"passed", line.good()}};
  if (!line.fault.empty()) json["fault"] = line.fault;
  for (const auto& [type, o] : line.outcomes) {
    Json& outcome = json["dtypes"][std::string(to_string(type))];
    outcome = {{"schedules", o.schedules}, {"worst_error_in_tolerances", o.worst}};
    if (!o.fault.empty()) outcome["fault"] = o.fault;
    if (!o.not_run.empty()) outcome["not_run"] = o.not_run;
  }
  if (!line.not_run.empty()) json["not_run"] = line.not_run;
  return json;
}

struct Count {
  std::size_t passed = 0, failed = 0, not_run = 0;
  void add(const Line& line) {
    failed += line.fault.empty() ? 0 : 1;
    not_run += line.not_run.size();
    for (const auto& [type, o] : line.outcomes) ++(!o.not_run.empty() ? not_run : o.fault.empty() ? passed : failed);
  }
};

int run(const CheckFlags& f) {
  const Device device = use_machine(f.machine);
  dtypes_of(f);
  chosen_schedule(f.machine, target_of(device));  // a bad flag is no fault of the cases
  Count count;
  Json json = Json::array();
  for (const std::string& path : f.files)
    for (const Line& line : lines_of(f, path, device)) {
      count.add(line);
      if (f.json)
        json.push_back(line_json(line));
      else
        print_line(line);
    }
  if (f.json)
    fmt::print("{}\n", json_text({{"device", to_string(device)},
                                  {"passed", count.passed},
                                  {"failed", count.failed},
                                  {"not_run", count.not_run},
                                  {"cases", json}}));
  else
    fmt::print("{} passed, {} failed, {} not run, on {}\n", count.passed, count.failed, count.not_run,
               device_text(device));
  return count.failed == 0 ? good : failed;
}

}  // namespace

Action add_check(CLI::App& verb) {
  auto flags = std::make_shared<CheckFlags>();
  verb.footer("Numbers after a type are the largest error in units of its tolerance.");
  verb.add_option("files", flags->files, "Cases in JSON")->type_name("FILE")->required();
  verb.add_option("--dtype", flags->dtype, "Only this type: float32, bfloat16 or float16 (all)")->type_name("TYPE");
  verb.add_flag("--all-schedules", flags->all_schedules, "Every legal schedule of the target's space (takes long)");
  verb.add_flag("--tf32", flags->tf32, "On a GPU, float32 products may round their operands to TF32");
  verb.add_flag("--json", flags->json, "The results as JSON");
  add_machine_flags(verb, flags->machine);
  add_schedule_flag(verb, flags->machine);
  return [flags] { return run(*flags); };
}

}  // namespace attile::cli
