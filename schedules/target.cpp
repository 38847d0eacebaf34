#include "schedules/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {
namespace {

struct CpuRow {
  const char* name;
  int vector_bytes, vector_registers;
  bool bf16_dot;
  const char *llvm_cpu, *llvm_features;
};
// x86-64-v3: AVX2, FMA, F16C. x86-64-v4: AVX-512 F, BW, DQ, VL.
constexpr std::array<CpuRow, 3> cpu_rows{{
    {"x86-64-v3", 32, 16, false, "x86-64-v3", ""},
    {"x86-64-v4", 64, 32, false, "x86-64-v4", ""},
    {"x86-64-v4-bf16", 64, 32, true, "x86-64-v4", "+avx512bf16"},
}};

}  // namespace

std::string to_string(const Target& t) {
  if (t.family != TargetFamily::cpu) return t.name;
  return fmt::format("{} vectors {}x{} bytes{} l1 {} l2 {} cpu {}{}{}", t.name, t.vector_registers, t.vector_bytes,
                     t.bf16_dot ? " bf16_dot" : "", t.l1_bytes, t.l2_bytes, t.llvm_cpu,
                     t.llvm_features.empty() ? "" : " ", t.llvm_features);
}

Target target_from_name(const std::string& name) {
  for (const CpuRow& row : cpu_rows) {
    if (row.name != name) continue;
    Target t;
    t.name = row.name;
    t.vector_bytes = row.vector_bytes;
    t.vector_registers = row.vector_registers;
    t.bf16_dot = row.bf16_dot;
    t.llvm_cpu = row.llvm_cpu;
    t.llvm_features = row.llvm_features;
    return t;
  }
  throw Error(ErrorKind::argument, "target", fmt::format("\"{}\" is not a known target", name),
              fmt::format("known are {}", fmt::join(target_names(), ", ")));
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const CpuRow& row : cpu_rows) names.emplace_back(row.name);
  return names;
}

}  // namespace v1
}  // namespace attile
