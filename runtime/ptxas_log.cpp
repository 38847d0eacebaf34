#include "runtime/ptxas_log.h"

#include <algorithm>
#include <charconv>

namespace attile {
inline namespace v1 {
namespace {

bool has(std::string_view line, std::string_view part) { return line.find(part) != std::string_view::npos; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\0')) text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

// The text between the first pair of quotes after `begin`, or nothing.
std::string_view quoted_after(std::string_view line, std::string_view begin) {
  auto at = line.find(begin);
  if (at == std::string_view::npos) return {};
  auto open = line.find('\'', at + begin.size() - 1);
  auto close = open == std::string_view::npos ? open : line.find('\'', open + 1);
  return close == std::string_view::npos ? std::string_view() : line.substr(open + 1, close - open - 1);
}

// The number that stands before `unit`, or -1: 16 for "Used 16 registers" and " registers".
std::int64_t number_before(std::string_view line, std::string_view unit) {
  auto end = line.find(unit);
  if (end == std::string_view::npos) return -1;
  auto begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  std::int64_t value = -1;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

// "364 bytes cmem[0], 8 bytes cmem[2]": all banks together.
std::int64_t constant_bytes(std::string_view line) {
  std::int64_t sum = 0;
  for (auto at = line.find(" bytes cmem["); at != std::string_view::npos; at = line.find(" bytes cmem[")) {
    sum += std::max<std::int64_t>(number_before(line, " bytes cmem["), 0);
    line.remove_prefix(at + 1);
  }
  return sum;
}

void read_usage(std::string_view line, CudaResources& kernel) {
  const auto take = [&](std::string_view unit, auto& field) {
    if (auto value = number_before(line, unit); value >= 0) field = static_cast<std::decay_t<decltype(field)>>(value);
  };
  take(" registers", kernel.registers);
  take(" barriers", kernel.barriers);
  take(" bytes smem", kernel.shared_bytes);
  take(" bytes cumulative stack size", kernel.stack_bytes);
  kernel.constant_bytes = constant_bytes(line);
}

// Properties of a function that is not inlined follow those of the kernel that calls it and count as its own.
void read_properties(std::string_view line, CudaResources& kernel) {
  const auto add = [&](std::string_view unit, std::int64_t& field) {
    field += std::max<std::int64_t>(number_before(line, unit), 0);
  };
  add(" bytes spill stores", kernel.spill_store_bytes);
  add(" bytes spill loads", kernel.spill_load_bytes);
  kernel.stack_bytes = std::max(kernel.stack_bytes, number_before(line, " bytes stack frame"));
}

bool is_error(std::string_view line) {
  return has(line, ": error:") || has(line, ": catastrophic error:") || has(line, ": internal error:") ||
         line.starts_with("ptxas error") || line.starts_with("ptxas fatal") || line.starts_with("nvrtc: error") ||
         line.starts_with("error:") || line.starts_with("Error:");
}

// ptxas tells what costs speed as "(C7510) Potential Performance Loss: ..." in a line of kind info.
bool is_warning(std::string_view line) {
  return has(line, ": warning #") || has(line, ": warning:") || line.starts_with("ptxas warning") ||
         line.starts_with("nvrtc: warning") || (line.starts_with("ptxas") && has(line, "(C"));
}

}  // namespace

CudaLog parse_cuda_log(std::string_view log) {
  CudaLog result;
  std::string_view first_line;
  while (!log.empty()) {
    auto end = std::min(log.find('\n'), log.size());
    std::string_view line = trimmed(log.substr(0, end));
    log.remove_prefix(std::min(end + 1, log.size()));
    if (first_line.empty()) first_line = line;
    if (is_error(line)) {
      if (result.first_error.empty()) result.first_error = line;
    } else if (is_warning(line)) {
      result.warnings.emplace_back(line);
    } else if (auto entry = quoted_after(line, "Compiling entry function '"); !entry.empty()) {
      result.kernels.emplace_back().entry = entry;
    } else if (result.kernels.empty()) {
      continue;
    } else if (has(line, " bytes stack frame")) {
      read_properties(line, result.kernels.back());
    } else if (has(line, "Used ") && has(line, " registers")) {
      read_usage(line, result.kernels.back());
    }
  }
  for (const std::string& warning : result.warnings)
    for (CudaResources& kernel : result.kernels)
      if (has(warning, "'" + kernel.entry + "'")) kernel.warnings.push_back(warning);
  return result;
}

}  // namespace v1
}  // namespace attile
