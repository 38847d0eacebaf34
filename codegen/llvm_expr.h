// Expressions as LLVM instructions over lanes. One emitter serves both lane forms: what a leaf means (which
// index runs along the lanes, where a value lies) is the environment's business.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/integer_width.h"
#include "codegen/llvm_builder.h"
#include "dsl/expr.h"

namespace attile::llvm_text {

// A value at every lane of the point at hand: one scalar if it is the same at all of them, else one vector per
// register. Reals are float; integers are i64 as scalars and, in vectors, i32 where that holds them
// (codegen/integer_width.h), else i64; booleans i1.
using Values = std::vector<Val>;
inline bool is_uniform(const Values& x) { return x.size() == 1 && !is_vector(x.front().type); }

class Environment {
 public:
  virtual ~Environment() = default;
  virtual Values index(const Dim& dim) = 0;
  virtual Values length(const Dim& dim) = 0;
  virtual Values scalar(const Node& node) = 0;
  virtual Values variable(const Node& node) = 0;
  virtual Values element(const Node& node, const std::vector<Values>& at) = 0;
  virtual Values random(const Values& seed, const Values& offset) = 0;
  virtual DType dtype(const std::string& tensor) const = 0;
  // Σ over the slots of a selection; only where the environment knows one.
  virtual Values reduce_sum(const Node& node) = 0;
};

class ExprEmitter {
 public:
  ExprEmitter(Function& f, Environment& environment) : f_(f), environment_(environment) {}

  Values emit(const Expr& e);
  // Emits the parts of `e` that do not vary along `dim`, so that they stand in front of a loop over it.
  void hoist(const Expr& e, const Dim& dim);

  // What is emitted between push and pop is forgotten at pop: its instructions stand inside a loop or branch.
  // `frozen`: no state changes inside, so that expressions which read states may be kept as well.
  void push_scope(bool frozen = false) { scopes_.push_back({{}, frozen}); }
  void pop_scope() { scopes_.pop_back(); }

  Values constant(double value, const Values& like);
  // `wide`: integers may have more than 32 bits.
  Values select(const Values& condition, Values a, Values b, bool wide = false);
  Values to_real(const Values& x);
  // Vectors of integers as i64.
  Values widened(const Values& x);
  // floor_div or floor_mod; both operands of one type.
  Values divide(const Node& n, const Values& a, const Values& b);
  bool is_wide(const Node& n) const { return attile::is_wide(n, dtypes()); }
  double magnitude(const Node& n) const { return attile::magnitude(n, dtypes()); }
  // add, sub or mul of i64, which ends at the last number where the result of `n` may exceed it.
  Val arithmetic(const Node& n, Op op, const Val& a, const Val& b);
  // Both operands in the same number of registers and of one type.
  void match(Values& a, Values& b);

 private:
  Values compute(const Node& n);
  const Values* known(const Expr& e) const;
  bool reads_state(const Expr& e);
  void hoist(const Expr& e, const Dim& dim, std::set<const Node*>& seen);
  Values unary(const Node& n, const Values& x);
  Values binary(const Node& n, Values a, Values b);
  void match_integers(const Node& n, Values& a, Values& b);
  DTypeOf dtypes() const {
    return [this](const std::string& tensor) { return environment_.dtype(tensor); };
  }
  Values each(const Values& x, const std::function<Val(const Val&)>& op);
  Values each(const Values& a, const Values& b, const std::function<Val(const Val&, const Val&)>& op);

  Function& f_;
  Environment& environment_;
  struct Scope {
    std::map<const Node*, Values> values;
    bool frozen = false;
    std::map<const Node*, Values> passing = {};  // read states: known while one expression is emitted
    int depth = 0;                               // of the emits under way
  };
  std::vector<Scope> scopes_{1};
  std::map<const Node*, bool> reads_state_;
  std::vector<Expr> kept_;   // keeps memoised nodes alive
};

// Elementary functions on float scalars or vectors; accuracy a few ulp, total as expr.h demands.
Val emit_exp(Function& f, const Val& x);       // 0 below −87.3, NaN stays NaN
Val emit_log(Function& f, const Val& x);
Val emit_tanh(Function& f, const Val& x);
Val emit_sigmoid(Function& f, const Val& x);
// i1: does x stand before y in a selection? The larger does, and NaN before any number.
Val ranks_before(Function& f, const Val& x, const Val& y);

// `lanes` Philox4x32-10 words: <n x i32> (c0, c1, c2, c3 counters, k0, k1 scalar key halves, which word 0..3).
std::string philox_function(Module& m, int lanes);

}  // namespace attile::llvm_text
