// One attention call made by hand, tensor by tensor: for tests of one input with one right answer. Every tensor lies
// between unreadable pages; outputs are NaN before each run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsl/evaluate.h"
#include "dsl/library.h"
#include "runtime/kernel.h"
#include "tests/numeric/guarded_tensor.h"

namespace attile::test {

struct Sizes {
  std::int64_t batches = 1, heads = 1, kv_heads = 0, rows = 1, keys = 1, head_dim = 4, value_dim = 0;  // 0: as heads, head_dim
};

using Values = std::vector<double>;

class Call {
 public:
  // q, k and v hold multiples of 1/8 in [−2, 2], the same in every type; the scale is 1/√D. What else the options ask
  // for is put by the test.
  Call(const AttentionOptions& options, const Sizes& sizes, DType dtype = DType::float32);
  Call(Algorithm algorithm, const Sizes& sizes, DType dtype = DType::float32);

  const Algorithm& algorithm() const { return algorithm_; }
  Problem problem() const { return problem_of(algorithm_, arguments()); }

  // A tensor with the values of the list, row-major; one value fills it.
  Call& put(const std::string& name, DType dtype, std::vector<std::int64_t> shape, const Values& values);
  void forget(const std::string& name) { tensors_.erase(name); }
  // The same values under other strides (row-major when empty), the first element `shift` elements past a page border.
  void lay(const std::string& name, std::vector<std::int64_t> strides, int shift = 0);
  // As it is passed; changing it changes the call (a stride of 0, say), not the memory.
  TensorRef& ref(const std::string& name) { return tensors_.at(name).ref; }
  const TensorRef& ref(const std::string& name) const { return tensors_.at(name).ref; }
  Call& number(const std::string& name, double value);

  // Elements in row-major order of the shape.
  void set(const std::string& name, std::int64_t i, double value);
  void fill(const std::string& name, const std::function<double(std::int64_t)>& value);
  double get(const std::string& name, std::int64_t i) const;
  Values values(const std::string& name) const;

  Arguments arguments() const;
  EvaluateInputs evaluate_inputs() const;

  // Fills the outputs with NaN (indices: −77) and runs.
  void run(const std::optional<Schedule>& schedule = std::nullopt);
  // Runs and returns an output.
  Values output(const std::string& name, const std::optional<Schedule>& schedule = std::nullopt);
  // "" if the outputs of the last run agree with `expected`, else the worst element. Of o |error| ≤ t·max|v| is allowed
  // with t = 1e-5 for float32, 2e-3 for float16, 1e-2 for bfloat16; of other outputs 1e-5·(1 + |x|).
  std::string mismatch(const std::map<std::string, EvaluatedOutput>& expected, double factor = 1) const;
  std::string mismatch() const { return mismatch(evaluate(algorithm_, evaluate_inputs())); }

  // A handful of schedules that differ in lanes, tiles, parts and dot instruction, made legal for this call.
  std::vector<Schedule> tilings() const;

 private:
  struct Held { std::shared_ptr<GuardedTensor> memory; TensorRef ref; };
  void put_operands(DType dtype);
  void put_outputs(DType dtype);

  Algorithm algorithm_;
  Sizes sizes_;
  DType dtype_;
  std::map<std::string, Held> tensors_;
  std::map<std::string, double> numbers_;
};

AttentionOptions with(const std::function<void(AttentionOptions&)>& set);
// Runs under every tiling; "" or the first disagreement with `evaluate`, the schedule beside it.
std::string run_all(Call& call, double factor = 1);
// The same bits, NaN included?
bool same_bits(const Values& a, const Values& b);
bool has_nan(const Values& values);
// Lets the next call find NaN in all memory that calls reuse: the scratch of every worker and this thread's work space.
void poison_reused_memory();

}  // namespace attile::test
