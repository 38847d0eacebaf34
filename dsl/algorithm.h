// An Algorithm: what is computed, as tile loops with carried states and a rescale rule.
//
//   Tensor q = input("q", {batch, head, query, head_dim});
//   Tensor k = input("k", {batch, kv_head, key, head_dim});
//   Tensor v = input("v", {batch, kv_head, key, value_dim});
//   Algorithm a = for_tiles("attention", query).stream(key, [&](Stream& t) {
//     Expr s = dot(q, k) * scalar("scale");
//     t.visible(key <= query + length(key) - length(query));
//     State m = t.running_max("m", s);
//     Expr p = exp(s - m);
//     State l = t.sum("l", p);
//     State o = t.sum("o", dot(p, v));
//     t.rescale({l, o}, [](Expr from, Expr to) { return exp(from - to); });
//     t.finish([&](Finish& f) {
//       f.output("o", normalise(o, l));
//       f.output("lse", m + log(l));
//     });
//   });
//
// Meaning. For every point of the batch-like dims and every row of the parallel dim, the streamed dim is
// swept once. A position for which `visible` is false takes no part: its weight is exactly 0 and nothing
// read at it matters. A reference state is the max over the visible positions, −inf without any. A sum
// state is the sum over the visible positions. Inside weights and as the target of a factor, a reference
// of −inf reads as 0, so exp(s − m) and the factor are total. In finish, states hold their final values
// and the reference is raw (m + log(l) of an empty row is −inf).
//
// The rescale rule. factor(from, to) must turn every sum it lists from one reference to another:
// x(s, to) = x(s, from)·factor(from, to) for the summand x, and factor(a, c) = factor(a, b)·factor(b, c).
// A sum that is not listed must not read the reference. Building checks this at random points in double and
// throws Error(argument) with a counter-example. From the rule alone come the one-pass update, lazy
// rescaling, splitting the stream and merging the parts (derive.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsl/dtype.h"
#include "dsl/expr.h"

namespace attile {
inline namespace v1 {

// A tensor argument: named dims, outermost first as the user thinks of them; strides come with each call
// (the last dim listed must have stride 1 if it is head_dim or value_dim). Used as an Expr it is the element
// at its own dims; called with one integer expression per dim it is the element there, and reads as
// `outside` where a position lies outside the tensor.
class ATTILE_API Tensor {
 public:
  Tensor(std::string name, Dims dims, Kind kind, double outside)
      : name_(std::move(name)), dims_(std::move(dims)), kind_(kind), outside_(outside) {}
  const std::string& name() const { return name_; }
  const Dims& dims() const { return dims_; }
  Kind kind() const { return kind_; }
  double outside() const { return outside_; }
  operator Expr() const;  // NOLINT
  template <typename... Indices>
  Expr operator()(const Indices&... at) const { return element({Expr(at)...}); }
  Expr element(std::vector<Expr> at) const;

 private:
  std::string name_;
  Dims dims_;
  Kind kind_;
  double outside_;
};

// real: float32, bfloat16 or float16 data; integer: int32 or int64; boolean: one byte, non-zero is true.
ATTILE_API Tensor input(std::string name, Dims dims, Kind kind = Kind::real, double outside = 0);

enum class StateKind : std::uint8_t {
  reference,  // max over the stream; the r of the rescale rule
  sum,        // sum over the stream of `update`
  selection,  // the k largest `update` of the stream, largest first, ties to the lower position: variables
              // "<name>.values" (−inf filled) and "<name>.indices" (−1 filled), both with dim `slot`.
              // −inf is never selected; NaN counts as larger than everything, so that it is seen.
};

struct StateDecl {
  StateKind kind;
  std::string name;
  Expr update;        // over the parallel and the streamed dim; for sum perhaps one more dim (dot's)
  int count = 0;      // selection: k
  // Selection: what is kept in "<name>.indices"; empty: the position. With it `update` may have the dim
  // `slot` too, each slot a candidate of its own in order: how the selections of parts merge (derive.h).
  Expr payload;
};

// A handle to a state inside its algorithm; as an Expr, its current value (in finish: final).
class ATTILE_API State {
 public:
  State(std::string name, Dims dims, Kind kind = Kind::real);
  const std::string& name() const;
  operator Expr() const { return expr_; }  // NOLINT
 private:
  Expr expr_;
};
struct Selection { State values, indices; };

struct OutputDecl {
  std::string name;
  Expr value;              // finish: no streamed dim; tile output: with it
  Kind kind = Kind::real;
  bool per_position = false;  // written at every position of the stream (emit), not once a row
};

struct InputDecl {
  std::string name;
  Dims dims;
  Kind kind;
};
struct ScalarDecl {
  std::string name;
  Kind kind;
};

struct RescaleRule {
  std::string reference;             // name of the reference state
  std::vector<std::string> sums;     // names of the sums it rescales
  Expr from, to;                     // the placeholders that `factor` reads
  Expr factor;
  // factor with expressions put in place of the placeholders; `to` = −inf reads as 0.
  ATTILE_API Expr apply(const Expr& from_value, const Expr& to_value) const;
};

// How many rows and positions a sequence has. dense: the tensors' extents. used: tensor extents for rows,
// "kv_lens" (int32 [batch]) for positions. packed: rows and positions of all sequences stand one after
// another in tensors with batch extent 1; "cu_seqlens_q" and "cu_seqlens_k" (int32 [batch+1]) are the bounds.
enum class Lengths : std::uint8_t { dense, used, packed };

// Built only by for_tiles; immutable afterwards in spirit, a plain value in C++.
struct Algorithm {
  std::string name;
  Dim parallel, streamed;
  Lengths lengths = Lengths::dense;
  std::vector<InputDecl> inputs;     // in order of first use
  std::vector<ScalarDecl> scalars;   // in order of first use
  Expr visible;                      // empty: every position is visible
  std::vector<StateDecl> states;     // in order of declaration
  std::vector<RescaleRule> rules;    // none or one
  std::vector<OutputDecl> outputs;

  ATTILE_API const StateDecl* find_state(std::string_view state_name) const;
  ATTILE_API const InputDecl* find_input(std::string_view input_name) const;
  const RescaleRule* rule() const { return rules.empty() ? nullptr : &rules.front(); }
};

// Dims of an output's tensor: batch, head, the parallel dim, the streamed one where it has a value at every position,
// then those that its value brings in, by name.
ATTILE_API Dims output_dims(const Algorithm& a, const OutputDecl& output);

// The algorithm as a user would write it, one statement a line. Stable over runs; equal algorithms print
// equally, and the text names everything that decides the kernel.
ATTILE_API std::string to_string(const Algorithm& a);
ATTILE_API bool operator==(const Algorithm& a, const Algorithm& b);
ATTILE_API std::uint64_t hash_of(const Algorithm& a);

class ATTILE_API Finish {
 public:
  explicit Finish(Algorithm& a) : algorithm_(a) {}
  void output(std::string name, const Expr& value);
  // The sum `s` as if the reference had been `to`: s · factor(reference, to). How a sink joins at the end.
  Expr rebased(const State& s, const Expr& to) const;

 private:
  Algorithm& algorithm_;
};

class ATTILE_API Stream {
 public:
  explicit Stream(Algorithm& a) : algorithm_(a) {}
  // Removes every position at which `predicate` is false; several calls are and-ed.
  void visible(const Expr& predicate);
  State running_max(std::string name, const Expr& s);
  State sum(std::string name, const Expr& x);
  // k in 1..128.
  Selection top_k(std::string name, const Expr& s, int k);
  Selection top_k(std::string name, const Expr& s, int k, const Expr& payload);
  void rescale(const std::vector<State>& sums, const std::function<Expr(Expr from, Expr to)>& factor);
  // Writes x at every visible position to output `name` (0 at hidden ones): standard attention's S and P.
  void emit(std::string name, const Expr& x);
  void finish(const std::function<void(Finish&)>& body);

 private:
  Algorithm& algorithm_;
};

class ATTILE_API TileLoop {
 public:
  TileLoop(std::string name, Dim parallel) : name_(std::move(name)), parallel_(std::move(parallel)) {}
  TileLoop& lengths(Lengths kind);
  // Builds and checks: shapes, one reference at most, the rule's law, every state used, outputs named once.
  Algorithm stream(const Dim& streamed, const std::function<void(Stream&)>& body);

 private:
  std::string name_;
  Dim parallel_;
  Lengths lengths_ = Lengths::dense;
};
ATTILE_API TileLoop for_tiles(std::string name, const Dim& parallel);

}  // namespace v1
}  // namespace attile
