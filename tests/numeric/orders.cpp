// The two orders of the loops over rows and keys: FlashAttention-1's (keys outside) against the reference and against
// FlashAttention-2's (rows outside), whose every sum it adds in the same sequence.
#include <cmath>

#include "tests/numeric/test_device.h"
#include "tests/numeric/problem_case.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

ProblemCase with_order(ProblemCase c, Order order) {
  const CaseData data(c);
  c.schedule.lanes = Lanes::rows;
  c.schedule.pack_ahead = false;
  c.schedule.splits = 1;
  c.schedule.order = order;
  c.schedule = made_legal(data.algorithm(), problem_of(data.algorithm(), data.arguments()), c.schedule, test_target());
  return c;
}

}  // namespace

TEST_CASE("keys outside agrees with the reference for every variant") {
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 160; ++seed) {
    const ProblemCase c = with_order(random_case(seed), Order::keys_outer);
    REQUIRE(c.schedule.order == Order::keys_outer);
    CAPTURE(c.describe());
    CHECK(run_and_compare(c) == "");
    ++ran;
  }
  CHECK(ran == 160);
}

TEST_CASE("both orders give the same bits") {
  ProblemCase c;
  c.options.causal = c.options.lse = true;
  c.batches = 2, c.heads = 4, c.kv_heads = 2, c.rows = 210, c.positions = 333, c.head_dim = c.value_dim = 32;
  c.schedule.tile_rows = 96, c.schedule.tile_keys = 64;
  std::vector<std::vector<double>> results;
  for (const Order order : {Order::queries_outer, Order::keys_outer}) {
    const ProblemCase one = with_order(c, order);
    CaseData data(one);
    data.fill_outputs(std::nan(""));
    const Arguments arguments = data.arguments();
    run_there(Kernel::get(data.algorithm(), problem_of(data.algorithm(), arguments), one.schedule, test_device()), arguments);
    std::vector<double> values;
    for (const char* name : {"o", "lse"})
      for (std::int64_t i = 0; i < data.tensor(name).count(); ++i) values.push_back(data.tensor(name).get(i));
    results.push_back(std::move(values));
  }
  CHECK(results[0] == results[1]);
}
