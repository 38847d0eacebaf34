// Reported faults of scores and weights, each with its input and the right value: huge scores, the base of lse, soft cap,
// ALiBi, grouped heads, top-k, dropout.
#include <cmath>
#include <limits>

#include "dsl/philox.h"
#include "tests/numeric/test_device.h"
#include "tests/numeric/call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

double sum_of(const Values& values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum;
}

}  // namespace

TEST_CASE("huge equal inputs give exactly their value", "[C09]") {
  struct { DType type; double x; } inputs[] = {{DType::bfloat16, 131072}, {DType::bfloat16, 98304}, {DType::float32, 131072},
                                               {DType::float32, 98304},   {DType::float16, 61440}};
  for (const auto& [type, x] : inputs)
    for (const std::int64_t keys : {1, 70}) {
      Call call(with([](AttentionOptions& o) { o.lse = true; }), {.rows = 3, .keys = keys, .head_dim = 64}, type);
      for (const char* name : {"q", "k", "v"}) call.fill(name, [&](std::int64_t) { return x; });
      const double score = x * x * 64 / 8;
      for (const Schedule& s : call.tilings()) {
        INFO(to_string(type) << " " << x << " keys " << keys << " " << to_string(s));
        const Values o = call.output("o", s);
        for (const double out : o) CHECK(out == x);
        if (keys == 1)
          for (const double lse : call.values("lse")) CHECK(lse == score);
      }
    }
}

TEST_CASE("lse is a natural logarithm", "[C15]") {
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
    Call call(with([](AttentionOptions& o) { o.lse = true; }), {.rows = 2, .keys = 2}, type);
    call.fill("q", [](std::int64_t) { return 0; });
    for (const Schedule& s : call.tilings())
      for (const double lse : call.output("lse", s)) CHECK(std::fabs(lse - std::log(2)) < 1e-6);
  }
}

TEST_CASE("the soft cap is cap * tanh(score / cap)", "[C19]") {
  Call call(with([](AttentionOptions& o) { o.softcap = o.lse = true; }), {.head_dim = 1});
  call.number("scale", 1).number("softcap", 50);
  call.set("q", 0, 10), call.set("k", 0, 10);
  for (const Schedule& s : call.tilings()) CHECK(std::fabs(call.output("lse", s)[0] - 48.201379) < 5e-5);
}

TEST_CASE("caps of 15, 30 and 15 in one process give the first result again", "[C19]") {
  Call call(with([](AttentionOptions& o) { o.softcap = o.lse = true; }), {.heads = 2, .rows = 40, .keys = 90, .head_dim = 64});
  call.number("scale", 4);
  call.number("softcap", 15);
  CHECK(run_all(call) == "");
  const Values first = call.output("o");
  call.number("softcap", 30);
  CHECK(run_all(call) == "");
  const Values second = call.output("o");
  call.number("softcap", 15);
  CHECK(same_bits(call.output("o"), first));
  CHECK_FALSE(same_bits(second, first));
}

TEST_CASE("the cap comes before ALiBi", "[C19][C20]") {
  Call call(with([](AttentionOptions& o) { o.softcap = o.alibi = o.lse = true; }), {.heads = 2, .rows = 30, .keys = 50});
  call.number("softcap", 2).put("alibi_slopes", DType::float32, {1, 2}, {0.5, 0.25});
  CHECK(run_all(call) == "");
}

TEST_CASE("ALiBi slopes may differ by batch, and by head whatever the number of heads", "[C20]") {
  const AttentionOptions options = with([](AttentionOptions& o) { o.alibi = o.lse = true; });
  Call by_batch(options, {.batches = 2, .heads = 3, .rows = 3, .keys = 2});
  by_batch.put("alibi_slopes", DType::float32, {2, 3}, {0.5, 0.25, 2, 0.125, 1, 0.75});
  CHECK(run_all(by_batch) == "");

  constexpr std::int64_t rows = 20, keys = 70, d = 16;
  Call all(options, {.heads = 8, .rows = rows, .keys = keys, .head_dim = d}), half(options, {.heads = 4, .rows = rows, .keys = keys, .head_dim = d});
  all.put("alibi_slopes", DType::float32, {1, 8}, {0});
  all.fill("alibi_slopes", [](std::int64_t h) { return std::ldexp(1, static_cast<int>(-1 - h)); });
  half.put("alibi_slopes", DType::float32, {1, 4}, {0});
  for (const auto& [name, size] : {std::pair("alibi_slopes", std::int64_t{1}), std::pair("q", rows * d), std::pair("k", keys * d), std::pair("v", keys * d)})
    half.fill(name, [&](std::int64_t i) { return all.get(name, i + 4 * size); });
  for (const Schedule& s : all.tilings()) {
    const Values whole = all.output("o", s), upper = half.output("o", s);
    CHECK(same_bits(upper, Values(whole.begin() + static_cast<std::ptrdiff_t>(upper.size()), whole.end())));
  }
}

TEST_CASE("a decode step with ALiBi equals the last row of the full call, lse too", "[C20]") {
  const AttentionOptions options = with([](AttentionOptions& o) { o.alibi = o.causal = o.lse = true; });
  constexpr std::int64_t n = 77, d = 16;
  Call full(options, {.heads = 2, .rows = n, .keys = n, .head_dim = d});
  full.put("alibi_slopes", DType::float32, {1, 2}, {0.5, 0.25});
  full.run();
  for (std::int64_t step : {1, 2, 40, 77}) {   // number of keys so far
    Call decode(options, {.heads = 2, .rows = 1, .keys = step, .head_dim = d});
    decode.put("alibi_slopes", DType::float32, {1, 2}, {0.5, 0.25});
    decode.fill("q", [&](std::int64_t i) { return full.get("q", (i / d * n + step - 1) * d + i % d); });
    for (const char* name : {"k", "v"})
      decode.fill(name, [&](std::int64_t i) { return full.get(name, (i / (step * d) * n + i / d % step) * d + i % d); });
    for (const Schedule& s : decode.tilings()) {
      decode.run(s);
      for (std::int64_t h = 0; h < 2; ++h) {
        CHECK(std::fabs(decode.get("lse", h) - full.get("lse", h * n + step - 1)) < 1e-5);
        for (std::int64_t e = 0; e < d; ++e) CHECK(std::fabs(decode.get("o", h * d + e) - full.get("o", (h * n + step - 1) * d + e)) < 1e-5);
      }
    }
  }
}

TEST_CASE("ALiBi keeps float32 slopes at long distances", "[C20]") {
  constexpr std::int64_t keys = 4001;
  for (const DType type : {DType::float32, DType::float16, DType::bfloat16}) {
    Call call(with([](AttentionOptions& o) { o.alibi = o.lse = o.mask = true; }), {.keys = keys}, type);
    call.fill("q", [](std::int64_t) { return 0; });
    call.put("alibi_slopes", DType::float32, {1, 1}, {1.0 / 256});
    call.put("mask", DType::boolean, {1, 1, 1, keys}, {0}).set("mask", 0, 1);
    // 16-bit operands on a GPU: the exponent is one fused operation, and the reference's own is not quite 0.
    const double allowed = test_device().kind == Device::Kind::cuda && type != DType::float32 ? 2e-6 : 0;
    for (const Schedule& s : call.tilings()) CHECK(std::fabs(call.output("lse", s)[0] + 15.625) <= allowed);
  }
}

TEST_CASE("query head h reads kv head h / (H / Hk)", "[C21]") {
  struct { std::int64_t heads, kv_heads; } groups[] = {{6, 2}, {4, 2}, {28, 4}, {40, 8}, {8, 1}, {8, 8}};
  for (const DType type : {DType::float32, DType::bfloat16})
    for (const auto& [heads, kv_heads] : groups)
      for (const std::int64_t rows : {1, 21}) {
        Call call(AttentionOptions{}, {.batches = 2, .heads = heads, .kv_heads = kv_heads, .rows = rows, .keys = 37, .head_dim = 16}, type);
        call.fill("v", [&](std::int64_t i) { return static_cast<double>(i / (37 * 16) % kv_heads); });
        for (const Schedule& s : call.tilings()) {
          INFO(heads << "/" << kv_heads << " rows " << rows << " " << to_string(type) << " " << to_string(s));
          const Values o = call.output("o", s);
          std::int64_t wrong = 0;
          for (std::size_t i = 0; i < o.size(); ++i) {
            const std::int64_t h = static_cast<std::int64_t>(i) / (rows * 16) % heads;
            wrong += std::fabs(o[i] - static_cast<double>(h / (heads / kv_heads))) > 1e-5;
          }
          CHECK(wrong == 0);
        }
      }
}

TEST_CASE("the two largest of four scores, and all four where nine are wanted", "[C24]") {
  const auto make = [](int k) {
    Call call(with([&](AttentionOptions& o) { o.lse = true, o.top_k = k; }), {.keys = 4, .head_dim = 1, .value_dim = 2});
    call.number("scale", 1).put("q", DType::float32, {1, 1, 1, 1}, {1}).put("k", DType::float32, {1, 1, 4, 1}, {3, 1, 5, 2});
    call.put("v", DType::float32, {1, 1, 4, 2}, {10, 0, 20, 10, 30, 40, 50, 60});
    return call;
  };
  Call two = make(2), nine = make(9), full = make(0);
  full.run();
  for (const Schedule& s : two.tilings()) {
    two.run(s);
    CHECK(std::fabs(two.get("o", 0) - 27.615942) < 1e-5);
    CHECK(std::fabs(two.get("o", 1) - 35.231883) < 1e-5);
    CHECK(std::fabs(two.get("lse", 0) - 5.126928) < 1e-5);
  }
  for (const Schedule& s : nine.tilings()) {
    nine.run(s);
    for (const std::int64_t i : {0, 1}) CHECK(std::fabs(nine.get("o", i) - full.get("o", i)) < 2e-5);
    CHECK(std::fabs(nine.get("lse", 0) - full.get("lse", 0)) < 1e-5);
  }
}

TEST_CASE("ties go to the lower key, masked keys are never chosen, and what outputs held before never matters", "[C24]") {
  for (const std::int64_t rows : {3, 65, 300})
    for (const int k : {1, 4, 7}) {
      Call call(with([&](AttentionOptions& o) { o.top_k = k, o.top_k_outputs = o.lse = o.mask = true; }),
                {.rows = rows, .keys = 90, .head_dim = 1, .value_dim = 5});
      call.number("scale", 1).fill("q", [](std::int64_t) { return 1; });
      call.fill("k", [](std::int64_t j) { return static_cast<double>(j * 7 % 11); });   // every score many times
      call.put("mask", DType::boolean, {1, 1, rows, 90}, {0});
      call.fill("mask", [](std::int64_t i) { return i / 90 % 3 == 0 ? i % 90 < 5 : i % 90 % 4 != 1; });   // rows 0, 3…: 5 keys
      INFO("rows " << rows << " k " << k);
      CHECK(run_all(call) == "");
      for (const Schedule& s : call.tilings()) {
        const Values indices = call.output("indices", s), values = call.values("values");
        call.fill("indices", [](std::int64_t) { return 1e9; });
        call.fill("values", [](std::int64_t) { return 1e30; });
        run_there(Kernel::get(call.algorithm(), call.problem(), s, test_device()), call.arguments());
        CHECK(same_bits(call.values("indices"), indices));
        CHECK(same_bits(call.values("values"), values));
        for (int slot_number = 5; slot_number < k; ++slot_number) {
          CHECK(indices[static_cast<std::size_t>(slot_number)] == -1);
          CHECK(values[static_cast<std::size_t>(slot_number)] == -std::numeric_limits<double>::infinity());
        }
      }
    }
}

TEST_CASE("the dropout pattern is that of seed and position, on every tile choice", "[C25]") {
  constexpr std::int64_t threshold = std::int64_t{1} << 31, seed = 0x1234567, offset = 3;
  for (const std::int64_t n : {64, 65, 200})
    for (const DType type : {DType::float32, DType::bfloat16}) {
      Call call(with([](AttentionOptions& o) { o.dropout = true; }), {.batches = 2, .heads = 2, .rows = n, .keys = n, .head_dim = 16, .value_dim = n}, type);
      call.number("seed", seed).number("offset", offset).number("dropout_threshold", threshold).number("dropout_scale", 2);
      call.fill("v", [&](std::int64_t i) { return i / n % n == i % n; });
      for (const Schedule& s : call.tilings()) {
        INFO(n << " " << to_string(type) << " " << to_string(s));
        const Values o = call.output("o", s);
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(o.size()); ++i) {
          const bool kept = dropout_word(seed, offset, i / (n * n), i / n % n, i % n) >= threshold;
          wrong += (o[static_cast<std::size_t>(i)] != 0) != kept;
        }
        CHECK(wrong == 0);
        CHECK(std::fabs(sum_of(o) / static_cast<double>(4 * n) - 1) < 0.05);
        CHECK(same_bits(call.output("o", s), o));
      }
    }
}
