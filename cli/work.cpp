#include "cli/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace attile::cli {
namespace {

std::int64_t int_at(const TensorRef& t, std::int64_t i) {
  return t.data == nullptr ? 0 : static_cast<const std::int32_t*>(t.data)[t.shape[0] == 1 ? 0 : i * t.strides[0]];
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
}

}  // namespace

std::vector<SequenceSizes> sequences_of(const AttentionCall& call, std::int64_t count) {
  std::vector<SequenceSizes> sequences;
  for (std::int64_t b = 0; b < count; ++b) {
    SequenceSizes s{call.q.shape[2], call.k.shape[2], 0};
    if (call.kv_lens) s.keys = int_at(*call.kv_lens, b);
    if (call.cu_seqlens_q) {
      s.rows = int_at(*call.cu_seqlens_q, b + 1) - int_at(*call.cu_seqlens_q, b);
      s.keys = int_at(*call.cu_seqlens_k, b + 1) - int_at(*call.cu_seqlens_k, b);
    }
    if (call.prefix_len) s.prefix = int_at(*call.prefix_len, b);
    sequences.push_back(s);
  }
  return sequences;
}

KeyRange visible_keys(const AttentionCall& call, const SequenceSizes& s, std::int64_t row) {
  const std::int64_t position = row + s.keys - s.rows;
  std::int64_t from = 0, to = s.keys;
  if (call.causal) to = std::min(to, std::max(position + 1, s.prefix));
  if (call.window_left >= 0) from = std::max(from, position - call.window_left);
  if (call.window_right >= 0) to = std::min(to, position + call.window_right + 1);
  return {from, std::max(from, to)};
}

double bytes_of(const TensorRef& t) {
  double count = 1;
  for (int d = 0; d < t.rank; ++d) count *= static_cast<double>(t.shape[static_cast<std::size_t>(d)]);
  return count * static_cast<double>(size_of(t.dtype));
}

Work work_of(const AttentionCall& call, std::int64_t sequences) {
  Work work;
  double pairs = 0, applied = 0;
  for (const SequenceSizes& s : sequences_of(call, sequences))
    for (std::int64_t row = 0; row < s.rows; ++row) {
      const KeyRange range = visible_keys(call, s, row);
      const std::int64_t keys = range.to - range.from;
      pairs += static_cast<double>(keys);
      applied += static_cast<double>(call.top_k > 0 ? std::min<std::int64_t>(keys, call.top_k) : keys);
    }
  work.flops = 2 * static_cast<double>(call.q.shape[1]) *
               (pairs * static_cast<double>(call.q.shape[3]) + applied * static_cast<double>(call.v.shape[3]));
  for (const TensorRef& t : {call.q, call.k, call.v, call.o}) work.bytes += bytes_of(t);
  for (const auto& t : {call.lse, call.alibi_slopes, call.bias, call.mask, call.sink, call.prefix_len, call.doc_ids,
                        call.kv_lens, call.cu_seqlens_q, call.cu_seqlens_k})
    if (t) work.bytes += bytes_of(*t);
  return work;
}

double Times::median() const { return quantile(seconds, 0.5); }
double Times::best() const { return quantile(seconds, 0); }
double Times::spread() const { return (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / 2 / median(); }

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.3g} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.3g} MB", bytes / 1e6);
  return bytes >= 1e3 ? fmt::format("{:.3g} kB", bytes / 1e3) : fmt::format("{:.0f} bytes", bytes);
}

}  // namespace attile::cli
