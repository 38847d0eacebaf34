// One attention call as a test sees it: options, sizes, layouts, schedule; made from a seed, printed in one line, run
// on a kernel and compared with `evaluate`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dsl/evaluate.h"
#include "dsl/library.h"
#include "runtime/kernel.h"
#include "tests/numeric/guarded_tensor.h"

namespace attile::test {

struct ProblemCase {
  AttentionOptions options;
  std::int64_t batches = 1, heads = 1, kv_heads = 1, rows = 1, positions = 1, head_dim = 16, value_dim = 16;
  DType dtype = DType::float32, out_dtype = DType::float32, bias_dtype = DType::float32;
  std::vector<std::int64_t> lengths_q, lengths_k;   // packed: per sequence; used: lengths_k
  Schedule schedule;
  std::uint64_t seed = 1;
  double window_left = -1, window_right = -1;
  bool nan_in_hidden = false;   // poison K and V at positions that no row sees

  std::string describe() const;
};

// Everything a call needs, filled from the case's seed.
class CaseData {
 public:
  explicit CaseData(const ProblemCase& c);
  const Algorithm& algorithm() const { return algorithm_; }
  Arguments arguments() const;
  EvaluateInputs evaluate_inputs() const;
  GuardedTensor& tensor(const std::string& name) { return *tensors_.at(name); }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  void fill_outputs(double value);

 private:
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape);
  void add_inputs();
  void add_outputs();
  std::uint64_t next();
  double unit();

  ProblemCase case_;
  Algorithm algorithm_;
  std::map<std::string, std::unique_ptr<GuardedTensor>> tensors_;
  std::map<std::string, double> numbers_;
  std::uint64_t state_;
};

// A random case; small enough that `evaluate` takes milliseconds. Runs of this many seeds share a compiled kernel, since
// compiling takes most of the time.
std::uint64_t calls_per_kernel();
ProblemCase random_case(std::uint64_t seed);

// Runs the kernel and compares every output. Empty if all agree, else one line with the worst element.
std::string run_and_compare(const ProblemCase& c);

}  // namespace attile::test
