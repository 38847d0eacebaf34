// Expressions over tiles, dims and indices: immutable trees of a few node kinds, shared freely.
//
// Meaning. An Expr stands for one value at each point of its free dims (`free_dims`): a tensor element, an
// index, a score… Arithmetic is on reals unless both operands are integers. Integers are exact (indices,
// lengths, document ids); a mix is real. Comparisons and logic give booleans. Rounding: `evaluate` works in
// double; kernels work in float32 and int32/int64, exp and tanh to within a few ulp.
// Every constructor checks its operands and throws Error(argument) in the user's terms.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsl/dim.h"
#include "dsl/dtype.h"
#include "dsl/export.h"

namespace attile {
inline namespace v1 {

enum class Op : std::uint8_t {
  // leaves
  constant,   // value
  scalar,     // name: a number given at each call (float32 or, if integer, int64)
  index,      // dim: position along it; query and key count within their own sequence
  length,     // dim: number of positions of the sequence at hand (key: the used length)
  variable,   // name, dims: a carried state, or a placeholder of a rule
  // tensor access and contraction
  element,    // name (tensor), args (one integer per dim); `value` is read outside the tensor
  random,     // args {seed, offset}: Philox word of (sequence, head, query, key), an integer in [0, 2^32)
  dot,        // args {a, b}, dim: sum over dim of a·b
  reduce_sum, // args {a}, dim: sum over dim of a
  // unary
  negate, abs, exp, log, tanh, sigmoid, floor, logical_not, to_real,
  // binary; div is real division, floor_div and floor_mod are for integers
  add, sub, mul, div, floor_div, floor_mod, min, max,
  less, less_equal, equal, not_equal, logical_and, logical_or,
  // ternary
  select,     // args {condition, if_true, if_false}: the other branch never matters, not even a NaN in it
};

enum class Kind : std::uint8_t { real, integer, boolean };
// Can elements of the type be numbers of the kind? And the types that can, in words.
ATTILE_API bool holds(DType type, Kind kind);
ATTILE_API std::string_view dtypes_of(Kind kind);

class Expr;
struct Node {
  Op op;
  Kind kind = Kind::real;
  std::vector<Expr> args;
  double value = 0;   // constant; for element: what a position outside the tensor reads as
  std::string name;   // scalar, variable, element
  Dim dim;            // index, length, dot, reduce_sum
  Dims dims;          // free dims, sorted by name; kv_head, which follows from head, not beside it
  Dims axes;          // element: the dims that the tensor was declared with, one per argument
  int height = 0;     // longest path to a leaf; bounded, so that recursion over a tree is safe
};

class ATTILE_API Expr {
 public:
  Expr() = default;                       // empty; only assignable and testable
  Expr(double value);                     // NOLINT: numbers are expressions
  Expr(int value);                        // NOLINT
  Expr(std::int64_t value);               // NOLINT
  Expr(bool) = delete;                    // a C++ bool here is a comparison of dims or handles gone astray
  Expr(const Dim& dim);                   // NOLINT: a dim used as a value is its index
  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

  explicit operator bool() const { return node_ != nullptr; }
  // To be used instead of !e, e && …, which are expressions themselves.
  bool empty() const { return node_ == nullptr; }
  const Node& operator*() const { return *node_; }
  const Node* operator->() const { return node_.get(); }
  const Node* get() const { return node_.get(); }

 private:
  std::shared_ptr<const Node> node_;
};

// The checked constructor behind all the functions below; fills kind and free dims.
ATTILE_API Expr make_expr(Node node);

ATTILE_API Expr scalar(std::string name, Kind kind = Kind::real);
ATTILE_API Expr index(const Dim& dim);
ATTILE_API Expr length(const Dim& dim);
ATTILE_API Expr variable(std::string name, Dims dims, Kind kind = Kind::real);
ATTILE_API Expr constant(double value);
ATTILE_API Expr infinity();

ATTILE_API Expr operator-(const Expr& a);
ATTILE_API Expr operator!(const Expr& a);
ATTILE_API Expr operator+(const Expr& a, const Expr& b);
ATTILE_API Expr operator-(const Expr& a, const Expr& b);
ATTILE_API Expr operator*(const Expr& a, const Expr& b);
ATTILE_API Expr operator/(const Expr& a, const Expr& b);   // real division
ATTILE_API Expr floor_div(const Expr& a, const Expr& b);   // integers; 0 by a divisor that is not positive
ATTILE_API Expr floor_mod(const Expr& a, const Expr& b);
ATTILE_API Expr operator<(const Expr& a, const Expr& b);
ATTILE_API Expr operator<=(const Expr& a, const Expr& b);
ATTILE_API Expr operator>(const Expr& a, const Expr& b);
ATTILE_API Expr operator>=(const Expr& a, const Expr& b);
ATTILE_API Expr operator==(const Expr& a, const Expr& b);
ATTILE_API Expr operator!=(const Expr& a, const Expr& b);
ATTILE_API Expr operator&&(const Expr& a, const Expr& b);
ATTILE_API Expr operator||(const Expr& a, const Expr& b);
ATTILE_API Expr min(const Expr& a, const Expr& b);
ATTILE_API Expr max(const Expr& a, const Expr& b);   // NaN in either operand gives NaN
ATTILE_API Expr abs(const Expr& a);
ATTILE_API Expr exp(const Expr& a);
ATTILE_API Expr log(const Expr& a);
ATTILE_API Expr tanh(const Expr& a);
ATTILE_API Expr sigmoid(const Expr& a);
ATTILE_API Expr floor(const Expr& a);
ATTILE_API Expr to_real(const Expr& a);
ATTILE_API Expr select(const Expr& condition, const Expr& if_true, const Expr& if_false);

// o / l, and 0 where l is 0: the total form of the final division.
ATTILE_API Expr normalise(const Expr& o, const Expr& l);

// Sum over one dim of a·b. Without `over`: the one dim that both have, batch-like dims apart.
ATTILE_API Expr dot(const Expr& a, const Expr& b);
ATTILE_API Expr dot(const Expr& a, const Expr& b, const Dim& over);
ATTILE_API Expr reduce_sum(const Expr& a, const Dim& over);

// The Philox4x32-10 word of decision: key = seed, counter = (offset, sequence·heads + head, query, key/4),
// word key%4. Integer scalars seed and offset.
ATTILE_API Expr random_word(const Expr& seed, const Expr& offset);

// Where a rule's printed form is wanted: infix text with the user's names, minimal parentheses.
ATTILE_API std::string to_string(const Expr& e);
// Same tree (names, constants, structure)?
ATTILE_API bool same(const Expr& a, const Expr& b);
// `e` with each variable named in `names` replaced by the expression beside it.
ATTILE_API Expr substitute(const Expr& e, const std::vector<std::pair<std::string, Expr>>& replacements);
// Does any node of `e` satisfy…: reads the variable `name` / any element of tensor `name`.
ATTILE_API bool depends_on_variable(const Expr& e, const std::string& name);
ATTILE_API bool has_free_dim(const Expr& e, const Dim& dim);

}  // namespace v1
}  // namespace attile
