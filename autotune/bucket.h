// What a tuning result is known by: the problem as a bucket, and the machine it was measured on.
#pragma once

#include <cstdint>
#include <string>

#include "schedules/problem.h"

namespace attile {
inline namespace v1 {

// The sizes of a call. rows and keys: of a sequence; for packed ones the mean.
struct CallShape {
  std::int64_t sequences = 1, heads = 1, kv_heads = 1, rows = 0, keys = 0;
  double visible = 1;  // share of all (row, key) pairs that masks leave, as far as sizes tell
  bool operator==(const CallShape&) const = default;
};

// Problems that one result serves. The algorithm holds the mask's kind and every modifier, the problem head dims, types
// and the grouped-head ratio; lengths and tasks per unit are powers of two, rounded up.
struct Bucket {
  std::string algorithm;  // "attention 0123456789abcdef"
  std::string problem;    // to_string(Problem)
  int rows_log2 = 0, keys_log2 = 0;
  int fill_log2 = 0;  // of sequences × heads over the device's units (SMs, threads)

  bool same_kind(const Bucket& other) const { return algorithm == other.algorithm && problem == other.problem; }
  bool operator==(const Bucket&) const = default;
};
ATTILE_API Bucket bucket_of(const Algorithm& a, const Problem& p, const CallShape& shape, int units);
ATTILE_API std::string to_string(const Bucket& bucket);
// Steps of two between buckets of one kind; far_apart where a result does not carry over: of another kind, or more than
// three steps away in one direction.
inline constexpr int far_apart = 1 << 20;
ATTILE_API int distance(const Bucket& a, const Bucket& b);

// A result holds on one model of device, with these versions.
struct Machine {
  std::string target;     // "sm_90", "x86-64-v4-bf16"
  std::string model;      // "NVIDIA H200", "AMD EPYC 9554 64-Core Processor"
  int units = 1;          // SMs; threads of a call on a CPU
  int power_limit_w = 0;  // 0: not known
  std::string driver;     // "13.0"; empty on a CPU
  std::string compiler;   // "LLVM 19.1.7", "NVRTC 13.0"
  std::string library;    // of Attile
  bool operator==(const Machine&) const = default;

  // "NVIDIA H200, 132 units, 700 W".
  ATTILE_API std::string text() const;
  // "attile 0.1.0, NVRTC 13.0, driver 13.0".
  ATTILE_API std::string versions() const;
  // Name of its files: letters of the model that any file system takes, and a hash of the whole.
  ATTILE_API std::string file_name() const;
};

}  // namespace v1
}  // namespace attile
