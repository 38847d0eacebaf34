// Where a kernel runs: the facts about a chip that decide its text. A plain value; detection is runtime's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

enum class TargetFamily : std::uint8_t { cpu, cuda };

struct Target {
  TargetFamily family = TargetFamily::cpu;
  std::string name;  // "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16"; "sm_90"
  // CPU
  int vector_bytes = 32;  // widest vector that arithmetic uses
  int vector_registers = 16;
  bool bf16_dot = false;      // AVX512_BF16's dot of pairs
  std::string llvm_cpu;       // e.g. "x86-64-v4"
  std::string llvm_features;  // e.g. "+avx512bf16"
  std::int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10;
  // GPU
  std::string arch;                                  // what NVRTC is asked for, e.g. "sm_90"
  int multiprocessors = 0;
  std::int64_t shared_bytes = 0, shared_per_sm = 0;  // shared memory: the most of one task, and of a multiprocessor
  bool dependent_launch = false;                     // a kernel may start while the one before it ends

  bool operator==(const Target&) const = default;
};

ATTILE_API std::string to_string(const Target& t);
// The named targets that text can be emitted for without owning one. Throws Error(argument) listing the names.
ATTILE_API Target target_from_name(const std::string& name);
ATTILE_API std::vector<std::string> target_names();

}  // namespace v1
}  // namespace attile
