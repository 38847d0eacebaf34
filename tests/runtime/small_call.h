// A small attention call with memory for every tensor it may have, outputs filled with a pattern; tests change one
// thing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/attention.h"

namespace attile::test {

struct SmallCall {
  static constexpr std::int64_t B = 2, H = 4, Hk = 2, N = 3, M = 5, D = 16, Dv = 8, sequences = 2;

  std::vector<float> q, k, v, slopes, bias, sink;
  std::vector<std::int32_t> prefix, documents, lens, bounds_q, bounds_k;
  std::vector<std::uint8_t> mask;
  std::vector<float> o, lse, values;
  std::vector<std::int32_t> indices;
  AttentionCall call;

  SmallCall() {
    for (auto [x, count] : {std::pair(&q, B * H * N * D),
                            {&k, B * Hk * M * D},
                            {&v, B * Hk * M * Dv},
                            {&slopes, B * H},
                            {&bias, B * H * N * M},
                            {&sink, H},
                            {&o, B * H * N * Dv},
                            {&lse, B * H * N},
                            {&values, B * H * N * 4}}) {
      x->resize(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < x->size(); ++i) (*x)[i] = static_cast<float>((i * 37 + 11) % 41) / 20.0f - 1.0f;
    }
    prefix = {2, 1}, lens = {4, 5}, bounds_q = {0, 1, 3}, bounds_k = {0, 2, 5};
    documents = {0, 0, 1, 1, 1, 5, 5, 5, 5, 6};
    mask.assign(static_cast<std::size_t>(B * H * N * M), 1);
    indices.resize(static_cast<std::size_t>(B * H * N * 4));
    call.q = contiguous(q.data(), DType::float32, {B, H, N, D});
    call.k = contiguous(k.data(), DType::float32, {B, Hk, M, D});
    call.v = contiguous(v.data(), DType::float32, {B, Hk, M, Dv});
    call.o = contiguous(o.data(), DType::float32, {B, H, N, Dv});
    fill_outputs();
  }
  SmallCall(const SmallCall&) = delete;
  SmallCall& operator=(const SmallCall&) = delete;

  void with_lse() { call.lse = contiguous(lse.data(), DType::float32, {B, H, N}); }
  void with_top_k(int count = 4) {
    call.top_k = count;
    call.values = contiguous(values.data(), DType::float32, {B, H, N, count});
    call.indices = contiguous(indices.data(), DType::int32, {B, H, N, count});
  }
  void with_slopes() { call.alibi_slopes = contiguous(slopes.data(), DType::float32, {B, H}); }
  void with_bias() { call.bias = contiguous(bias.data(), DType::float32, {B, H, N, M}); }
  void with_mask() { call.mask = contiguous(mask.data(), DType::boolean, {B, H, N, M}); }
  void with_sink() { call.sink = contiguous(sink.data(), DType::float32, {H}); }
  void with_prefix() { call.prefix_len = contiguous(prefix.data(), DType::int32, {B}); }
  void with_documents() { call.doc_ids = contiguous(documents.data(), DType::int32, {B, M}); }
  void with_lens() { call.kv_lens = contiguous(lens.data(), DType::int32, {B}); }
  // The same memory as one row of two packed sequences.
  void packed() {
    call.q = contiguous(q.data(), DType::float32, {1, H, N, D});
    call.k = contiguous(k.data(), DType::float32, {1, Hk, M, D});
    call.v = contiguous(v.data(), DType::float32, {1, Hk, M, Dv});
    call.o = contiguous(o.data(), DType::float32, {1, H, N, Dv});
    call.cu_seqlens_q = contiguous(bounds_q.data(), DType::int32, {sequences + 1});
    call.cu_seqlens_k = contiguous(bounds_k.data(), DType::int32, {sequences + 1});
  }

  void fill_outputs() {
    for (auto* x : {&o, &lse, &values}) std::fill(x->begin(), x->end(), -77.0f);
    std::fill(indices.begin(), indices.end(), -77);
  }
  bool outputs_untouched() const {
    const auto untouched = [](const auto& x) {
      return std::all_of(x.begin(), x.end(), [](auto value) { return value == -77; });
    };
    return untouched(o) && untouched(lse) && untouched(values) && untouched(indices);
  }
};

}  // namespace attile::test
