// Ready attention: causal, six query heads on two kv heads, with the log-sum-exp of every row. The first call compiles
// a kernel for this machine; the second, with other lengths, only runs it.
#include <attile/attile.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

using namespace attile;

namespace {

std::vector<float> random_numbers(std::int64_t count) {
  static std::mt19937 bits(1);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& x : out) x = normal(bits);
  return out;
}

// The largest difference of o and lse from plain loops.
double error_for(std::int64_t rows, std::int64_t keys) {
  const std::int64_t B = 2, H = 6, Hk = 2, D = 64;
  const std::vector<float> q = random_numbers(B * H * rows * D), k = random_numbers(B * Hk * keys * D),
                           v = random_numbers(B * Hk * keys * D);
  std::vector<float> o(q.size()), lse(static_cast<std::size_t>(B * H * rows));

  AttentionCall call;
  call.q = contiguous(q.data(), DType::float32, {B, H, rows, D});
  call.k = contiguous(k.data(), DType::float32, {B, Hk, keys, D});
  call.v = contiguous(v.data(), DType::float32, {B, Hk, keys, D});
  call.o = contiguous(o.data(), DType::float32, {B, H, rows, D});
  call.lse = contiguous(lse.data(), DType::float32, {B, H, rows});
  call.causal = true;
  run_attention(call);

  double worst = 0;
  for (std::int64_t bh = 0; bh < B * H; ++bh)
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t kv = bh / H * Hk + bh % H / (H / Hk), row = bh * rows + i;
      std::vector<double> sum(D);
      double weights = 0;
      for (std::int64_t j = 0; j <= i + keys - rows; ++j) {  // the last query sees all keys
        double s = 0;
        for (std::int64_t d = 0; d < D; ++d) s += double(q[row * D + d]) * k[(kv * keys + j) * D + d];
        const double weight = std::exp(s / std::sqrt(double(D)));
        weights += weight;
        for (std::int64_t d = 0; d < D; ++d) sum[d] += weight * v[(kv * keys + j) * D + d];
      }
      worst = std::max(worst, std::fabs(lse[row] - std::log(weights)));
      for (std::int64_t d = 0; d < D; ++d) worst = std::max(worst, std::fabs(o[row * D + d] - sum[d] / weights));
    }
  return worst;
}

}  // namespace

int main() try {
  const double prefill = error_for(100, 100), with_a_past = error_for(33, 150);
  std::printf("causal attention differs from plain loops by %.1e, with 117 keys of the past by %.1e\n", prefill,
              with_a_past);
  return prefill < 1e-5 && with_a_past < 1e-5 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
