// A named dimension. Tensors, states and expressions carry dims by name; two dims are the same if their
// names are. Extents are not part of a Dim: head_dim, value_dim and the group ratio come from the Problem
// (compiled in), all others from the tensors at run time.
#pragma once

#include <string>
#include <vector>

namespace attile {
inline namespace v1 {

struct Dim {
  std::string name;
  // Only equality: `key < query` is a predicate over indices (expr.h), not an ordering of names.
  bool operator==(const Dim&) const = default;
};
using Dims = std::vector<Dim>;

// The dims of attention. `batch` counts sequences (also when lengths are packed); `kv_head` is the kv head
// of a query head: head / (heads / kv_heads). `slot` numbers the entries of a selection (top-k).
inline const Dim batch{"batch"}, head{"head"}, kv_head{"kv_head"}, query{"query"}, key{"key"},
    head_dim{"head_dim"}, value_dim{"value_dim"}, slot{"slot"};

// Dims that only choose which independent problem is meant; a dot never contracts over them.
inline bool is_batch_like(const Dim& d) { return d == batch || d == head || d == kv_head; }

}  // namespace v1
}  // namespace attile
