#include "autotune/constants.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "autotune/embedded.h"
#include "autotune/results.h"
#include "autotune/worker.h"
#include "dsl/error.h"
#include "runtime/cuda_peaks.h"
#include "runtime/files.h"
#include "runtime/measure.h"
#include "runtime/options.h"
#include "schedules/yaml_reader.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr std::size_t most_bytes = 1 << 20;
constexpr double measuring_patience = 60;
// No machine's constant and no effect lies outside.
constexpr double least_constant = 1e-12, most_constant = 1e15;

const embedded::File* shipped_file(const std::string& stem) {
  for (const embedded::File& file : embedded::model_files())
    if (std::filesystem::path(file.path).stem() == stem) return &file;
  return nullptr;
}

std::string path_of(const DeviceFacts& facts, const std::string& folder) {
  return fmt::format("{}/{}.model.yaml", folder, facts.machine.file_name());
}

void overlay(Constants& base, const Constants& other) {
  for (const auto& [name, value] : other.values) base.values[name] = value;
  if (!other.form.empty()) base.form = other.form;
  if (!other.effects.empty()) base.effects = other.effects, base.fitted = other.fitted;
}

// What overlay() on `base` makes `c` again, if `c` has all that `base` has. The effects are of one fit: all or none.
Constants difference(const Constants& c, const Constants& base) {
  Constants own;
  for (const auto& [name, value] : c.values)
    if (const auto found = base.values.find(name); found == base.values.end() || found->second != value)
      own.values[name] = value;
  if (c.form != base.form) own.form = c.form;
  if (c.effects != base.effects) own.effects = c.effects, own.fitted = c.fitted;
  return own;
}

// "name value;name value": what a child that measures a GPU says.
std::string cuda_limits_line(const DeviceFacts& facts) {
  const int device = facts.device.index;
  const double sms = facts.machine.units, hz = shipped_constants(facts.target).at("clock_ghz") * 1e9;
  const auto per_cycle = [&](double gflops) { return gflops * 1e9 / sms / hz; };
  return fmt::format("mma_flops {};tf32_flops {};fma_flops {};read_gbs {};",
                     per_cycle(measure_cuda_mma_gflops(device, DType::bfloat16)),
                     per_cycle(measure_cuda_mma_gflops(device, DType::float32)),
                     per_cycle(measure_cuda_fma_gflops(device)), measure_cuda_read_gbs(device));
}

void measure_cuda(Constants& c, const DeviceFacts& facts) {
  Worker worker([&](WorkerLine& line) { line.write(cuda_limits_line(facts)); });
  const std::optional<std::string> line = worker.receive(measuring_patience);
  if (!line)
    return warn(fmt::format("the limits of {} could not be measured; the shipped ones are used", facts.machine.model));
  for (std::size_t at = 0, end; (end = line->find(';', at)) != std::string::npos; at = end + 1) {
    const std::size_t space = line->find(' ', at);
    c.values[line->substr(at, space - at)] = std::atof(line->substr(space + 1, end - space - 1).c_str());
  }
}

// Names of a point's effects.
std::vector<std::string> effect_keys(const Point& point, const Point& initial, const std::string& form) {
  std::string before;
  if (!form.empty()) {
    const std::string* own = value_of(point, form);
    const std::string* value = own ? own : value_of(initial, form);
    if (value) before = *value + " ";
  }
  std::vector<std::string> keys;
  for (const auto& [field, value] : point) keys.push_back(before + field + ": " + value);
  for (const auto& [field, value] : initial)
    if (value_of(point, field) == nullptr) keys.push_back(before + field + ": " + value);
  return keys;
}

double log_of(double x) { return std::log(std::max(x, 1e-30)); }

}  // namespace

double Constants::at(std::string_view name) const {
  const auto found = values.find(std::string(name));
  internal_check(found != values.end(), "the model lacks the constant '" + std::string(name) + "'");
  return found->second;
}

double Constants::effect_of(const Point& point, const Point& initial) const {
  double factor = 1;
  if (effects.empty()) return factor;
  for (const std::string& key : effect_keys(point, initial, form))
    if (const auto found = effects.find(key); found != effects.end()) factor *= found->second;
  return factor;
}

Constants parse_constants(std::string_view text, const std::string& file) {
  const YamlReader reader(file);
  Constants c;
  const YAML::Node root = reader.load(text);
  for (const auto& [name, value] : reader.mapping(root, "a file of constants")) {
    if (name.Scalar() == "fitted" || name.Scalar() == "form") {
      (name.Scalar() == "form" ? c.form : c.fitted) = reader.scalar(value, name.Scalar());
      continue;
    }
    if (name.Scalar() != "values" && name.Scalar() != "effects")
      reader.fail(name, fmt::format("constants have no '{}'", name.Scalar()),
                  "they have form, values, effects, fitted");
    auto& into = name.Scalar() == "values" ? c.values : c.effects;
    for (const auto& [key, number] : reader.mapping(value, name.Scalar())) {
      const double x = reader.number(number, key.Scalar());
      if (!(x >= least_constant && x <= most_constant))
        reader.fail(number,
                    fmt::format("{} is above 0: from {:g} to {:g}", key.Scalar(), least_constant, most_constant));
      into[key.Scalar()] = x;
    }
  }
  return c;
}

std::string to_yaml(const Constants& c) {
  std::string out = (c.form.empty() ? "" : fmt::format("form: {}\n", c.form)) + "values:";
  out += c.values.empty() ? " {}\n" : "\n";
  for (const auto& [name, value] : c.values) out += fmt::format("  {}: {}\n", name, value);
  if (c.effects.empty()) return out;
  out += "effects:\n";
  for (const auto& [name, value] : c.effects) out += fmt::format("  \"{}\": {}\n", name, value);
  return out + fmt::format("fitted: \"{}\"\n", c.fitted);
}

Constants shipped_constants(const Target& target) {
  const bool cuda = target.family == TargetFamily::cuda;
  const embedded::File* base = shipped_file(cuda ? "cuda" : "cpu");
  Constants c = parse_constants(base->content, std::string(base->path));
  if (const embedded::File* own = shipped_file((cuda ? "cuda-" : "cpu-") + target.name))
    overlay(c, parse_constants(own->content, std::string(own->path)));
  return c;
}

Constants measured_constants(const DeviceFacts& facts) {
  Constants c = shipped_constants(facts.target);
  if (facts.device.kind == Device::Kind::cuda) return measure_cuda(c, facts), c;
  const double threads = std::max(facts.machine.units, 1);
  c.values["fma_gflops"] = measure_fma_gflops() / threads;
  if (const double dots = measure_bf16_dot_gflops(); dots > 0) c.values["bf16_dot_gflops"] = dots / threads;
  c.values["memory_gbs"] = measure_read_gbs();
  c.values["read_gbs"] = std::min(c.values["memory_gbs"], std::max(c.values["memory_gbs"] / threads, c.at("read_gbs")));
  return c;
}

Constants device_constants(const DeviceFacts& facts, const std::string& folder) {
  std::string text;
  if (!folder.empty() && read_file(AT_FDCWD, path_of(facts, folder), most_bytes, text) == 0) {
    try {
      Constants c = shipped_constants(facts.target);
      overlay(c, parse_constants(text, path_of(facts, folder)));
      return c;
    } catch (const Error& e) {
      warn(fmt::format("the constants of this device are measured anew: {}", e.what()));
    }
  }
  Constants c = measured_constants(facts);
  if (!folder.empty() && store_fault(folder).empty())
    if (const std::string fault = keep_constants(c, facts, folder); !fault.empty()) warn(fault);
  return c;
}

std::string keep_constants(const Constants& c, const DeviceFacts& facts, const std::string& folder) {
  if (std::string fault = store_fault(folder); !fault.empty()) return fault;
  const std::string path = path_of(facts, folder), beside = path + "." + unique_suffix();
  int error = make_folders(folder);
  if (!error)
    error = write_file(AT_FDCWD, beside,
                       "# Measured by attile doctor --measure or the first attile tune; the others are the shipped "
                       "ones.\n" + to_yaml(difference(c, shipped_constants(facts.target))));
  if (!error && ::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (!error) return "";
  ::unlink(beside.c_str());
  return fmt::format("'{}' cannot be written: {}", path, error_text(error));
}

// Additive in logarithms, by turns: the mean of what is left of a value's samples, drawn to 0 by `doubt` samples'
// weight.
std::map<std::string, double> fit_effects(std::span<const FitSample> samples, const Point& initial,
                                          const std::string& form) {
  constexpr double doubt = 1.5;
  constexpr int turns = 30;
  std::vector<std::vector<std::string>> keys(samples.size());
  std::map<std::string, double> effect;
  std::map<std::size_t, double> level;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    keys[i] = effect_keys(samples[i].point, initial, form);
    for (const std::string& key : keys[i]) effect[key] = 0;
    level[samples[i].problem] = 0;
  }
  const auto left = [&](std::size_t i, bool with_level) {
    double r =
        log_of(samples[i].measured) - log_of(samples[i].predicted) - (with_level ? level[samples[i].problem] : 0);
    for (const std::string& key : keys[i]) r -= effect[key];
    return r;
  };
  for (int turn = 0; turn < turns; ++turn) {
    std::map<std::size_t, std::pair<double, double>> sums;
    for (std::size_t i = 0; i < samples.size(); ++i)
      sums[samples[i].problem].first += left(i, false), sums[samples[i].problem].second += 1;
    for (auto& [problem, sum] : sums) level[problem] = sum.first / sum.second;
    for (auto& [key, value] : effect) {
      double sum = 0, count = 0;
      for (std::size_t i = 0; i < samples.size(); ++i)
        if (std::find(keys[i].begin(), keys[i].end(), key) != keys[i].end()) sum += left(i, true) + value, ++count;
      if (count < static_cast<double>(samples.size()))
        value = sum / (count + doubt);  // what all share tells nothing apart
    }
  }
  std::map<std::string, double> out;
  for (const auto& [key, value] : effect)
    if (std::fabs(value) > 1e-3) out[key] = std::exp(value);
  return out;
}

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  const std::size_t n = a.size();
  if (n < 2) return 0;
  const auto ranks = [&](std::span<const double> x) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return x[i] < x[j]; });
    std::vector<double> out(n);
    for (std::size_t i = 0, end; i < n; i = end) {  // equal values share the mean of their ranks
      for (end = i; end < n && x[order[end]] == x[order[i]];) ++end;
      for (std::size_t k = i; k < end; ++k) out[order[k]] = static_cast<double>(i + end - 1) / 2;
    }
    return out;
  };
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mean = static_cast<double>(n - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < n; ++i)
    xy += (x[i] - mean) * (y[i] - mean), xx += (x[i] - mean) * (x[i] - mean), yy += (y[i] - mean) * (y[i] - mean);
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

}  // namespace v1
}  // namespace attile
