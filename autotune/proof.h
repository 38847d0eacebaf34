// Whether a candidate's outputs are right: rows spread over the problem against the untiled double reference, and every
// element against the outputs of a candidate that was proven before.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autotune/bucket.h"
#include "dsl/evaluate.h"
#include "runtime/tensor_ref.h"

namespace attile {
inline namespace v1 {

// Inputs and reference of one problem. Made once, before any worker is started; workers only read it, but for the
// memory they share to show the proven outputs to one another.
class ATTILE_API Reference {
 public:
  // `arguments`: tensors in host memory. About `seconds` of evaluation. Throws Error(argument) where evaluate does.
  Reference(const Algorithm& a, const Problem& p, const Arguments& arguments, double seconds = 0.5);
  ~Reference();
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  // The same call with outputs of its own, filled with NaN (integers: with a pattern). `memory` owns them.
  Arguments fresh_outputs(std::vector<std::unique_ptr<std::byte[]>>& memory) const;
  // Empty, or the first output that is wrong: "o at [0][3][1][7] is 7.1, the reference 2.3 (allowed 0.002)".
  std::string check(const Arguments& outputs) const;

  std::size_t rows() const { return rows_.size(); }
  std::size_t bytes() const;  // of all tensors of the call
  // About what the untiled reference takes for every row.
  double whole_seconds() const { return whole_seconds_; }

 private:
  struct Output {
    std::string name;
    TensorRef where;  // of the caller: shape and type
    std::size_t bytes = 0;
    std::vector<double> values;  // of the rows
    std::int64_t width = 1;
    double tolerance = 0;
    std::byte* proven = nullptr;  // shared: a whole output that agreed
  };
  void choose_rows(const Algorithm& a, EvaluateInputs& in, double seconds);
  std::vector<std::map<std::string, EvaluatedOutput>> evaluated(const Algorithm& a, const EvaluateInputs& in) const;
  double tolerance_of(const Algorithm& a, const Problem& p, const Output& out) const;
  void share_memory();
  std::string check_rows(const Output& o, const TensorRef& actual) const;
  std::string check_written(const Output& o, const TensorRef& actual) const;
  std::string check_all(const Output& o, const TensorRef& actual) const;

  Arguments arguments_;
  std::vector<EvaluateInputs::Row> rows_;
  std::vector<std::int64_t> starts_;  // of the sequences among packed rows
  std::vector<Output> outputs_;
  bool packed_ = false, selects_ = false;
  double whole_seconds_ = 0;
  struct Shared;
  Shared* shared_ = nullptr;
  std::size_t shared_bytes_ = 0;
};

}  // namespace v1
}  // namespace attile
