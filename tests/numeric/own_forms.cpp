// What a user may write in an algorithm is computed rightly under every tiling, or refused with the reason: never computed
// wrongly, never a crash.
#include <functional>

#include "dsl/error.h"
#include "tests/numeric/call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

const Tensor q = input("q", {batch, head, query, head_dim}), k = input("k", {batch, kv_head, key, head_dim}),
             v = input("v", {batch, kv_head, key, value_dim}), q2 = input("q2", {batch, head, query, head_dim}),
             k2 = input("k2", {batch, kv_head, key, head_dim}), w = input("w", {batch, kv_head, key, value_dim});
constexpr std::int64_t B = 2, H = 4, Hk = 2, N = 21, M = 37, D = 12, Dv = 9;

Expr plain_score() { return dot(q, k) * scalar("scale"); }

// Softmax attention with this score.
Algorithm scored(const std::function<Expr(Stream&)>& score) {
  return for_tiles("own", query).stream(key, [&](Stream& t) {
    const Expr s = score(t);
    const State m = t.running_max("m", s);
    const Expr p = exp(s - m);
    const State l = t.sum("l", p), o = t.sum("o", dot(p, v));
    t.rescale({l, o}, [](const Expr& from, const Expr& to) { return exp(from - to); });
    t.finish([&](Finish& f) { f.output("o", normalise(o, l)); });
  });
}

// The sum of `summand` over the keys, and the output made of it.
Algorithm summed(const Expr& summand, const std::function<Expr(const Expr& o)>& out = [](const Expr& o) { return o; }) {
  return for_tiles("own", query).stream(key, [&](Stream& t) {
    const State o = t.sum("o", summand);
    t.finish([&](Finish& f) { f.output("o", out(o)); });
  });
}

// A call of `a` with values for the tensors it reads.
Call call_of(const Algorithm& a) {
  Call call(a, {.batches = B, .heads = H, .kv_heads = Hk, .rows = N, .keys = M, .head_dim = D, .value_dim = Dv});
  for (const char* name : {"q", "k", "v"})
    if (!a.find_input(name)) call.forget(name);
  const std::pair<const char*, std::vector<std::int64_t>> more[] = {
      {"q2", {B, H, N, D}}, {"k2", {B, Hk, M, D}}, {"w", {B, Hk, M, Dv}}, {"by_row", {B, H, N}}, {"by_key", {B, Hk, M}},
      {"by_both", {B, H, N, M}}, {"rows", {B, H, N, M, D}}, {"gate", {B, H, N, Dv}}, {"near", {H, 64, D}}, {"by_dim", {D}}, {"qv", {B, H, N, Dv}}};
  for (const auto& [name, shape] : more) {
    if (!a.find_input(name)) continue;
    call.put(name, DType::float32, shape, {0});
    call.fill(name, [](std::int64_t i) { return static_cast<double>(static_cast<std::uint64_t>(i) * 2654435761u % 29) / 16 - 0.9; });
  }
  return call;
}

struct Form {
  const char* name;
  Algorithm algorithm;
};

}  // namespace

TEST_CASE("scores, weights and outputs of many forms agree with the reference") {
  const Tensor by_row = input("by_row", {batch, head, query}), by_key = input("by_key", {batch, kv_head, key}, Kind::real, -7),
               by_both = input("by_both", {batch, head, query, key});
  const Form forms[] = {
      {"a sum of two products", scored([](Stream&) { return plain_score() + dot(q2, k2) * 0.25; })},
      {"a product of two products", scored([](Stream&) { return plain_score() * dot(q, k2); })},
      {"a term by row", scored([&](Stream&) { return plain_score() + by_row; })},
      {"a term by key", scored([&](Stream&) { return plain_score() + by_key; })},
      {"a term read twice", scored([&](Stream&) { return plain_score() + Expr(by_both) * by_both; })},
      {"terms of other keys", scored([&](Stream&) { return plain_score() + by_key(batch, kv_head, key + 1) + by_key(batch, kv_head, key - query); })},
      {"a key for each row", scored([](Stream&) { return plain_score() + dot(q, input("rows", {batch, head, query, key, head_dim}), head_dim); })},
      {"a mask by data", scored([&](Stream& t) {
         t.visible(Expr(by_key) > 0.0);
         return plain_score();
       })},
      {"squared weights", summed(dot(plain_score() * plain_score(), v))},
      {"an output scaled by row", summed(dot(plain_score(), v), [&](const Expr& o) { return o * by_row; })},
      {"two values", for_tiles("own", query).stream(key, [&](Stream& t) {
         const State o = t.sum("o", dot(plain_score(), v)), x = t.sum("x", dot(abs(plain_score()), w)), plain = t.sum("plain", Expr(v));
         t.finish([&](Finish& f) { f.output("o", Expr(o) + Expr(x) * 0.5 + plain); });
       })},
      {"only a maximum", for_tiles("own", query).stream(key, [&](Stream& t) {
         const State m = t.running_max("m", plain_score());
         t.finish([&](Finish& f) { f.output("m", m); });
       })}};
  for (const Form& form : forms) {
    INFO(form.name);
    Call call = call_of(form.algorithm);
    CHECK(run_all(call, 20) == "");   // sums without a normaliser are larger than values
  }
}

TEST_CASE("an output may read a tensor along its columns") {
  Call call = call_of(summed(dot(plain_score(), v), [](const Expr& o) { return o * sigmoid(input("gate", {batch, head, query, value_dim})); }));
  CHECK(run_all(call, 20) == "");
}

TEST_CASE("forms for which no kernel is built are refused with the reason") {
  const struct { const char* reason; Algorithm algorithm; } forms[] = {
      {"dot reads 'k' at computed indices", scored([](Stream&) { return dot(q, k(batch, kv_head, key + 1, head_dim)); })},
      {"dot reads 'v' at computed indices", summed(dot(plain_score(), v(batch, kv_head, floor_div(index(key), 2), value_dim)))},
      {"dot reads 'near' at computed indices",
       scored([](Stream&) { return dot(q, input("near", {head, Dim{"place"}, head_dim})(head, query - key + 30, head_dim), head_dim); })},
      {"dot reads 'abs(q)', which is not an input tensor", scored([](Stream&) { return dot(abs(q), k); })},
      {"dot reads 'q * by_dim', which is not an input tensor", scored([](Stream&) { return dot(Expr(q) * input("by_dim", {head_dim}), k); })},
      {"'dot(k, k, head_dim)' is no dot of a row with a position", scored([](Stream&) { return plain_score() - dot(k, k, head_dim); })},
      {"'dot(q, q, head_dim)' is no dot of a row with a position", scored([](Stream&) { return plain_score() * dot(q, q, head_dim); })},
      {"is a sum over head_dim that is no dot", scored([](Stream&) { return -reduce_sum(abs(Expr(q) - k), head_dim); })},
      {"a mask reads 'dot(q, k)'", scored([](Stream& t) {
         t.visible(dot(q, k) > 0.0);
         return plain_score();
       })},
      {"must be a weight times an input tensor", summed(dot(plain_score(), Expr(v) * w))},
      {"'v' is read by a dot of scores and by a sum", summed(dot(dot(input("qv", {batch, head, query, value_dim}), v), v))},
      {"an output reads 'reduce_sum(o * o, value_dim)'", for_tiles("own", query).stream(key, [&](Stream& t) {
         const State o = t.sum("o", dot(plain_score(), v));
         t.finish([&](Finish& f) { f.output("n", reduce_sum(Expr(o) * o, value_dim)); });
       })}};
  for (const auto& [reason, algorithm] : forms) {
    INFO(reason);
    const Call call = call_of(algorithm);
    for (const Schedule& s : call.tilings()) {
      try {
        Kernel::get(algorithm, call.problem(), s);
        FAIL_CHECK("a kernel was built with " << to_string(s));
      } catch (const Error& e) {
        CHECK(e.kind() == ErrorKind::unsupported);
        CHECK_THAT(e.what(), ContainsSubstring(reason));
      }
    }
  }
}

TEST_CASE("keys behind a page table are refused, not read as they lie", "[C32]") {
  const Dim page{"page"}, place{"place"}, entry{"entry"};
  const Expr number = input("table", {batch, entry}, Kind::integer, -1)(batch, floor_div(index(key), 16)), at = floor_mod(index(key), 16);
  const Expr key_row = input("k_pool", {page, kv_head, place, head_dim})(number, kv_head, at, head_dim);
  const Expr value_row = input("v_pool", {page, kv_head, place, value_dim})(number, kv_head, at, value_dim);
  const Algorithm paged = summed(dot(dot(q, key_row), value_row));
  Problem p;
  for (const InputDecl& i : paged.inputs) p.dtypes[i.name] = i.kind == Kind::integer ? DType::int32 : DType::float32;
  p.dtypes["o"] = DType::float32, p.extents = {{"head_dim", 16}, {"value_dim", 16}};
  try {
    Kernel::get(paged, p);
    FAIL_CHECK("a kernel was built");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::unsupported);
    CHECK_THAT(e.what(), ContainsSubstring("dot reads 'k_pool' at computed indices"));
  }
}
