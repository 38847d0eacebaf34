#include "runtime/measure.h"

#include "runtime/host_cpu.h"
#include "runtime/parallel_for.h"
#include "tests/support/catch_compat.h"

using namespace attile;

TEST_CASE("the measured limits lie where chips of today lie, and more threads are not slower") {
  set_worker_count(1);
  const double one = measure_fma_gflops(), dot = measure_bf16_dot_gflops(), read = measure_read_gbs();
  set_worker_count(0);
  const double all = measure_fma_gflops();
  CHECK(one > 1);
  CHECK(one < 6.0 * 2 * 2 * 16);  // GHz × units × operations × lanes
  CHECK(all > 0.5 * one);
  CHECK(all < 1.3 * one * worker_count());
  CHECK(read > 0.1);
  CHECK(read < 1000);
  CHECK((dot > 0) == host_cpu().has("avx512bf16"));
}
