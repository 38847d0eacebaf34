// Reported faults of head dims, lengths and sequence lists, each with its input and the right value.
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/numeric/call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

AttentionOptions packed_options(bool causal) {
  return with([&](AttentionOptions& o) { o.lengths = Lengths::packed, o.causal = causal, o.lse = true; });
}

std::int64_t total(const std::vector<std::int64_t>& lengths) { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}); }

Call packed_call(const std::vector<std::int64_t>& q, const std::vector<std::int64_t>& k, Sizes sizes, bool causal, DType type = DType::float32) {
  sizes.rows = total(q), sizes.keys = total(k);
  Call call(packed_options(causal), sizes, type);
  for (const auto& [name, lengths] : {std::pair("cu_seqlens_q", q), std::pair("cu_seqlens_k", k)}) {
    Values bounds{0};
    for (const std::int64_t n : lengths) bounds.push_back(bounds.back() + static_cast<double>(n));
    call.put(name, DType::int32, {static_cast<std::int64_t>(bounds.size())}, bounds);
  }
  return call;
}

}  // namespace

TEST_CASE("the scale is that of the true head dim", "[C11]") {
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
    Call call(AttentionOptions{}, {.keys = 2, .head_dim = 5, .value_dim = 1}, type);
    call.put("q", type, {1, 1, 1, 5}, {1}).put("k", type, {1, 1, 2, 5}, {1, 1, 1, 1, 1, 0, 0, 0, 0, 0}).put("v", type, {1, 1, 2, 1}, {1, 0});
    call.put("o", DType::float32, {1, 1, 1, 1}, {0});
    for (const Schedule& s : call.tilings())
      CHECK(std::fabs(call.output("o", s)[0] - 0.903442) < (type == DType::float32 ? 1e-6 : 1e-3));
  }
}

TEST_CASE("every head dim works, and value dims unlike it", "[C11]") {
  struct { std::int64_t d, dv; } dims[] = {{1, 1},  {3, 3},     {5, 5},     {63, 63}, {72, 72}, {80, 80},   {96, 96},
                                           {160, 160}, {192, 192}, {256, 256}, {3, 5},   {5, 3},   {192, 128}, {64, 512}};
  // float32 under every tiling; the other types under two each, all of them over the dims.
  std::size_t turn = 0;
  for (const auto& [d, dv] : dims)
    for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
      Call call(with([](AttentionOptions& o) { o.causal = o.lse = true; }), {.heads = 2, .kv_heads = 1, .rows = 37, .keys = 53, .head_dim = d, .value_dim = dv}, type);
      const auto expected = evaluate(call.algorithm(), call.evaluate_inputs());
      const std::vector<Schedule> tilings = call.tilings();
      const std::size_t count = type == DType::float32 ? tilings.size() : 2;
      for (std::size_t i = 0; i < count; ++i) {
        const Schedule& s = tilings[turn++ % tilings.size()];
        INFO("D " << d << " Dv " << dv << " " << to_string(type) << " " << to_string(s));
        call.run(s);
        CHECK(call.mismatch(expected) == "");
      }
    }
}

TEST_CASE("every pair of lengths agrees with the reference, whatever memory held before", "[C12]") {
  constexpr std::int64_t lengths[] = {1, 2, 9, 63, 64, 65, 127, 129, 503, 1001};
  for (const auto& [d, type] : {std::pair(std::int64_t{64}, DType::float32), {128, DType::float32}, {64, DType::bfloat16}, {128, DType::float16}})
    for (const std::int64_t rows : lengths)
      for (const std::int64_t keys : lengths) {
        Call call(with([](AttentionOptions& o) { o.lse = true; }), {.rows = rows, .keys = keys, .head_dim = d}, type);
        const auto expected = evaluate(call.algorithm(), call.evaluate_inputs());
        for (const Schedule& s : call.tilings()) {
          INFO("Nq " << rows << " Nk " << keys << " D " << d << " " << to_string(type) << " " << to_string(s));
          poison_reused_memory();
          call.run(s);
          CHECK(call.mismatch(expected) == "");
        }
      }
}

TEST_CASE("twenty runs of ragged lengths on poisoned memory give the same bits", "[C12]") {
  for (const std::int64_t rows : {9, 65, 503})
    for (const std::int64_t keys : {9, 129, 1001}) {
      Call call(with([](AttentionOptions& o) { o.lse = true; }), {.rows = rows, .keys = keys, .head_dim = 64});
      for (const Schedule& s : call.tilings()) {
        const Values first = call.output("o", s);
        for (int round = 0; round < 20; ++round) {
          poison_reused_memory();
          CHECK(same_bits(call.output("o", s), first));
        }
      }
    }
}

TEST_CASE("sequences without queries or keys are 0 with lse -inf, and their neighbours are right", "[C35]") {
  struct { std::vector<std::int64_t> q, k; Sizes sizes; } batches[] = {
      {{2, 0, 3, 0, 0}, {3, 2, 0, 0, 2}, {.heads = 2, .head_dim = 8}},
      {{0, 1, 0, 1}, {0, 3, 0, 5}, {.heads = 9, .kv_heads = 3, .head_dim = 8}},
      {{1, 1, 1}, {0, 0, 0}, {.heads = 2, .head_dim = 8}},
      {{0, 0}, {4, 5}, {.heads = 2, .head_dim = 8}}};
  for (const auto& [q, k, sizes] : batches)
    for (const bool causal : {false, true}) {
      Call call = packed_call(q, k, sizes, causal);
      CHECK(run_all(call) == "");
      for (const Schedule& s : call.tilings()) {
        call.run(s);
        std::int64_t row = 0;
        for (std::size_t n = 0; n < q.size(); row += q[n++])
          for (std::int64_t i = row; k[n] == 0 && i < row + q[n]; ++i) {
            CHECK(call.get("lse", i) == -infinite);
            CHECK(call.get("o", i * 8) == 0);
          }
      }
    }
}

TEST_CASE("a batch of empty sequences, or of none, returns at once", "[C35]") {
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{0, 0, 0}, {}}) {
    Call call = packed_call(lengths, lengths, {.heads = 2, .head_dim = 8}, true);
    for (const Schedule& s : call.tilings()) {
      call.run(s);
      CHECK(call.values("o").empty());
    }
  }
}

TEST_CASE("the packed sequences of a causal batch equal the same sequences alone", "[C37]") {
  struct { std::vector<std::int64_t> lengths; Sizes sizes; } batches[] = {{{1743, 1559}, {.heads = 8, .head_dim = 128}},
                                                                        {{1, 1000}, {.heads = 8, .head_dim = 128}},
                                                                        {{129, 128, 1}, {.heads = 8, .head_dim = 128}}};
  for (const auto& [lengths, sizes] : batches) {
    Call call = packed_call(lengths, lengths, sizes, true);
    call.run();
    const std::int64_t rows = total(lengths), d = sizes.head_dim;
    std::int64_t first = 0, wrong = 0;
    for (const std::int64_t n : lengths) {
      Sizes alone_sizes = sizes;
      alone_sizes.rows = alone_sizes.keys = n;
      Call alone(with([](AttentionOptions& o) { o.causal = o.lse = true; }), alone_sizes);
      const auto place = [&](std::int64_t i) { return (i / (n * d) * rows + first + i / d % n) * d + i % d; };
      for (const char* name : {"q", "k", "v"}) alone.fill(name, [&](std::int64_t i) { return call.get(name, place(i)); });
      alone.run();
      for (std::int64_t i = 0; i < sizes.heads * n * d; ++i) wrong += !(std::fabs(alone.get("o", i) - call.get("o", place(i))) < 1e-5);
      first += n;
    }
    CHECK(wrong == 0);
  }
}
