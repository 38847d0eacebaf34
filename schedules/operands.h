// What schedules need to know of an algorithm: the tensors that its products read and the dims that are compiled in.
#pragma once

#include <string>
#include <vector>

#include "dsl/algorithm.h"

namespace attile {
inline namespace v1 {

// A tensor that a product reads tile by tile.
struct Operand {
  std::string tensor;
  Dim feature;            // its dim beside rows and positions: head_dim or value_dim
  bool streamed = false;  // read along the stream, else along the rows
  bool own_rows = false;  // along both, as the parts that a merge reads
};
// In order of first use by the states and the outputs written at every position; each tensor once.
ATTILE_API std::vector<Operand> product_operands(const Algorithm& a);

// Dims whose extent is part of the problem: all free dims of the algorithm's expressions but the batch-like ones,
// the parallel, the streamed and `slot`. Sorted by name.
ATTILE_API Dims compiled_dims(const Algorithm& a);

// The feature dim of each sum over the slots of a selection in `e`: rows of a tensor that are gathered.
ATTILE_API Dims gathered_dims(const Algorithm& a, const Expr& e);

// Does `e` read an element of that tensor?
ATTILE_API bool depends_on_tensor(const Expr& e, const std::string& tensor);

// Why the stream of the algorithm cannot be split into parts whose merge is built; empty if it can.
ATTILE_API std::string split_fault(const Algorithm& a);

// The k of the algorithm's selection; 0 without one.
ATTILE_API int selection_count(const Algorithm& a);

}  // namespace v1
}  // namespace attile
