// A score and a mask of your own in ready attention: a learnt bias per head and distance, read from a table, and a mask
// that hides every third key from odd heads. Both are part of the generated kernel; the table is one of its arguments.
#include <attile/attile.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

using namespace attile;

int main() try {
  const std::int64_t H = 4, N = 90, D = 64, buckets = 32;
  std::mt19937 bits(3);
  std::normal_distribution<float> normal;
  const auto numbers = [&](std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count));
    for (float& x : out) x = normal(bits);
    return out;
  };
  const std::vector<float> q = numbers(H * N * D), k = numbers(H * N * D), v = numbers(H * N * D),
                           biases = numbers(H * buckets);
  std::vector<float> o(q.size());

  AttentionOptions options;
  options.causal = true;
  const Tensor table = input("table", {head, Dim{"bucket"}});
  options.score_mod = [&](Expr s) { return s + table(head, min(abs(query_position() - key), int(buckets) - 1)); };
  options.mask_mod = [] { return floor_mod(index(head), 2) == 0 || floor_mod(index(key), 3) != 2; };
  const Algorithm algorithm = attention(options);
  std::printf("%s\n", to_string(algorithm).c_str());

  Arguments arguments;
  arguments.tensor("q", contiguous(q.data(), DType::float32, {1, H, N, D}));
  arguments.tensor("k", contiguous(k.data(), DType::float32, {1, H, N, D}));
  arguments.tensor("v", contiguous(v.data(), DType::float32, {1, H, N, D}));
  arguments.tensor("table", contiguous(biases.data(), DType::float32, {H, buckets}));
  arguments.tensor("o", contiguous(o.data(), DType::float32, {1, H, N, D}));
  arguments.real("scale", 0.125);
  const Kernel kernel = Kernel::get(algorithm, problem_of(algorithm, arguments));
  kernel.run(arguments);

  double worst = 0;
  for (std::int64_t h = 0; h < H; ++h)
    for (std::int64_t i = 0; i < N; ++i) {
      std::vector<double> sum(D);
      double weights = 0;
      for (std::int64_t j = 0; j <= i; ++j) {
        if (h % 2 == 1 && j % 3 == 2) continue;
        double s = 0;
        for (std::int64_t d = 0; d < D; ++d) s += double(q[(h * N + i) * D + d]) * k[(h * N + j) * D + d];
        const double weight = std::exp(s * 0.125 + biases[h * buckets + std::min(i - j, buckets - 1)]);
        weights += weight;
        for (std::int64_t d = 0; d < D; ++d) sum[d] += weight * v[(h * N + j) * D + d];
      }
      for (std::int64_t d = 0; d < D; ++d)
        worst = std::max(worst, std::fabs(o[(h * N + i) * D + d] - sum[d] / weights));
    }
  std::printf("own score and mask differ from plain loops by %.1e\n", worst);
  return worst < 1e-5 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
