#include "dsl/evaluate.h"

#include "dsl/error.h"
#include "dsl/library.h"
#include "tests/dsl/problems.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using attile::test::Arguments;
using attile::test::ContainsSubstring;
using attile::test::PlainAttention;

namespace {

const double infinite = std::numeric_limits<double>::infinity();

std::string error_of(const Algorithm& a, const EvaluateInputs& in) {
  try {
    evaluate(a, in);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::argument);
    return e.what();
  }
  return "no error";
}

// Two sequences, two query heads on one kv head, head dim 2.
PlainAttention small_problem(std::int64_t rows, std::int64_t keys) {
  std::mt19937 random(7);
  PlainAttention p;
  p.batch = p.heads = p.dim = p.value_dim = 2;
  p.rows = rows;
  p.keys = keys;
  p.q = test::random_values(random, 8 * rows);
  p.k = test::random_values(random, 4 * keys);
  p.v = test::random_values(random, 4 * keys);
  return p;
}

}  // namespace

TEST_CASE("wrong arguments of evaluate are named") {
  PlainAttention p = small_problem(2, 3);
  AttentionOptions options;
  options.alibi = true;
  const Algorithm a = attention(options);
  const auto good = [&] {
    Arguments arguments;
    test::add_qkv(arguments, p);
    arguments.add("alibi_slopes", {2, 2}, {1, 1, 1, 1});
    return arguments;
  };
  CHECK(error_of(a, good().inputs) == "no error");
  Arguments x = good();
  x.remove("v");
  CHECK_THAT(error_of(a, x.inputs), ContainsSubstring("the tensor \"v\" is not given"));
  x = good();
  x.inputs.scalars.clear();
  CHECK_THAT(error_of(a, x.inputs), ContainsSubstring("the scalar \"scale\" is not given"));
  x = good();
  x.add("k", {2, 1, 4, 2}, std::vector<double>(16));
  CHECK_THAT(error_of(a, x.inputs), ContainsSubstring("\"v\" has extent 3 along key, but 4 is needed"));
  x = good();
  x.add("q", {2, 2, 2}, std::vector<double>(8));
  CHECK_THAT(error_of(a, x.inputs), ContainsSubstring("\"q\" has 3 extents and 3 strides, but 4 dims"));
  x = good();
  x.add("q", {2, 2, 2, 2}, std::vector<double>(16), DType::int32);
  CHECK_THAT(error_of(a, x.inputs), ContainsSubstring("\"q\" is int32, but float32, bfloat16 or float16 is needed"));
  x = good();
  x.inputs.tensors["q"].data = nullptr;
  CHECK_THAT(error_of(a, x.inputs), ContainsSubstring("\"q\" has no data"));
  x = good();
  x.add("alibi_slopes", {1, 2}, {1, 1});
  CHECK_THAT(error_of(a, x.inputs), ContainsSubstring("extent 1 along batch, but 2 is needed"));
  x = good();
  x.add("k", {2, 3, 3, 2}, std::vector<double>(36));
  x.add("v", {2, 3, 3, 2}, std::vector<double>(36));
  CHECK_THAT(error_of(a, x.inputs), ContainsSubstring("2 heads cannot share 3 kv heads"));
}

TEST_CASE("wrong lengths are named") {
  PlainAttention p = small_problem(2, 3);
  AttentionOptions options;
  options.lengths = Lengths::used;
  Arguments x;
  test::add_qkv(x, p);
  x.add("kv_lens", {2}, {1, 4}, DType::int32);
  CHECK_THAT(error_of(attention(options), x.inputs), ContainsSubstring("kv_lens[1] is 4, but there are 3 keys"));
  options.lengths = Lengths::packed;
  x.inputs.batch = 1;
  x.add("cu_seqlens_q", {2}, {0, 2}, DType::int32);
  x.add("cu_seqlens_k", {2}, {0, 3}, DType::int32);
  CHECK_THAT(error_of(attention(options), x.inputs), ContainsSubstring("packed sequences stand one after another"));
  x.add("cu_seqlens_k", {2}, {0, 2}, DType::int32);
  CHECK_THAT(error_of(attention(options), x.inputs),
             ContainsSubstring("\"cu_seqlens_k\" ends at 2, but the tensors have 3"));
  x.add("cu_seqlens_k", {2}, {1, 3}, DType::int32);
  CHECK_THAT(error_of(attention(options), x.inputs), ContainsSubstring("must start at 0 and never fall"));
}

TEST_CASE("rows and positions may change places") {
  PlainAttention p = small_problem(3, 4);
  Arguments arguments;
  test::add_qkv(arguments, p);
  const Expr kept_word = random_word(5, 6);
  const Expr s = dot(input("q", {batch, head, query, head_dim}), input("k", {batch, kv_head, key, head_dim}));
  const Algorithm by_key = for_tiles("columns", key).stream(query, [&](Stream& t) {
    t.visible(index(query) != 1);
    const State sum = t.sum("sum", s), words = t.sum("words", kept_word);
    t.finish([&](Finish& f) {
      f.output("c", sum);
      f.output("w", words);
    });
  });
  const auto out = evaluate(by_key, arguments.inputs);
  REQUIRE(out.at("c").shape == std::vector<std::int64_t>{2, 2, 4});
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t j = 0; j < 4; ++j) {
        double sum = 0, words = 0;
        for (std::size_t i : {0u, 2u}) {
          for (std::size_t d = 0; d < 2; ++d) sum += p.q[((b * 2 + h) * 3 + i) * 2 + d] * p.k[(b * 4 + j) * 2 + d];
          words += dropout_word(5, 6, static_cast<std::int64_t>(b * 2 + h), static_cast<std::int64_t>(i),
                                static_cast<std::int64_t>(j));
        }
        CHECK(out.at("c").values[(b * 2 + h) * 4 + j] == sum);
        CHECK(out.at("w").values[(b * 2 + h) * 4 + j] == words);
      }
}

TEST_CASE("captured tensors are read at computed indices, and outside they read as declared") {
  PlainAttention p = small_problem(2, 3);
  Arguments arguments;
  test::add_qkv(arguments, p);
  arguments.add("table", {2, 2}, {1, 2, 4, 8});
  const Tensor table = input("table", {head, Dim{"bucket"}}, Kind::real, 100);
  const Algorithm a = for_tiles("captured", query).stream(key, [&](Stream& t) {
    const State sum = t.sum("sum", table(head, key - query));
    t.emit("each", table(head, key - query));
    t.finish([&](Finish& f) { f.output("c", sum); });
  });
  arguments.add("q", {2, 2, 2, 2}, p.q);
  // Neither q nor k is read, so another tensor must tell how many rows and keys there are.
  CHECK_THAT(error_of(a, arguments.inputs), ContainsSubstring("no tensor has the dim query"));
  const Tensor q = input("q", {batch, head, query, head_dim}), k = input("k", {batch, kv_head, key, head_dim});
  const Algorithm b = for_tiles("captured", query).stream(key, [&](Stream& t) {
    const State sum = t.sum("sum", table(head, key - query) + 0.0 * dot(q, k));
    t.finish([&](Finish& f) { f.output("c", sum); });
  });
  const auto c = evaluate(b, arguments.inputs).at("c").values;
  CHECK(c[0] == 1 + 2 + 100);  // buckets 0, 1, 2
  CHECK(c[1] == 100 + 1 + 2);  // buckets -1, 0, 1
  CHECK(c[2] == 4 + 8 + 100);
}

TEST_CASE("empty batches, rows and keys give empty or neutral results") {
  PlainAttention p;
  AttentionOptions options;
  options.lse = true;
  for (const int what : {0, 1, 2, 3}) {
    p = {};
    (what == 0 ? p.batch : what == 1 ? p.heads : what == 2 ? p.rows : p.keys) = 0;
    if (what == 1) p.kv_heads = 0;
    p.q.assign(static_cast<std::size_t>(p.batch * p.heads * p.rows), 1);
    p.k.assign(static_cast<std::size_t>(p.batch * p.kv_heads * p.keys), 1);
    p.v = p.k;
    Arguments arguments;
    test::add_qkv(arguments, p);
    const auto out = evaluate(attention(options), arguments.inputs);
    CHECK(out.at("o").values == (what == 3 ? std::vector<double>{0} : std::vector<double>{}));
    CHECK(out.at("lse").values == (what == 3 ? std::vector<double>{-infinite} : std::vector<double>{}));
  }
}

TEST_CASE("with used lengths a computed index ends at the used length") {
  PlainAttention p = small_problem(1, 3);
  Arguments arguments;
  test::add_qkv(arguments, p);
  arguments.add("kv_lens", {2}, {2, 3}, DType::int32);
  arguments.add("ids", {2, 3}, {1, 2, 4, 8, 16, 32}, DType::int32);
  const Tensor ids = input("ids", {batch, key}, Kind::integer, 1000);
  const Tensor q = input("q", {batch, head, query, head_dim});
  const Algorithm a = for_tiles("next", query).lengths(Lengths::used).stream(key, [&](Stream& t) {
    const State sum = t.sum("sum", to_real(ids(batch, Expr(key) + 1)) + 0.0 * reduce_sum(q, head_dim));
    t.finish([&](Finish& f) { f.output("c", sum); });
  });
  CHECK(evaluate(a, arguments.inputs).at("c").values == std::vector<double>{1002, 1002, 1048, 1048});
}
