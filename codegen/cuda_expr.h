// Expressions as C++ text over the names that a form gives to their leaves.
//
// Types of the text: real expressions are float, booleans bool, integers i32, or i64 where a scalar of the call or an
// int64 tensor takes part. Divisions by what does not vary over the elements become products with its reciprocal.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/integer_width.h"
#include "codegen/cuda_writer.h"
#include "dsl/expr.h"

namespace attile::cuda_text {

class Environment {
 public:
  virtual ~Environment() = default;
  virtual std::string index(const Dim& dim) = 0;
  virtual std::string length(const Dim& dim) = 0;
  virtual std::string scalar(const Node& node) = 0;
  virtual std::string variable(const Node& node) = 0;
  virtual std::string element(const Node& node, const std::vector<std::string>& at) = 0;
  virtual std::string random(const std::string& seed, const std::string& offset) = 0;
  virtual std::string reduce_sum(const Node& node) = 0;
  virtual DType dtype(const std::string& tensor) const = 0;
  // The index of the stream as `first` (the same for all elements of a thread, per tile) + `offset` (known to the compiler).
  struct Counted {
    Dim dim;
    std::string first, offset;
  };
  virtual const Counted* counted() const { return nullptr; }
  // Does the value vary over the elements of a row?
  virtual bool varies(const Expr& e) const = 0;
  // Is an absolute error of 1e-7 in tanh enough?
  virtual bool coarse() const = 0;
};

class ExprText {
 public:
  // Expressions that occur more than once are named by lines of `out` before the statement at hand.
  // Their names begin with `prefix`.
  ExprText(Environment& environment, CodeWriter& out, std::string prefix = "t")
      : environment_(environment), out_(out), prefix_(std::move(prefix)) {}

  std::string text(const Expr& e);
  // The same as float, whatever its kind.
  std::string real(const Expr& e);
  // Is the text of an integer i64?
  bool is_wide(const Node& n) const { return attile::is_wide(n, dtypes()); }
  bool saturates(const Node& n) const { return attile::saturates(n, dtypes()); }
  double magnitude(const Node& n) const { return attile::magnitude(n, dtypes()); }
  // A name for `text`, which is emitted at this point.
  std::string named(const std::string& text);

 private:
  void count(const Expr& e, std::map<const Node*, int>& uses) const;
  std::string emit(const Expr& e);
  std::string compute(const Expr& e);
  std::string unary(const Node& n);
  std::string binary(const Node& n);
  DTypeOf dtypes() const {
    return [this](const std::string& tensor) { return environment_.dtype(tensor); };
  }
  std::string multiply_add(const Node& sum);
  std::string exponential(const Expr& argument);
  std::string counted_real(const Expr& e);
  std::string emit_real(const Expr& e);

  Environment& environment_;
  CodeWriter& out_;
  std::map<const Node*, int> uses_;
  std::map<const Node*, std::string> names_;
  std::string prefix_;
  int next_name_ = 0;
};

std::string constant_text(double value, Kind kind);
// The function of base.cuh that adds, subtracts or multiplies i64 and ends at the last number; null for other ops.
const char* ending_function(Op op);
// How often `e` counts up with the index of `dim`; empty where it is not linear in it.
std::optional<int> coefficient(const Expr& e, const Dim& dim);

}  // namespace attile::cuda_text
