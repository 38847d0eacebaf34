// What is not a number: never seen where a key is hidden, always seen where it is read.
#include <cmath>
#include <limits>

#include "tests/numeric/call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr std::int64_t rows = 70, keys = 150, d = 20;
constexpr DType all_types[] = {DType::float32, DType::bfloat16, DType::float16};

struct MaskKind {
  const char* name;
  void (*options)(AttentionOptions&);
  void (*put)(Call&);
  bool (*hidden)(std::int64_t i, std::int64_t j);   // of row i and key j, for one sequence
};

// Each kind hides some keys from every row and others from some rows only.
const MaskKind mask_kinds[] = {
    {"causal", [](AttentionOptions& o) { o.causal = true; }, [](Call&) {},
     [](std::int64_t i, std::int64_t j) { return j > i + keys - rows; }},
    {"window", [](AttentionOptions& o) { o.window = true; }, [](Call& c) { c.number("window_left", 33).number("window_right", 3); },
     [](std::int64_t i, std::int64_t j) { return j < i + keys - rows - 33 || j > i + keys - rows + 3; }},
    {"boolean mask", [](AttentionOptions& o) { o.mask = true; },
     [](Call& c) {
       c.put("mask", DType::boolean, {1, 1, rows, keys}, {0});
       c.fill("mask", [](std::int64_t i) { return i % keys < 50 ? i % keys % 3 != 1 : i % keys < 100 ? i / keys % 2 : i % keys != 120; });
     },
     [](std::int64_t i, std::int64_t j) { return j < 50 ? j % 3 == 1 : j < 100 ? i % 2 == 0 : j == 120; }},
    {"documents", [](AttentionOptions& o) { o.documents = true; },
     [](Call& c) { c.put("doc_ids", DType::int32, {1, keys}, {0}).fill("doc_ids", [](std::int64_t j) { return static_cast<double>(j / 47); }); },
     [](std::int64_t i, std::int64_t j) { return j / 47 != (i + keys - rows) / 47; }},
    {"prefix", [](AttentionOptions& o) { o.causal = o.prefix = true; }, [](Call& c) { c.put("prefix_len", DType::int32, {1}, {100}); },
     [](std::int64_t i, std::int64_t j) { return j > i + keys - rows && j >= 100; }},
    {"used lengths", [](AttentionOptions& o) { o.lengths = Lengths::used; }, [](Call& c) { c.put("kv_lens", DType::int32, {1}, {101}); },
     [](std::int64_t, std::int64_t j) { return j >= 101; }},
    {"a predicate of its own", [](AttentionOptions& o) { o.mask_mod = [] { return floor_mod(index(key), 5) != floor_mod(index(query), 5); }; }, [](Call&) {},
     [](std::int64_t i, std::int64_t j) { return j % 5 == i % 5; }}};

Call masked_call(const MaskKind& kind, DType type) {
  Call call(with([&](AttentionOptions& o) { kind.options(o), o.lse = true; }), {.rows = rows, .keys = keys, .head_dim = d}, type);
  kind.put(call);
  return call;
}

// Keys `j` of k and v hold `value` in their elements: k, then v.
void poison(Call& call, std::int64_t j, double k, double v) {
  for (std::int64_t e = 0; e < d; ++e) call.set("k", j * d + e, k), call.set("v", j * d + e, v);
}

}  // namespace

TEST_CASE("NaN and infinities at a key that is hidden from a row change no bit of that row") {
  for (const MaskKind& kind : mask_kinds)
    for (const DType type : all_types) {
      Call call = masked_call(kind, type);
      for (const Schedule& s : call.tilings()) {
        const Values clean = call.output("o", s), clean_lse = call.values("lse");
        for (const std::int64_t j : {0L, 1L, 17L, 46L, 120L, keys - 1}) {
          Call poisoned = masked_call(kind, type);
          poison(poisoned, j, std::nan(""), j % 2 ? std::nan("") : infinite);
          INFO(kind.name << " " << to_string(type) << " key " << j << " " << to_string(s));
          const Values o = poisoned.output("o", s), lse = poisoned.values("lse");
          std::int64_t differ = 0, unseen = 0;
          for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t e = 0; e < d; ++e) {
              const auto at = static_cast<std::size_t>(i * d + e);
              if (kind.hidden(i, j)) differ += o[at] != clean[at] || lse[static_cast<std::size_t>(i)] != clean_lse[static_cast<std::size_t>(i)];
              else unseen += !std::isnan(o[at]) || !std::isnan(lse[static_cast<std::size_t>(i)]);
            }
          CHECK(differ == 0);
          CHECK(unseen == 0);
        }
      }
    }
}

TEST_CASE("NaN in the value of a visible key comes out in its column of every row, and in no lse") {
  for (const DType type : all_types) {
    Call call(with([](AttentionOptions& o) { o.lse = true; }), {.rows = rows, .keys = keys, .head_dim = d}, type);
    call.set("v", 77 * d + 3, std::nan(""));
    call.set("v", 10 * d + 5, infinite), call.set("v", 11 * d + 6, -infinite);
    INFO(to_string(type));
    CHECK(run_all(call) == "");
    CHECK(std::isnan(call.get("o", 3)));
    CHECK(call.get("o", 5) == infinite);
    CHECK(call.get("o", 6) == -infinite);
    CHECK_FALSE(has_nan(call.values("lse")));
  }
}

TEST_CASE("NaN in a query comes out in its row only") {
  for (const DType type : all_types)
    for (const std::int64_t row : {0L, 16L, 33L, rows - 1}) {
      Call call(with([](AttentionOptions& o) { o.causal = o.lse = true; }), {.rows = rows, .keys = keys, .head_dim = d}, type);
      call.set("q", row * d + 7, std::nan(""));
      for (const Schedule& s : call.tilings()) {
        INFO(to_string(type) << " row " << row << " " << to_string(s));
        const Values o = call.output("o", s), lse = call.values("lse");
        for (std::int64_t i = 0; i < rows; ++i) {
          CHECK(std::isnan(lse[static_cast<std::size_t>(i)]) == (i == row));
          for (std::int64_t e = 0; e < d; ++e)
            if (std::isnan(o[static_cast<std::size_t>(i * d + e)]) != (i == row)) FAIL_CHECK("row " << i << " column " << e);
        }
      }
    }
}

TEST_CASE("an infinite score gives NaN where it is +inf and weight 0 where it is -inf") {
  for (const DType type : all_types) {
    Call call(with([](AttentionOptions& o) { o.bias = o.lse = true; }), {.rows = 3, .keys = 40, .head_dim = d}, type);
    call.put("bias", DType::float32, {1, 1, 3, 40}, {0});
    for (std::int64_t j = 0; j < 40; j += 3) call.set("bias", 40 + j, -infinite);
    call.set("bias", 2 * 40 + 20, infinite);
    INFO(to_string(type));
    CHECK(run_all(call) == "");
    CHECK(std::isnan(call.get("o", 2 * d)));
    CHECK_FALSE(std::isnan(call.get("o", d)));
  }
}

TEST_CASE("NaN of a visible key survives every modifier and rule") {
  struct { const char* name; void (*options)(AttentionOptions&); } variants[] = {
      {"softcap", [](AttentionOptions& o) { o.softcap = true; }},
      {"alibi", [](AttentionOptions& o) { o.alibi = true; }},
      {"sink", [](AttentionOptions& o) { o.sink = true; }},
      {"softmax_plus_one", [](AttentionOptions& o) { o.rule = Rule::softmax_plus_one; }},
      {"sigmoid", [](AttentionOptions& o) { o.rule = Rule::sigmoid; }},
      {"linear", [](AttentionOptions& o) { o.rule = Rule::linear; }},
      {"top-k", [](AttentionOptions& o) { o.top_k = 3; }}};
  for (const auto& [name, set] : variants)
    for (const DType type : {DType::float32, DType::bfloat16}) {
      Call call(with(set), {.rows = 20, .keys = 60, .head_dim = d}, type);
      call.number("softcap", 2);
      call.put("alibi_slopes", DType::float32, {1, 1}, {0.25}).put("sink", DType::float32, {1}, {1});
      if (std::string(name) != "alibi") call.forget("alibi_slopes");
      if (std::string(name) != "sink") call.forget("sink");
      call.set("k", 33 * d + 2, std::nan(""));
      for (const Schedule& s : call.tilings()) {
        INFO(name << " " << to_string(type) << " " << to_string(s));
        const Values o = call.output("o", s);
        for (const double x : o)
          if (!std::isnan(x)) FAIL_CHECK("a number came out: " << x);
        CHECK(o.size() == 20 * d);
      }
    }
}
