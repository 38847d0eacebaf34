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

struct GpuRow {
  const char* name;
  int multiprocessors;
  std::int64_t shared_kib, l2_mib;  // shared memory of one task; a multiprocessor has one KiB more
  bool dependent_launch;
};
// A100, RTX 30 (A10, A40), RTX 40 (L4, L40), H100 and H200, B200, RTX 50: CUDA C++ Programming Guide, table of
// technical specifications per compute capability.
constexpr std::array<GpuRow, 6> gpu_rows{{
    {"sm_80", 108, 163, 40, false},
    {"sm_86", 84, 99, 6, false},
    {"sm_89", 128, 99, 72, false},
    {"sm_90", 132, 227, 50, true},
    {"sm_100", 148, 227, 126, true},
    {"sm_120", 170, 99, 96, true},
}};

Target gpu_target(const GpuRow& row) {
  Target t;
  t.family = TargetFamily::cuda;
  t.name = t.arch = row.name;
  t.multiprocessors = row.multiprocessors;
  t.shared_bytes = row.shared_kib << 10;
  t.shared_per_sm = (row.shared_kib + 1) << 10;
  t.l2_bytes = row.l2_mib << 20;
  t.dependent_launch = row.dependent_launch;
  return t;
}

}  // namespace

std::string to_string(const Target& t) {
  if (t.family == TargetFamily::cuda)
    return fmt::format("{} arch {} multiprocessors {} shared {} of {} l2 {}", t.name, t.arch, t.multiprocessors,
                       t.shared_bytes, t.shared_per_sm, t.l2_bytes);
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
  for (const GpuRow& row : gpu_rows)
    if (row.name == name) return gpu_target(row);
  throw Error(ErrorKind::argument, "target", fmt::format("\"{}\" is not a known target", name),
              fmt::format("known are {}", fmt::join(target_names(), ", ")));
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const CpuRow& row : cpu_rows) names.emplace_back(row.name);
  for (const GpuRow& row : gpu_rows) names.emplace_back(row.name);
  return names;
}

}  // namespace v1
}  // namespace attile
