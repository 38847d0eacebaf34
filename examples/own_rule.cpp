// A carried state of your own: attention that also returns the entropy of each row's weights. With p = exp(s − m), l =
// Σp and e = Σp·s it is ln l + m − e/l; e is rescaled like l. From the rule alone comes the kernel that sweeps the keys
// once, and the one that splits them into four parts and merges these.
#include <attile/attile.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

using namespace attile;

int main() try {
  const Tensor q = input("q", {batch, head, query, head_dim});
  const Tensor k = input("k", {batch, kv_head, key, head_dim}), v = input("v", {batch, kv_head, key, value_dim});
  const Algorithm algorithm = for_tiles("attention_with_entropy", query).stream(key, [&](Stream& t) {
    const Expr s = dot(q, k) * scalar("scale");
    const State m = t.running_max("m", s);
    const Expr p = exp(s - m);
    const State l = t.sum("l", p), e = t.sum("e", p * s), o = t.sum("o", dot(p, v));
    t.rescale({l, e, o}, [](Expr from, Expr to) { return exp(from - to); });
    t.finish([&](Finish& f) {
      f.output("o", normalise(o, l));
      f.output("entropy", m + log(l) - normalise(e, l));
    });
  });

  const std::int64_t H = 2, N = 5, M = 300, D = 64;
  std::mt19937 bits(4);
  std::normal_distribution<float> normal;
  std::vector<float> Q(H * N * D), K(H * M * D), V(H * M * D), O(H * N * D), entropy(H * N);
  for (auto* x : {&Q, &K, &V})
    for (float& number : *x) number = normal(bits);
  Arguments arguments;
  arguments.tensor("q", contiguous(Q.data(), DType::float32, {1, H, N, D}))
      .tensor("k", contiguous(K.data(), DType::float32, {1, H, M, D}));
  arguments.tensor("v", contiguous(V.data(), DType::float32, {1, H, M, D}))
      .tensor("o", contiguous(O.data(), DType::float32, {1, H, N, D}));
  arguments.tensor("entropy", contiguous(entropy.data(), DType::float32, {1, H, N})).real("scale", 0.125);

  double worst = 0;
  const Problem problem = problem_of(algorithm, arguments);
  for (const int splits : {1, 4}) {
    Schedule schedule = default_schedule(algorithm, problem, host_target());
    schedule.splits = splits;
    Kernel::get(algorithm, problem, made_legal(algorithm, problem, schedule, host_target())).run(arguments);
    for (std::int64_t row = 0; row < H * N; ++row) {
      std::vector<double> weight(M);
      double sum = 0, wanted = 0;
      for (std::int64_t j = 0; j < M; ++j) {
        double s = 0;
        for (std::int64_t d = 0; d < D; ++d) s += double(Q[row * D + d]) * K[(row / N * M + j) * D + d];
        sum += weight[j] = std::exp(s * 0.125);
      }
      for (double& w : weight) w /= sum, wanted -= w * std::log(w);
      worst = std::max(worst, std::fabs(entropy[row] - wanted));
      for (std::int64_t d = 0; d < D; ++d) {
        double o = 0;
        for (std::int64_t j = 0; j < M; ++j) o += weight[j] * V[(row / N * M + j) * D + d];
        worst = std::max(worst, std::fabs(O[row * D + d] - o));
      }
    }
  }
  std::printf("attention with entropy differs from plain loops by %.1e\n", worst);
  return worst < 1e-5 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
