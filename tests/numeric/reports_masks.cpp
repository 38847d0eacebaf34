// Reported faults of masks, each with its input and the right value: rows without keys, the diagonal of unequal lengths,
// windows, biases of −inf and of the lowest float.
#include <cmath>
#include <limits>

#include "tests/numeric/test_device.h"
#include "tests/numeric/call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double lowest = std::numeric_limits<float>::lowest();
constexpr DType all_types[] = {DType::float32, DType::bfloat16, DType::float16};

bool near(double a, double b, double allowed) { return a == b || std::fabs(a - b) <= allowed; }

// The rows of `from` that `keep` names equal those of `to` in order.
bool rows_agree(const Values& from, const Values& to, const std::vector<std::int64_t>& keep, std::int64_t width, double allowed) {
  for (std::size_t r = 0; r < keep.size(); ++r)
    for (std::int64_t e = 0; e < width; ++e)
      if (!near(from.at(static_cast<std::size_t>(keep[r] * width + e)), to.at(r * static_cast<std::size_t>(width) + static_cast<std::size_t>(e)), allowed)) return false;
  return true;
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = first; i < last; ++i) all.push_back(i);
  return all;
}

}  // namespace

TEST_CASE("rows whose keys are all masked are 0 with lse -inf and leave the other rows alone", "[C01]") {
  constexpr std::int64_t n = 130, d = 64;
  const auto empty = [](std::int64_t i) { return i == 0 || i == 64 || i == 65 || i == 129; };
  std::vector<std::int64_t> kept;
  for (std::int64_t i = 0; i < n; ++i)
    if (!empty(i)) kept.push_back(i);
  for (const bool by_bias : {true, false})
    for (const DType type : all_types) {
      const AttentionOptions options = with([&](AttentionOptions& o) { o.lse = true, o.bias = by_bias, o.mask = !by_bias; });
      const char* name = by_bias ? "bias" : "mask";
      Call call(options, {.rows = n, .keys = n, .head_dim = d}, type);
      call.put(name, by_bias ? DType::float32 : DType::boolean, {1, 1, n, n}, {0});
      call.fill(name, [&](std::int64_t i) { return by_bias ? (empty(i / n) ? -infinite : 0) : empty(i / n) ? 0 : 1; });
      Call without(attention(with([](AttentionOptions& o) { o.lse = true; })), {.rows = n - 4, .keys = n, .head_dim = d}, type);
      for (const char* same : {"k", "v"}) without.fill(same, [&](std::int64_t i) { return call.get(same, i); });
      without.fill("q", [&](std::int64_t i) { return call.get("q", kept[static_cast<std::size_t>(i / d)] * d + i % d); });
      CHECK(run_all(call) == "");
      for (const Schedule& s : call.tilings()) {
        INFO(name << " " << to_string(type) << " " << to_string(s));
        call.run(s);
        without.run(made_legal(without.algorithm(), without.problem(), s, test_target()));
        const Values o = call.values("o"), lse = call.values("lse");
        CHECK_FALSE(has_nan(o));
        for (const std::int64_t i : {0, 64, 65, 129}) {
          CHECK(lse[static_cast<std::size_t>(i)] == -infinite);
          for (std::int64_t e = 0; e < d; ++e) CHECK(o[static_cast<std::size_t>(i * d + e)] == 0);
        }
        CHECK(rows_agree(o, without.values("o"), kept, d, type == DType::float32 ? 2e-6 : 1e-2));
        CHECK(rows_agree(lse, without.values("lse"), kept, 1, 1e-5));
      }
    }
}

TEST_CASE("causal rows before the first key have lse exactly -inf", "[C03]") {
  Call call(with([](AttentionOptions& o) { o.causal = o.lse = true; }), {.rows = 5, .keys = 2});
  for (const Schedule& s : call.tilings()) {
    INFO(to_string(s));
    const Values lse = call.output("lse", s);
    for (std::size_t i = 0; i < 3; ++i) CHECK((std::isinf(lse[i]) && std::signbit(lse[i])));
    for (std::size_t i = 3; i < 5; ++i) CHECK(std::isfinite(lse[i]));
    for (std::size_t i = 0; i < 12; ++i) CHECK(call.get("o", static_cast<std::int64_t>(i)) == 0);
  }
}

TEST_CASE("causal with unequal lengths equals rows cut out of a square problem", "[C04]") {
  struct { std::int64_t rows, keys; } shapes[] = {{1, 4097}, {64, 1000}, {1000, 64}};
  constexpr std::int64_t d = 16;
  const AttentionOptions options = with([](AttentionOptions& o) { o.causal = o.lse = true; });
  for (const auto& [rows, keys] : shapes) {
    Call call(options, {.rows = rows, .keys = keys, .head_dim = d});
    Call square(options, {.rows = keys, .keys = keys, .head_dim = d});
    for (const char* same : {"k", "v"}) square.fill(same, [&](std::int64_t i) { return call.get(same, i); });
    const std::int64_t ahead = keys - rows;   // negative: so many rows see nothing
    square.fill("q", [&](std::int64_t i) { return i / d < ahead ? 1 : call.get("q", i - ahead * d); });
    square.run();
    const Values square_o = square.values("o"), square_lse = square.values("lse");
    for (const Schedule& s : call.tilings()) {
      INFO("rows " << rows << " keys " << keys << " " << to_string(s));
      call.run(s);
      const Values o = call.values("o"), lse = call.values("lse");
      if (ahead >= 0) {
        CHECK(rows_agree(square_o, o, range(ahead, keys), d, 1e-5));
        CHECK(rows_agree(square_lse, lse, range(ahead, keys), 1, 1e-4));
      } else {
        CHECK(rows_agree(o, square_o, range(-ahead, rows), d, 1e-5));
        for (std::int64_t i = 0; i < -ahead * d; ++i) CHECK(o[static_cast<std::size_t>(i)] == 0);
        for (std::int64_t i = 0; i < -ahead; ++i) CHECK(lse[static_cast<std::size_t>(i)] == -infinite);
      }
    }
  }
}

TEST_CASE("with one query a causal mask hides nothing", "[C04]") {
  const Sizes sizes{.heads = 2, .rows = 1, .keys = 4097, .head_dim = 16};
  Call causal(with([](AttentionOptions& o) { o.causal = true; }), sizes), plain(AttentionOptions{}, sizes);
  for (const Schedule& s : causal.tilings()) CHECK(rows_agree(causal.output("o", s), plain.output("o", s), range(0, 2), 16, 1e-6));
}

TEST_CASE("a window counts both its ends, and -1 is no limit", "[C06]") {
  constexpr std::int64_t n = 300, d = 16;
  const Sizes sizes{.rows = n, .keys = n, .head_dim = d};
  for (const bool both : {false, true}) {
    Call call(with([&](AttentionOptions& o) { o.window = o.lse = true, o.causal = both; }), sizes);
    for (const double left : {0., 1., 63., 64., 65., 299., 300., -1.})
      for (const double right : {0., 2., -1.}) {
        call.number("window_left", left).number("window_right", right);
        INFO("window " << left << ", " << right << (both ? " causal" : ""));
        CHECK(run_all(call) == "");
      }
  }
}

TEST_CASE("windows that reach back to the first key equal causal, and (0, 0) returns the diagonal", "[C06]") {
  constexpr std::int64_t n = 300, d = 16;
  const Sizes sizes{.rows = n, .keys = n, .head_dim = d};
  Call window(with([](AttentionOptions& o) { o.window = true; }), sizes), causal(with([](AttentionOptions& o) { o.causal = true; }), sizes);
  window.number("window_left", -1).number("window_right", 0);
  for (const Schedule& s : window.tilings()) {
    INFO(to_string(s));
    const Values expected = causal.output("o", s);
    for (const double left : {n - 1., 0. + n, -1.}) {
      window.number("window_left", left).number("window_right", 0);
      CHECK(rows_agree(window.output("o", s), expected, range(0, n), d, 2e-6));
    }
    window.number("window_left", 0).number("window_right", 0);
    CHECK(rows_agree(window.output("o", s), window.values("v"), range(0, n), d, 1e-6));
  }
}

TEST_CASE("a row of lowest floats as bias is a plain mean, in one tile and over many", "[C14]") {
  const AttentionOptions options = with([](AttentionOptions& o) { o.bias = o.lse = true; });
  for (const std::int64_t keys : {6, 400})
    for (const double shift : {lowest, -lowest}) {
      Call call(options, {.rows = 3, .keys = keys});
      call.fill("q", [](std::int64_t) { return 0; });
      call.put("bias", DType::float32, {1, 1, 3, keys}, {shift});
      Values mean(4);
      for (std::int64_t j = 0; j < keys; ++j)
        for (std::size_t e = 0; e < 4; ++e) mean[e] += call.get("v", j * 4 + static_cast<std::int64_t>(e)) / static_cast<double>(keys);
      for (const Schedule& s : call.tilings()) {
        INFO("keys " << keys << " bias " << shift << " " << to_string(s));
        const Values o = call.output("o", s);
        for (std::size_t i = 0; i < 12; ++i) CHECK(near(o[i], mean[i % 4], 2e-6));
        for (std::int64_t i = 0; i < 3; ++i) CHECK(call.get("lse", i) == shift);
      }
    }
}

TEST_CASE("lowest floats beside zeros weigh nothing, whichever tile comes first", "[C14]") {
  constexpr std::int64_t keys = 400;
  Call call(with([](AttentionOptions& o) { o.bias = o.lse = true; }), {.rows = 5, .keys = keys});
  call.put("bias", DType::float32, {1, 1, 5, keys}, {0});
  // Row by row: the shifted keys first, last, every other one, all but one, none.
  call.fill("bias", [](std::int64_t i) {
    const std::int64_t row = i / keys, j = i % keys;
    const bool shifted = row == 0 ? j < 200 : row == 1 ? j >= 200 : row == 2 ? j % 2 == 0 : row == 3 && j != 300;
    return shifted ? lowest : 0;
  });
  CHECK(run_all(call) == "");
}

TEST_CASE("a bias of -inf in the middle of a tile removes its key, and a whole row of them empties the row", "[C14][C01]") {
  for (const DType type : all_types) {
    Call call(with([](AttentionOptions& o) { o.bias = o.lse = true; }), {.heads = 2, .rows = 70, .keys = 150, .head_dim = 20}, type);
    call.put("bias", type, {1, 2, 70, 150}, {0});
    call.fill("bias", [](std::int64_t i) { return i / 150 % 7 == 3 || i % 5 == 2 ? -infinite : i % 150 < 40 && i / 150 % 2 ? -infinite : 0.25; });
    INFO(to_string(type));
    CHECK(run_all(call) == "");
  }
}
