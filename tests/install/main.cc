#include <attile/attile.h>
#include <attile/attile_c.h>

#include <cmath>
#include <cstdio>
#include <vector>

// One query on three keys that are all alike: the plain mean of the values.
int main() try {
  const std::vector<float> q(8, 1), k(24, 0.5), v{0, 1, 2};
  std::vector<float> o(1);
  attile::AttentionCall call;
  call.q = attile::contiguous(q.data(), attile::DType::float32, {1, 1, 1, 8});
  call.k = attile::contiguous(k.data(), attile::DType::float32, {1, 1, 3, 8});
  call.v = attile::contiguous(v.data(), attile::DType::float32, {1, 1, 3, 1});
  call.o = attile::contiguous(o.data(), attile::DType::float32, {1, 1, 1, 1});
  attile::run_attention(call);
  std::printf("attile %s: the mean is %g\n", attile_version(), double(o[0]));
  return std::fabs(o[0] - 1) < 1e-6 ? 0 : 1;
} catch (const attile::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
