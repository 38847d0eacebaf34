// Attention written out with plain loops, from the conventions alone: what guards `evaluate`, the reference of
// everything else. Shares no code with dsl/ but the Philox function.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "dsl/philox.h"

namespace attile::test {

struct PlainAttention {
  enum class Weights { softmax, sigmoid, linear };

  std::int64_t batch = 1, heads = 1, kv_heads = 1, rows = 1, keys = 1, dim = 1, value_dim = 1;
  std::vector<double> q, k, v;  // [batch][heads or kv_heads][rows or keys][dim], contiguous
  Weights weights = Weights::softmax;
  double scale = 1, softcap = 0, dropout = 0;
  bool causal = false, renormalise = true;
  std::int64_t window_left = -1, window_right = -1, top_k = 0, seed = 0, offset = 0;
  std::vector<double> slopes;              // [batch][heads]
  std::vector<double> bias;                // [batch][heads][rows][keys]
  std::vector<char> mask;                  // the same, non-zero = keep
  std::vector<double> sinks;               // [heads]
  std::vector<std::int64_t> lens, prefix;  // [batch]
  std::vector<std::int64_t> documents;     // [batch][keys]

  std::vector<double> o, lse;  // results: [batch][heads][rows][value_dim], [batch][heads][rows]

  void run() {
    o.assign(static_cast<std::size_t>(batch * heads * rows * value_dim), 0);
    lse.assign(static_cast<std::size_t>(batch * heads * rows), 0);
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < rows; ++i) row(b, h, i);
  }

 private:
  static constexpr double infinite = std::numeric_limits<double>::infinity();

  template <typename T>
  static T at(const std::vector<T>& values, std::int64_t i) {
    return values[static_cast<std::size_t>(i)];
  }

  std::int64_t length(std::int64_t b) const { return lens.empty() ? keys : at(lens, b); }
  std::int64_t pair(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return ((b * heads + h) * rows + i) * keys + j;
  }
  std::int64_t kv_row(std::int64_t b, std::int64_t h, std::int64_t j) const {
    return (b * kv_heads + h / (heads / kv_heads)) * keys + j;
  }

  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t diagonal = i + length(b) - rows;
    if (causal && j > diagonal && !(!prefix.empty() && j < at(prefix, b))) return false;
    if (window_left >= 0 && j < diagonal - window_left) return false;
    if (window_right >= 0 && j > diagonal + window_right) return false;
    if (!documents.empty()) {
      const std::int64_t own = diagonal >= 0 && diagonal < length(b) ? at(documents, b * keys + diagonal) : -1;
      if (at(documents, b * keys + j) != own) return false;
    }
    return mask.empty() || at(mask, pair(b, h, i, j)) != 0;
  }

  double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    double s = 0;
    for (std::int64_t d = 0; d < dim; ++d)
      s += at(q, ((b * heads + h) * rows + i) * dim + d) * at(k, kv_row(b, h, j) * dim + d);
    s *= scale;
    if (softcap > 0) s = softcap * std::tanh(s / softcap);
    if (!slopes.empty()) s -= at(slopes, b * heads + h) * static_cast<double>(std::abs(i + length(b) - rows - j));
    if (!bias.empty()) s += at(bias, pair(b, h, i, j));
    return s;
  }

  double kept(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (dropout == 0) return 1;
    const auto threshold = std::nearbyint(dropout * 4294967296.0);
    return dropout_word(seed, offset, b * heads + h, i, j) >= threshold ? 1 / (1 - dropout) : 0;
  }

  void add(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, double weight) {
    for (std::int64_t e = 0; e < value_dim; ++e)
      o[static_cast<std::size_t>(((b * heads + h) * rows + i) * value_dim + e)] +=
          weight * at(v, kv_row(b, h, j) * value_dim + e);
  }

  void row(std::int64_t b, std::int64_t h, std::int64_t i) {
    std::vector<std::int64_t> seen;
    std::vector<double> scores(static_cast<std::size_t>(keys));
    for (std::int64_t j = 0; j < length(b); ++j) {
      if (!sees(b, h, i, j)) continue;
      seen.push_back(j);
      scores[static_cast<std::size_t>(j)] = score(b, h, i, j);
    }
    if (weights != Weights::softmax) {
      for (std::int64_t j : seen) {
        const double s = at(scores, j);
        add(b, h, i, j, (weights == Weights::sigmoid ? 1 / (1 + std::exp(-s)) : s) * kept(b, h, i, j));
      }
      return;
    }
    softmax_row(b, h, i, seen, scores);
  }

  void softmax_row(std::int64_t b, std::int64_t h, std::int64_t i, std::vector<std::int64_t> seen,
                   const std::vector<double>& scores) {
    std::vector<std::int64_t> used = seen;
    if (top_k > 0) {
      std::stable_sort(used.begin(), used.end(),
                       [&](std::int64_t x, std::int64_t y) { return at(scores, x) > at(scores, y); });
      if (static_cast<std::int64_t>(used.size()) > top_k) used.resize(static_cast<std::size_t>(top_k));
      if (renormalise) seen = used;
    }
    const double sink = sinks.empty() ? -infinite : at(sinks, h);
    double top = sink, sum = 0;
    for (std::int64_t j : seen) top = std::max(top, at(scores, j));
    if (top == -infinite) {
      lse[static_cast<std::size_t>((b * heads + h) * rows + i)] = -infinite;
      return;
    }
    for (std::int64_t j : seen) sum += std::exp(at(scores, j) - top);
    sum += std::exp(sink - top);
    for (std::int64_t j : used) add(b, h, i, j, std::exp(at(scores, j) - top) / sum * kept(b, h, i, j));
    lse[static_cast<std::size_t>((b * heads + h) * rows + i)] = top + std::log(sum);
  }
};

}  // namespace attile::test
