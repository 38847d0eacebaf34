// What CPU this process runs on and what generated code may use of it, read without LLVM (cpuid, the register state
// the system saves, the affinity mask). A feature whose registers the system does not save counts as absent.
// The value also names a CPU for code that is only emitted, never run (named_cpu).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

struct HostCpu {
  // What the code generator is told: LLVM's CPU name (a psABI level), the features beyond that level ("+avx512bf16"),
  // and the chip to schedule for ("znver4"; empty when not known).
  std::string cpu;
  std::string features;
  std::string tune;

  std::string model;               // "AMD EPYC 9554 64-Core Processor"; empty for a named CPU
  std::vector<std::string> flags;  // every feature of the table below that may be used, LLVM's names, sorted
  int vector_bytes = 16;           // widest float vector: 16, 32 or 64
  int cores = 1;                   // that this process may use (affinity)
  std::int64_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // per core, per core, whole; 0 when not known

  bool has(std::string_view flag) const;
  // All that changes machine code, for keys and for `emit`: "x86-64-v4 +avx512bf16 tune znver4".
  std::string isa() const;

  friend bool operator==(const HostCpu&, const HostCpu&) = default;
};

// The machine as it is.
ATTILE_API HostCpu detect_host_cpu();

// The machine as far as ATTILE_CPU lets kernels use it; detected once. Throws Error(unsupported) when ATTILE_CPU asks
// for what this machine lacks.
ATTILE_API const HostCpu& host_cpu();

// `host` restricted to "x86-64-v3" or "x86-64-v4" ("native" and "": unchanged). Throws Error(unsupported) where the
// host lacks the level, Error(argument) for another name.
ATTILE_API HostCpu limited_to(const HostCpu& host, std::string_view level);

// A CPU that is not here, for text output: "x86-64-v3" or "x86-64-v4", with typical cache sizes and no tuning.
// Throws Error(argument) for another name.
ATTILE_API HostCpu named_cpu(std::string_view level);

// Cores this process may use: affinity mask, then the container's CPU quota.
ATTILE_API int usable_cores();

}  // namespace v1
}  // namespace attile
