// Integers beyond 32 bits in masks and scores: scalars of a call, products of indices, elements of tensors, and what is
// made of them; compared with `evaluate` under every tiling, so that tiles are neither left out nor taken for whole ones.
#include <cmath>
#include <limits>

#include "tests/numeric/call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

constexpr double beyond = 1099511627776.0;  // 2^40
constexpr Sizes sizes{.batches = 1, .heads = 2, .rows = 150, .keys = 150, .head_dim = 16};

using Mask = std::function<Expr()>;
Call masked_call(const Mask& mask) {
  return {with([&](AttentionOptions& o) { o.mask_mod = mask, o.lse = true; }), sizes};
}

Expr number(const char* name) { return scalar(name, Kind::integer); }

}  // namespace

TEST_CASE("a window of more than 32 bits is none on that side") {
  for (const double left : {2147483647.0, 2147483648.0, 4294967295.0, beyond, 9007199254740992.0}) {
    Call call(with([](AttentionOptions& o) { o.causal = o.window = o.lse = true; }), sizes);
    call.number("window_left", left).number("window_right", left);
    INFO(left);
    CHECK(run_all(call) == "");
  }
}

TEST_CASE("indices compare rightly with scalars of 64 bits") {
  const std::vector<std::pair<const char*, Mask>> masks{
      {"below", [] { return index(key) < number("n"); }},
      {"at most", [] { return index(key) - index(query) <= number("n"); }},
      {"above", [] { return number("n") < index(key) + index(query); }},
      {"equal", [] { return index(key) == number("n"); }},
      {"unequal", [] { return number("n") != index(query); }},
      {"in a sum", [] { return index(key) + number("n") > index(query) + 20; }},
      {"in a smaller one", [] { return min(index(key), number("n")) >= 40 || max(index(query), number("n")) == 149; }},
      {"in a choice", [] { return select(index(key) < 75, number("n"), number("n") + 1) == number("n"); }},
      {"in a difference of two", [] { return (number("n") - index(query)) - (number("n") - index(key)) <= 0; }},
  };
  for (const auto& [name, mask] : masks) {
    Call call = masked_call(mask);
    for (const double n : {-beyond, -4294967296.0 + 100, -2147483649.0, 0.0, 100.0, 2147483648.0, 4294967296.0 + 100, beyond}) {
      call.number("n", n);
      INFO(name << ", n " << n);
      CHECK(run_all(call) == "");
    }
  }
}

TEST_CASE("products of indices have 64 bits") {
  const std::vector<std::pair<const char*, Mask>> masks{
      {"by a constant", [] { return index(key) * 100000000 <= index(query) * 100000000 + 1; }},
      {"of both", [] { return floor_mod((index(key) + 100000) * (index(query) + 100000), 3) != 0; }},
      {"of lengths", [] { return (index(key) - length(key)) * 1000000000000 < index(query) * -1000000000; }},
  };
  for (const auto& [name, mask] : masks) {
    Call call = masked_call(mask);
    INFO(name);
    CHECK(run_all(call) == "");
  }
  Call scored(with([](AttentionOptions& o) {
                o.score_mod = [](const Expr& s) { return s + 1e-13 * to_real((index(key) - index(query)) * 100000000000); };
                o.lse = true;
              }),
              sizes);
  CHECK(run_all(scored) == "");
}

// A tile is asked about with intervals, in 64 bits; its elements must give the same answer.
TEST_CASE("sums beside what an interval does not know hide what they should") {
  const Tensor table = input("table", {query, key}, Kind::integer), line = input("line", {key}, Kind::integer),
               other = input("other", {query}, Kind::integer);
  const Expr i = index(query), j = index(key), n = number("n") * 4096;
  const std::vector<std::pair<const char*, Expr>> masks{
      {"distance and a number", abs(i - j) + 5 <= 10},
      {"remainder and a number", floor_mod(j, 7) + 1 <= 3},
      {"remainder negated", -floor_mod(j, 7) >= -2},
      {"index less remainder", j - floor_mod(j, 7) <= i},
      {"distance times a number", abs(i - j) * -1 >= -5},
      {"element and a number", table(query, key) + 1 <= 3},
      {"element and index", line(key) + i > 5},
      {"element negated", -line(key) > i},
      {"element without sign", abs(line(key)) > i},
      {"two elements", other(query) - line(key) <= 0},
      {"sums to 2^31", select(j > i, 1 << 30, 0) + select(j > 5, 1 << 30, 1) > i},
      {"far apart", (j + (1 << 30)) - (i - (1 << 30)) > Expr(std::int64_t{2147483647 + 40ll})},
      {"a sum that ends", j <= i + n},
      {"a product that ends", j * n > i},
      {"a difference that ends", (j - n) - n < i},
  };
  for (const auto& [name, mask] : masks)
    for (const bool asked : {true, false}) {  // about whole tiles, or of each element
      const Tensor bit = input("bit", {key}, Kind::integer);
      const Expr each = asked ? mask : mask && bit(key) * bit(key) == bit(key);
      Call call = masked_call([&, mask = each] { return mask; });
      const auto has = [&](const char* tensor) { return call.algorithm().find_input(tensor) != nullptr; };
      const auto extreme = [](std::int64_t k) {
        return k % 3 == 0 ? -2147483648.0 : k % 3 == 1 ? 2147483647.0 : static_cast<double>(k % 11);
      };
      if (has("table")) call.put("table", DType::int32, {150, 150}, {0}), call.fill("table", [](std::int64_t k) { return static_cast<double>(k * 7 % 5); });
      if (has("line")) call.put("line", DType::int32, {150}, {0}), call.fill("line", extreme);
      if (has("other")) call.put("other", DType::int32, {150}, {0}), call.fill("other", extreme);
      if (has("bit")) call.put("bit", DType::int32, {150}, {0}), call.fill("bit", [](std::int64_t k) { return static_cast<double>(k % 2); });
      const bool ends = call.algorithm().scalars.size() > 1;
      for (const double number : ends ? Values{0, 0x1p52, -0x1p52} : Values{0}) {
        if (ends) call.number("n", number);
        INFO(name << (asked ? "" : ", element by element") << ", n " << number);
        CHECK(run_all(call) == "");
      }
    }
}

// What an interval cannot hold must not decide about a tile.
TEST_CASE("elements of 64 bits hide what they should where scalars are as large") {
  const Tensor id = input("id", {batch, key}, Kind::integer);
  const std::vector<std::pair<const char*, Mask>> masks{
      {"below", [&] { return id(batch, key) < number("n"); }},
      {"of a sum", [&] { return id(batch, key) + id(batch, query_position()) <= number("n"); }},
      {"of a product", [&] { return id(batch, key) * 3 - index(query) < number("n"); }},
      {"negated", [&] { return -id(batch, key) >= number("n"); }},
  };
  for (const auto& [name, mask] : masks)
    for (const DType type : {DType::int32, DType::int64}) {
      Call call = masked_call(mask);
      call.put("id", type, {1, 150}, {0});
      const double step = type == DType::int32 ? 50000000 : 35184372088832.0;  // 2^45
      call.fill("id", [&](std::int64_t i) { return static_cast<double>(i % 40 - 20) * step; });
      for (const double n : {-3 * step, 0.0, 2 * step, 35 * step}) {
        call.number("n", n);
        INFO(name << ", " << to_string(type) << ", n " << n);
        CHECK(run_all(call) == "");
      }
    }
}

TEST_CASE("what lies outside an int32 tensor may have more bits than its elements") {
  const Tensor id = input("id", {batch, Dim{"place"}}, Kind::integer, beyond);
  Call call = masked_call([&] { return id(batch, index(key)) < index(query) + beyond / 2; });
  call.put("id", DType::int32, {1, 60}, {0});
  call.fill("id", [](std::int64_t i) { return static_cast<double>(i); });
  CHECK(run_all(call) == "");
}

TEST_CASE("a quotient by a number that is not positive is 0, as its remainder") {
  const std::vector<std::pair<const char*, Mask>> masks{
      {"quotients", [] { return floor_div(index(key), number("n")) == floor_div(index(query), number("n")); }},
      {"remainders", [] { return floor_mod(index(key) - index(query), number("n")) <= 3; }},
      {"of numbers of the call", [] { return floor_div(number("dividend"), number("n")) <= index(key); }},
      {"by an index", [] { return floor_mod(index(key), index(query) - 20) < 5; }},
  };
  for (const auto& [name, mask] : masks) {
    Call call = masked_call(mask);
    call.number("dividend", 200);
    for (const double n : {-beyond, -3.0, -1.0, 0.0, 7.0, 64.0, beyond}) {
      call.number("n", n);
      INFO(name << ", n " << n);
      CHECK(run_all(call) == "");
    }
  }
}
