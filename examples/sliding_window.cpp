// Sliding-window attention with sinks on packed sequences: every query sees itself and the 15 keys before it, and each
// head has one more logit in its sum. Three sequences of different lengths stand one after another, without padding.
#include <attile/attile.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

using namespace attile;

int main() try {
  const std::int64_t H = 2, D = 32, left = 15;
  const std::vector<std::int32_t> bounds{0, 40, 41, 100};
  const std::int64_t total = bounds.back();
  std::mt19937 bits(2);
  std::normal_distribution<float> normal;
  const auto numbers = [&](std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count));
    for (float& x : out) x = normal(bits);
    return out;
  };
  // [token][head][d], as projections write it: strides say so, nothing is copied.
  const std::vector<float> q = numbers(total * H * D), k = numbers(total * H * D), v = numbers(total * H * D),
                           sink = numbers(H);
  std::vector<float> o(q.size());
  const auto by_token = [&](const float* data) {
    return strided(data, DType::float32, std::vector<std::int64_t>{1, H, total, D},
                   std::vector<std::int64_t>{0, D, H * D, 1});
  };

  AttentionCall call;
  call.q = by_token(q.data()), call.k = by_token(k.data()), call.v = by_token(v.data()), call.o = by_token(o.data());
  call.causal = true;
  call.window_left = left;
  call.sink = contiguous(sink.data(), DType::float32, {H});
  call.cu_seqlens_q = call.cu_seqlens_k = contiguous(bounds.data(), DType::int32, {4});
  run_attention(call);

  double worst = 0;
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b)
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t i = bounds[b]; i < bounds[b + 1]; ++i) {
        std::vector<double> sum(D);
        double weights = std::exp(double(sink[h]));
        for (std::int64_t j = std::max<std::int64_t>(bounds[b], i - left); j <= i; ++j) {
          double s = 0;
          for (std::int64_t d = 0; d < D; ++d) s += double(q[(i * H + h) * D + d]) * k[(j * H + h) * D + d];
          const double weight = std::exp(s / std::sqrt(double(D)));
          weights += weight;
          for (std::int64_t d = 0; d < D; ++d) sum[d] += weight * v[(j * H + h) * D + d];
        }
        for (std::int64_t d = 0; d < D; ++d)
          worst = std::max(worst, std::fabs(o[(i * H + h) * D + d] - sum[d] / weights));
      }
  std::printf("sliding window with sinks differs from plain loops by %.1e\n", worst);
  return worst < 1e-5 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
