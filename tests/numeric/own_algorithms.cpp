// Algorithms that a user writes: a score and a mask of one's own as docs/variants.md shows them, rules with another
// carried state or base, steps of standard attention, merges by hand; through real kernels, compared with `evaluate`.
#include <cmath>

#include "dsl/derive.h"
#include "dsl/error.h"
#include "tests/numeric/call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

const Tensor q = input("q", {batch, head, query, head_dim}), k = input("k", {batch, kv_head, key, head_dim}),
             v = input("v", {batch, kv_head, key, value_dim});
constexpr DType all_types[] = {DType::float32, DType::bfloat16, DType::float16};

// Softmax attention that also returns the entropy of its weights: one more sum, of p·s.
Algorithm attention_with_entropy() {
  return for_tiles("attention_with_entropy", query).stream(key, [&](Stream& t) {
    const Expr s = dot(q, k) * scalar("scale");
    t.visible(key <= query_position());
    const State m = t.running_max("m", s);
    const Expr p = exp(s - m);
    const State l = t.sum("l", p), e = t.sum("e", p * s), o = t.sum("o", dot(p, v));
    t.rescale({l, e, o}, [](const Expr& from, const Expr& to) { return exp(from - to); });
    t.finish([&](Finish& f) {
      f.output("o", normalise(o, l));
      f.output("entropy", select(l == 0.0, 0.0, m + log(l) - e / l));
    });
  });
}

// The same weights in base 2, lse too.
Algorithm base_two_attention() {
  const double ln2 = std::log(2.0);
  return for_tiles("base_two_attention", query).stream(key, [&](Stream& t) {
    const Expr s = dot(q, k) * scalar("scale");
    t.visible(key <= query_position());
    const State m = t.running_max("m", s);
    const Expr p = exp((s - m) * ln2);
    const State l = t.sum("l", p), o = t.sum("o", dot(p, v));
    t.rescale({l, o}, [&](const Expr& from, const Expr& to) { return exp((from - to) * ln2); });
    t.finish([&](Finish& f) {
      f.output("o", normalise(o, l));
      f.output("lse", m + log(l) / ln2);
    });
  });
}

}  // namespace

TEST_CASE("a score and a mask of one's own, as the manual adds them, agree with the reference") {
  AttentionOptions options;
  const Tensor table = input("table", {head, Dim{"bucket"}});
  options.score_mod = [&](const Expr& s) { return s + table(head, min(abs(query_position() - key), 31)); };
  options.mask_mod = [] { return floor_mod(index(key), 2) == 0; };
  options.lse = true;
  for (const DType type : all_types) {
    Call call(options, {.heads = 3, .rows = 45, .keys = 80, .head_dim = 24}, type);
    call.put("table", DType::float32, {3, 32}, {0});
    call.fill("table", [](std::int64_t i) { return static_cast<double>(i * 5 % 13) / 4 - 1; });
    INFO(to_string(type));
    CHECK(run_all(call) == "");
    // The modifiers do what they say: the same without them differs.
    Call plain(with([](AttentionOptions& o) { o.lse = true; }), {.heads = 3, .rows = 45, .keys = 80, .head_dim = 24}, type);
    CHECK(std::fabs(plain.output("lse")[1] - call.get("lse", 1)) > 0.1);
  }
}

TEST_CASE("a new score modifier equals the ready one that computes the same") {
  Call own(with([](AttentionOptions& o) {
             const Tensor slopes = input("slopes", {batch, head});
             o.lse = o.causal = true;
             o.score_mod = [=](const Expr& s) { return s - Expr(slopes) * abs(query_position() - key); };
           }), {.heads = 4, .rows = 40, .keys = 70, .head_dim = 16});
  Call ready(with([](AttentionOptions& o) { o.lse = o.causal = o.alibi = true; }), {.heads = 4, .rows = 40, .keys = 70, .head_dim = 16});
  own.put("slopes", DType::float32, {1, 4}, {0.5, 0.25, 0.125, 0.0625}), ready.put("alibi_slopes", DType::float32, {1, 4}, {0.5, 0.25, 0.125, 0.0625});
  for (const Schedule& s : own.tilings()) {
    CHECK(same_bits(own.output("o", s), ready.output("o", s)));
    CHECK(same_bits(own.values("lse"), ready.values("lse")));
  }
}

TEST_CASE("a tensor read at computed indices reads as declared outside its bounds") {
  AttentionOptions options;
  const Tensor shift = input("shift", {batch, key}, Kind::integer), weight = input("weight", {batch, Dim{"place"}}, Kind::real, -2);
  options.score_mod = [&](const Expr& s) { return s + weight(batch, shift(batch, key) + query); };
  options.lse = true;
  for (const DType type : {DType::int32, DType::int64}) {
    INFO(to_string(type));
    Call call(options, {.batches = 2, .heads = 2, .rows = 33, .keys = 50, .head_dim = 16});
    call.put("shift", type, {2, 50}, {0}), call.put("weight", DType::float32, {2, 20}, {0});
    call.fill("shift", [](std::int64_t i) { return static_cast<double>(i * 7 % 45) - 40; });
    call.fill("weight", [](std::int64_t i) { return static_cast<double>(i % 9) / 4; });
    CHECK(run_all(call) == "");
  }
}

// Which tiles are visited depends on the extremes of the ids in them.
TEST_CASE("ids of 64 bits hide what they should, small ones and such as no interval can hold") {
  const Tensor id = input("id", {batch, key}, Kind::integer);
  AttentionOptions options;
  options.mask_mod = [&] { return id(batch, key) == id(batch, query_position()); };
  options.lse = true;
  const double far = 9007199254740992.0;   // 2^53
  for (const DType type : {DType::int32, DType::int64})
    for (const double step : {1.0, -3.0, 1e12, far}) {
      if (type == DType::int32 && std::fabs(step) > 100) continue;
      Call call(options, {.batches = 2, .heads = 2, .rows = 150, .keys = 150, .head_dim = 16});
      call.put("id", type, {2, 150}, {0});
      call.fill("id", [&](std::int64_t i) { return std::floor(static_cast<double>(i % 150) / 37) * step - (step == far ? far : 0); });
      INFO(to_string(type) << ", " << step);
      CHECK(run_all(call) == "");
    }
}

TEST_CASE("a rule with one more carried sum gives output and entropy, in parts too") {
  for (const DType type : all_types) {
    Call call(attention_with_entropy(), {.heads = 4, .kv_heads = 2, .rows = 75, .keys = 90, .head_dim = 32}, type);
    INFO(to_string(type));
    CHECK(run_all(call, 10) == "");
  }
  Call two(attention_with_entropy(), {.keys = 2});
  two.fill("q", [](std::int64_t) { return 0; });
  for (const Schedule& s : two.tilings()) CHECK(std::fabs(two.output("entropy", s)[0] - std::log(2)) < 1e-6);
}

TEST_CASE("weights in base 2 equal natural ones of scores times ln 2") {
  for (const DType type : all_types) {
    Call two(base_two_attention(), {.heads = 2, .rows = 60, .keys = 75, .head_dim = 16}, type);
    INFO(to_string(type));
    CHECK(run_all(two) == "");
    Call natural(with([](AttentionOptions& o) { o.causal = o.lse = true; }), {.heads = 2, .rows = 60, .keys = 75, .head_dim = 16}, type);
    natural.number("scale", std::log(2) / 4);
    two.run(), natural.run();
    for (std::int64_t i = 0; i < 120; ++i) CHECK(std::fabs(two.get("lse", i) * std::log(2) - natural.get("lse", i)) < 2e-5);
  }
}
