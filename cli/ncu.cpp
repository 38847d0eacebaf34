#include "cli/ncu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <utility>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "dsl/error.h"
#include "runtime/child_process.h"
#include "runtime/cuda_places.h"

namespace attile::cli {
namespace {

constexpr const char* dram_read = "dram__bytes_read.sum";
constexpr const char* dram_written = "dram__bytes_write.sum";
constexpr const char* l2_bytes = "lts__t_bytes.sum";

// Fields between quotes, as ncu writes them; a quote within a field is doubled.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::string field;
  bool inside = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && inside && i + 1 < line.size() && line[i + 1] == '"')
      field += line[++i];
    else if (line[i] == '"')
      inside = !inside;
    else if (line[i] == ',' && !inside)
      fields.push_back(std::exchange(field, {}));
    else if (line[i] != '\r')
      field += line[i];
  }
  fields.push_back(field);
  return fields;
}

double number_of(std::string text) {
  std::erase(text, ',');
  return std::strtod(text.c_str(), nullptr);
}

[[noreturn]] void refuse(const std::string& text) {
  std::string words;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("==ERROR==") || (words.empty() && line.starts_with("=="))) words = line;
  throw Error(ErrorKind::environment, "ncu", fmt::format("it gave no bytes: {}", words.empty() ? "no words" : words),
              "performance counters may need rights: see NVIDIA's ERR_NVGPUCTRPERM");
}

std::string own_path() {
  std::string path(4096, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return path;
}

}  // namespace

std::string find_ncu() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string file = folder + "/ncu"; is_file(file) && ::access(file.c_str(), X_OK) == 0) return file;
  return {};
}

MeasuredBytes read_ncu_csv(const std::string& text) {
  MeasuredBytes sum;
  std::istringstream lines(text);
  std::size_t name = 0, value = 0, found = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = fields_of(line);
    const auto column = [&](const char* title) {
      return static_cast<std::size_t>(std::find(fields.begin(), fields.end(), title) - fields.begin());
    };
    if (column("Metric Name") < fields.size()) name = column("Metric Name"), value = column("Metric Value");
    if (value == 0 || value >= fields.size() || name >= fields.size()) continue;
    for (const auto& [metric, bytes] : {std::pair{dram_read, &sum.dram_read},
                                        std::pair{dram_written, &sum.dram_written}, std::pair{l2_bytes, &sum.l2}})
      if (fields[name] == metric) *bytes += number_of(fields[value]), ++found;
  }
  if (found == 0) refuse(text);
  return sum;
}

MeasuredBytes measure_bytes(const std::string& ncu, const std::vector<std::string>& words,
                            const std::vector<std::string>& kernels) {
  std::vector<std::string> all{ncu,
                               "--csv",
                               "--print-units",
                               "base",
                               "--metrics",
                               fmt::format("{},{},{}", dram_read, dram_written, l2_bytes),
                               "--kernel-name",
                               fmt::format("regex:^({})$", fmt::join(kernels, "|")),
                               "--launch-count",
                               std::to_string(kernels.size()),
                               own_path()};
  all.insert(all.end(), words.begin(), words.end());
  return read_ncu_csv(run_child(all).output);
}

}  // namespace attile::cli
