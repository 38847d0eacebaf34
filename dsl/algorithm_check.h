// The checks behind the builder, and the argument lists that follow from an algorithm's expressions.
// Every function throws Error(argument) in the user's terms. Internal to dsl/.
#pragma once

#include <string>
#include <vector>

#include "dsl/algorithm.h"

namespace attile {
inline namespace v1 {

// Those of `dims` beside the batch-like ones, the parallel and the streamed dim.
Dims extra_dims(const Algorithm& a, const Dims& dims);
inline Dims extra_dims(const Algorithm& a, const Expr& e) { return extra_dims(a, e->dims); }

// A dot or reduce_sum over the streamed dim: the tile form of a sum over the stream.
bool contracts_stream(const Algorithm& a, const Expr& e);

// All expressions of the algorithm in a fixed order: updates, visible, factor, outputs.
std::vector<Expr> all_expressions(const Algorithm& a);

// Fills inputs and scalars from the expressions, in order of first use, then kv_lens or cu_seqlens_*.
void collect_arguments(Algorithm& a);

// One expression over rows and positions: no stray state, dims as allowed, no contraction of the stream inside.
struct ExprLimits {
  bool streamed = true;    // may vary along the streamed dim
  bool reference = false;  // may read the reference state
  bool states = false;     // may read every state
  std::size_t extra = 0;   // how many further dims
};
void check_expression(const Algorithm& a, const std::string& what, const Expr& e, const ExprLimits& limits);

// What only the whole algorithm shows: names, use of states, the rule and its law.
void check_algorithm(const Algorithm& a);

[[noreturn]] void refuse_algorithm(const Algorithm& a, const std::string& what, const std::string& remedy = {});

}  // namespace v1
}  // namespace attile
