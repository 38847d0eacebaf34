// Head dims nobody planned for: read at run time, a kernel is generated for exactly these. Usage: new_head_dim [D
// [D_v]]; without arguments 100, and 72 with values of 40. K and V are bfloat16 here, the output float32.
#include <attile/attile.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

using namespace attile;

namespace {

double error_for(std::int64_t D, std::int64_t Dv) {
  const std::int64_t B = 2, H = 3, N = 70, M = 90;
  std::mt19937 bits(5);
  std::normal_distribution<float> normal;
  const auto numbers = [&](std::int64_t count) {
    std::vector<std::uint16_t> out(static_cast<std::size_t>(count));
    for (std::uint16_t& x : out) x = to_bfloat16(normal(bits));
    return out;
  };
  const std::vector<std::uint16_t> q = numbers(B * H * N * D), k = numbers(B * H * M * D), v = numbers(B * H * M * Dv);
  std::vector<float> o(static_cast<std::size_t>(B * H * N * Dv));
  AttentionCall call;
  call.q = contiguous(q.data(), DType::bfloat16, {B, H, N, D});
  call.k = contiguous(k.data(), DType::bfloat16, {B, H, M, D});
  call.v = contiguous(v.data(), DType::bfloat16, {B, H, M, Dv});
  call.o = contiguous(o.data(), DType::float32, {B, H, N, Dv});
  run_attention(call);

  double worst = 0;
  for (std::int64_t bh = 0; bh < B * H; ++bh)
    for (std::int64_t i = 0; i < N; ++i) {
      std::vector<double> sum(static_cast<std::size_t>(Dv));
      double weights = 0;
      for (std::int64_t j = 0; j < M; ++j) {
        double s = 0;
        for (std::int64_t d = 0; d < D; ++d)
          s += double(from_bfloat16(q[(bh * N + i) * D + d])) * from_bfloat16(k[(bh * M + j) * D + d]);
        const double weight = std::exp(s / std::sqrt(double(D)));
        weights += weight;
        for (std::int64_t d = 0; d < Dv; ++d) sum[d] += weight * from_bfloat16(v[(bh * M + j) * Dv + d]);
      }
      for (std::int64_t d = 0; d < Dv; ++d)
        worst = std::max(worst, std::fabs(o[(bh * N + i) * Dv + d] - sum[d] / weights));
    }
  std::printf("head dim %d, value dim %d: differs from plain loops by %.1e\n", int(D), int(Dv), worst);
  return worst;
}

}  // namespace

int main(int count, char** words) try {
  const double allowed = 0.01;  // weights are bfloat16 where the machine has a dot instruction for it
  if (count < 2) return error_for(100, 100) < allowed && error_for(72, 40) < allowed ? 0 : 1;
  const std::int64_t D = std::atoll(words[1]);
  return error_for(D, count > 2 ? std::atoll(words[2]) : D) < allowed ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
