// Warps that share rows (column_warps), each with a share of the keys and of V's columns, and head dims that need it.
#include <cmath>
#include <limits>

#include "schedules/schedule.h"
#include "tests/numeric/call.h"
#include "tests/numeric/test_device.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

constexpr DType all_types[] = {DType::float32, DType::bfloat16, DType::float16};

bool on_a_gpu() { return test_target().family == TargetFamily::cuda; }

// The wish made legal; on a GPU it must be so already, but for what an algorithm has no use for.
Schedule sharing(const Call& call, int column_warps, int warps, int stages) {
  Schedule s;
  s.lanes = Lanes::fragments;
  s.column_warps = column_warps, s.warps = warps, s.stages = stages;
  s.tile_rows = 16 * warps / column_warps, s.tile_keys = 16 * column_warps;
  s.lazy_rescale = stages == 2, s.late_copies = stages == 3, s.pack_group = warps == 8, s.rows_in_registers = stages == 1;
  s = made_legal(call.algorithm(), call.problem(), s, test_target());
  if (on_a_gpu()) CHECK(s.column_warps == column_warps);
  return s;
}

std::string wrong_among(Call& call, double factor = 1) {
  const auto expected = evaluate(call.algorithm(), call.evaluate_inputs());
  for (const Schedule& s : {sharing(call, 2, 2, 1), sharing(call, 2, 4, 2), sharing(call, 4, 8, 3)}) {
    call.run(s);
    if (const std::string found = call.mismatch(expected, factor); !found.empty()) return found + " with " + to_string(s);
  }
  return {};
}

}  // namespace

TEST_CASE("warps that share rows agree with the reference") {
  const Sizes sizes{.batches = 2, .heads = 4, .kv_heads = 2, .rows = 75, .keys = 139, .head_dim = 24, .value_dim = 64};
  for (const DType type : all_types) {
    INFO(to_string(type));
    Call plain(with([](AttentionOptions& o) { o.lse = true; }), sizes, type);
    CHECK(wrong_among(plain) == "");
    Call masked(with([](AttentionOptions& o) { o.causal = o.lse = o.softcap = true; }), sizes, type);
    masked.number("softcap", 5);
    CHECK(wrong_among(masked) == "");
  }
  Call sums(with([](AttentionOptions& o) { o.rule = Rule::sigmoid; }), sizes, DType::bfloat16);
  CHECK(wrong_among(sums, static_cast<double>(sizes.keys)) == "");  // of weights that add up
}

TEST_CASE("warps that share rows pass over hidden keys that hold NaN, and show visible ones") {
  constexpr std::int64_t keys = 100, columns = 64;
  for (const DType type : {DType::float32, DType::bfloat16}) {
    INFO(to_string(type));
    Call call(with([](AttentionOptions& o) { o.window = o.lse = true; }), {.heads = 2, .rows = keys, .keys = keys, .head_dim = 16, .value_dim = columns}, type);
    call.number("window_left", 30).number("window_right", 5);
    for (const double x : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
      for (std::int64_t column = 0; column < columns; column += 21) {
        INFO(x << " in column " << column);
        for (std::int64_t e = 0; e < columns; ++e) call.set("v", 50 * columns + e, e == column ? x : 0.5);
        CHECK(wrong_among(call) == "");
        CHECK(!std::isfinite(call.get("o", 60 * columns + column)));
        CHECK(std::isfinite(call.get("o", 10 * columns + column)));
      }
  }
}

TEST_CASE("head dims to 576 are right, and on a GPU matrix instructions compute those of 16 bits") {
  struct Dims {
    std::int64_t q, v;
  };
  for (const DType type : all_types)
    for (const Dims d : {Dims{512, 512}, Dims{576, 512}, Dims{100, 320}}) {
      if (type == DType::float16 && d.v != 320) continue;
      INFO(to_string(type) << " " << d.q << " " << d.v);
      Call call(with([](AttentionOptions& o) { o.causal = o.lse = true; }), {.heads = 2, .kv_heads = 1, .rows = 40, .keys = 67, .head_dim = d.q, .value_dim = d.v}, type);
      const Schedule s = default_schedule(call.algorithm(), call.problem(), test_target());
      if (on_a_gpu()) CHECK((s.lanes == Lanes::fragments || type == DType::float32));
      call.run(s);
      CHECK(call.mismatch(evaluate(call.algorithm(), call.evaluate_inputs())) == "");
    }
}
