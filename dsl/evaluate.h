// The reference for everything: runs an Algorithm untiled, in double, on the host, straight from its meaning.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "dsl/algorithm.h"

namespace attile {
inline namespace v1 {

// A strided view of host memory for `evaluate`; owns nothing. Strides in elements, one per dim of the
// declared input. Extent 1 along batch or head with stride 0 is how a broadcast dim arrives.
struct HostTensor {
  DType dtype = DType::float32;
  const void* data = nullptr;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

struct EvaluateInputs {
  std::map<std::string, HostTensor> tensors;   // also kv_lens, cu_seqlens_q, cu_seqlens_k where lengths ask
  std::map<std::string, double> scalars;
  std::int64_t batch = 0, heads = 0;           // number of sequences and of query heads
  // Rows to compute: every row when empty, else only those with (sequence, head, row) listed.
  struct Row { std::int64_t sequence, head, row; };
  std::vector<Row> rows;
  // Only these positions of the stream take part (one part of a split); indices and lengths stay the sequence's.
  std::int64_t stream_begin = 0, stream_end = std::numeric_limits<std::int64_t>::max();
};

// Contiguous results. Without a row list the shape is that of the declared output with all dims
// ([batch][head][query]… or, when packed, [1][head][total]…); with one, [row]….
struct EvaluatedOutput {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};
// Of the finite values; 0 where there is none.
ATTILE_API double largest_magnitude(const std::vector<double>& values);

// Sums run in order of position, in double; integers are exact up to 2^53. Takes B·H·Nq·Nk·(D + Dv) steps.
// Throws Error(argument) for a missing tensor or scalar and for shapes that do not agree.
ATTILE_API std::map<std::string, EvaluatedOutput> evaluate(const Algorithm& a, const EvaluateInputs& in);

}  // namespace v1
}  // namespace attile
