// Reported faults of streams in parts, each with its input and the right value: empty parts, more parts than keys, the
// sink, the merge of results that were computed apart.
#include <cmath>
#include <limits>

#include "dsl/derive.h"
#include "tests/numeric/test_device.h"
#include "tests/numeric/call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// The raw states of one part for each row: reference, sum and output relative to the reference.
struct Part { Values m, l, o; };

// A part computed by its own kernel over the keys of `call`.
Part part_of(Call& call) {
  call.run();
  return {call.values("part.m"), call.values("part.l"), call.values("part.o")};
}

struct Merged { Values o, lse; };

// Merges parts for one head and `rows` rows with the kernel that merges.
Merged merged(const Algorithm& a, const std::vector<Part>& parts, std::int64_t rows, std::int64_t d) {
  Call call(split(a).merge, {.rows = rows, .head_dim = d});
  for (const char* unused : {"q", "k", "v"}) call.forget(unused);
  const auto count = static_cast<std::int64_t>(parts.size());
  for (const char* name : {"part.m", "part.l"}) call.put(name, DType::float32, {1, 1, rows, count}, {0});
  call.put("part.o", DType::float32, {1, 1, rows, count, d}, {0});
  for (std::int64_t n = 0; n < count; ++n)
    for (std::int64_t i = 0; i < rows; ++i) {
      const Part& p = parts[static_cast<std::size_t>(n)];
      call.set("part.m", i * count + n, p.m[static_cast<std::size_t>(i)]), call.set("part.l", i * count + n, p.l[static_cast<std::size_t>(i)]);
      for (std::int64_t e = 0; e < d; ++e) call.set("part.o", (i * count + n) * d + e, p.o[static_cast<std::size_t>(i * d + e)]);
    }
  call.run();
  return {call.values("o"), call.values("lse")};
}

Schedule in_parts(const Call& call, int splits) {
  Schedule s = default_schedule(call.algorithm(), call.problem(), test_target());
  s.splits = splits;
  return made_legal(call.algorithm(), call.problem(), s, test_target());
}

AttentionOptions with_lse() {
  return with([](AttentionOptions& o) { o.lse = true; });
}

}  // namespace

TEST_CASE("merging with a part that saw no key changes no bit, and two such parts give 0 and -inf", "[C03]") {
  constexpr std::int64_t rows = 5, d = 4;
  const Algorithm causal = attention(with([](AttentionOptions& o) { o.causal = o.lse = true; })), plain = attention(with_lse());
  Call first(split(causal).partial, {.rows = rows, .keys = 2, .head_dim = d}), second(split(plain).partial, {.rows = rows, .keys = 2, .head_dim = d});
  const Part a = part_of(first), b = part_of(second);
  for (std::size_t i = 0; i < 3; ++i) CHECK(a.m[i] == -infinite);   // rows 0 to 2 see nothing
  const Merged both = merged(plain, {a, b}, rows, d), swapped = merged(plain, {b, a}, rows, d), alone = merged(plain, {b}, rows, d);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(both.lse[i] == alone.lse[i]);
    CHECK(swapped.lse[i] == alone.lse[i]);
    for (std::size_t e = 0; e < d; ++e) CHECK((both.o[i * d + e] == alone.o[i * d + e] && swapped.o[i * d + e] == alone.o[i * d + e]));
  }
  for (std::size_t i = 3; i < rows; ++i) CHECK(both.lse[i] > alone.lse[i]);   // the others gained keys
  const Merged nothing = merged(plain, {a, a}, rows, d);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(nothing.lse[i] == -infinite);
    for (std::size_t e = 0; e < d; ++e) CHECK(nothing.o[i * d + e] == 0);
  }
}

TEST_CASE("parts of one and three zero scores merge to a quarter", "[C15]") {
  const Algorithm a = attention(with_lse());
  Call one(split(a).partial, {.keys = 1}), three(split(a).partial, {.keys = 3});
  for (Call* part : {&one, &three}) part->fill("q", [](std::int64_t) { return 0; });
  one.fill("v", [](std::int64_t) { return 1; }), three.fill("v", [](std::int64_t) { return 0; });
  const Merged result = merged(a, {part_of(one), part_of(three)}, 1, 4);
  for (const double x : result.o) CHECK(std::fabs(x - 0.25) < 1e-6);
  CHECK(std::fabs(result.lse[0] - 1.386294) < 1e-6);
}

TEST_CASE("a kernel of any number of parts gives the quarter as well", "[C15]") {
  Call call(with_lse(), {.keys = 4});
  call.fill("q", [](std::int64_t) { return 0; });
  call.fill("v", [](std::int64_t i) { return i < 4; });
  for (const int splits : {1, 2, 3, 4, 7}) {
    const Values o = call.output("o", in_parts(call, splits));
    for (const double x : o) CHECK(std::fabs(x - 0.25) < 1e-6);
    CHECK(std::fabs(call.get("lse", 0) - 1.386294) < 1e-6);
  }
}

TEST_CASE("more parts than a short sequence has tiles change nothing", "[C16]") {
  constexpr std::int64_t d = 128;
  for (const double first : {1., 0.})
    for (const DType type : {DType::float32, DType::bfloat16, DType::float16})
      for (const std::int64_t rows : {1, 20}) {
        Call call(with([](AttentionOptions& o) { o.lengths = Lengths::used, o.lse = true; }), {.batches = 2, .heads = 2, .rows = rows, .keys = 4000, .head_dim = d}, type);
        call.put("kv_lens", DType::int32, {2}, {first, 4000});
        const auto expected = evaluate(call.algorithm(), call.evaluate_inputs());
        for (const int splits : {1, 2, 7, 32, 128}) {
          INFO(splits << " parts, first sequence of " << first << ", rows " << rows << " " << to_string(type));
          poison_reused_memory();
          call.run(in_parts(call, splits));
          CHECK(call.mismatch(expected) == "");
          for (std::int64_t row = 0; row < 2 * rows; ++row) {
            if (first == 0) CHECK(call.get("lse", row) == -infinite);
            for (std::int64_t e = 0; e < d; ++e)
              if (call.get("o", row * d + e) != (first == 0 ? 0 : call.get("v", row / rows * 4000 * d + e))) FAIL_CHECK("row " << row << " column " << e);
          }
        }
      }
}

TEST_CASE("packed sequences in parts, empty ones among them, agree with the reference", "[C16][C35]") {
  Call call(with([](AttentionOptions& o) { o.lengths = Lengths::packed, o.causal = o.lse = true; }), {.heads = 2, .rows = 6, .keys = 408, .head_dim = 32});
  call.put("cu_seqlens_q", DType::int32, {6}, {0, 1, 1, 4, 5, 6}).put("cu_seqlens_k", DType::int32, {6}, {0, 1, 3, 3, 8, 408});
  for (const int splits : {1, 2, 7, 32}) {
    poison_reused_memory();
    call.run(in_parts(call, splits));
    CHECK(call.mismatch() == "");
  }
}

TEST_CASE("the sink joins the sum once, whatever the number of parts", "[C17]") {
  Call one(with([](AttentionOptions& o) { o.lse = o.sink = true; }), {.keys = 1, .head_dim = 1});
  one.put("q", DType::float32, {1, 1, 1, 1}, {0}).put("v", DType::float32, {1, 1, 1, 1}, {1}).put("sink", DType::float32, {1}, {0});
  for (const Schedule& s : one.tilings()) {
    CHECK(std::fabs(one.output("o", s)[0] - 0.5) < 1e-6);
    CHECK(std::fabs(one.get("lse", 0) - 0.693147) < 1e-6);
  }
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16})
    for (const std::int64_t rows : {1, 30}) {
      Call call(with([](AttentionOptions& o) { o.lse = o.sink = true; }), {.heads = 2, .rows = rows, .keys = 4000, .head_dim = 16}, type);
      call.put("sink", DType::float32, {2}, {9, 7});   // large enough to be seen beside 4000 keys
      const auto expected = evaluate(call.algorithm(), call.evaluate_inputs());
      for (const int splits : {1, 4, 64}) {
        INFO(splits << " parts, rows " << rows << " " << to_string(type));
        poison_reused_memory();
        call.run(in_parts(call, splits));
        CHECK(call.mismatch(expected) == "");
      }
    }
}

TEST_CASE("a sink without any key is the whole sum, in one part and in many", "[C17]") {
  Call call(with([](AttentionOptions& o) { o.lengths = Lengths::used, o.lse = o.sink = true; }), {.heads = 2, .rows = 1, .keys = 300, .head_dim = 8});
  call.put("kv_lens", DType::int32, {1}, {0}).put("sink", DType::float32, {2}, {1.5, -0.5});
  for (const int splits : {1, 4, 64}) {
    const Values o = call.output("o", in_parts(call, splits));
    for (const double x : o) CHECK(x == 0);
    CHECK(call.values("lse") == Values{1.5, -0.5});
  }
}
