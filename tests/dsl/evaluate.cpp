#include "dsl/evaluate.h"

#include <chrono>

#include "dsl/error.h"
#include "dsl/library.h"
#include "tests/dsl/problems.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using attile::test::Arguments;
using attile::test::ContainsSubstring;
using attile::test::PlainAttention;
using attile::test::Problem;

namespace {

const double infinite = std::numeric_limits<double>::infinity();
const double not_a_number = std::numeric_limits<double>::quiet_NaN();

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

TEST_CASE("evaluate agrees with plain loops on random option sets") {
  std::mt19937 random(12345);
  for (int n = 0; n < 4000; ++n) {
    Problem problem = test::random_problem(random);
    problem.plain.run();
    const Algorithm a = attention(problem.options);
    INFO("case " << n << "\n" << to_string(a));
    const auto out = evaluate(a, problem.arguments.inputs);
    REQUIRE(test::worst_difference(out.at("o").values, problem.plain.o) < 1e-11);
    if (problem.options.lse) REQUIRE(test::worst_difference(out.at("lse").values, problem.plain.lse) < 1e-11);
  }
}

TEST_CASE("a large shape is evaluated within seconds") {
  std::mt19937 random(1);
  PlainAttention p;
  p.batch = 2;
  p.heads = p.kv_heads = 8;
  p.rows = 250;
  p.keys = 1000;
  p.dim = p.value_dim = 64;
  p.scale = 0.125;
  p.q = test::random_values(random, 16 * p.rows * 64);
  p.k = test::random_values(random, 16 * p.keys * 64);
  p.v = test::random_values(random, 16 * p.keys * 64);
  Arguments arguments;
  test::add_qkv(arguments, p);
  const auto start = std::chrono::steady_clock::now();
  const auto out = evaluate(attention({}), arguments.inputs);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(out.at("o").shape == std::vector<std::int64_t>{2, 8, 250, 64});
  CAPTURE(took.count());
  CHECK(took.count() < 60);
}

TEST_CASE("listed rows are the same rows of the whole result") {
  PlainAttention p = small_problem(4, 5);
  Arguments arguments;
  test::add_qkv(arguments, p);
  AttentionOptions options;
  options.causal = options.lse = true;
  const Algorithm a = attention(options);
  const auto whole = evaluate(a, arguments.inputs);
  arguments.inputs.rows = {{1, 0, 3}, {0, 1, 0}};
  const auto listed = evaluate(a, arguments.inputs);
  CHECK(listed.at("o").shape == std::vector<std::int64_t>{2, 2});
  CHECK(listed.at("lse").shape == std::vector<std::int64_t>{2});
  const std::vector<double>& o = whole.at("o").values;
  const std::size_t first = ((1 * 2 + 0) * 4 + 3) * 2, second = ((0 * 2 + 1) * 4 + 0) * 2;
  CHECK(listed.at("o").values == std::vector<double>{o[first], o[first + 1], o[second], o[second + 1]});
  arguments.inputs.rows = {{0, 0, 4}};
  CHECK_THAT(error_of(a, arguments.inputs), ContainsSubstring("there is no row 4 of sequence 0, head 0"));
}

TEST_CASE("nothing read at a hidden key matters, not even NaN") {
  PlainAttention p = small_problem(1, 3);
  p.mask = {1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1};
  p.run();
  for (std::size_t i : {2u, 3u, 8u, 9u}) p.k[i] = p.v[i] = not_a_number;
  Arguments arguments;
  test::add_qkv(arguments, p);
  arguments.add("mask", {2, 2, 1, 3}, {p.mask.begin(), p.mask.end()}, DType::boolean);
  AttentionOptions options;
  options.mask = true;
  CHECK(test::worst_difference(evaluate(attention(options), arguments.inputs).at("o").values, p.o) < 1e-14);
}

TEST_CASE("NaN in a visible key, value or query comes out as NaN and spoils no other row") {
  for (const char* where : {"q", "k", "v"}) {
    PlainAttention p = small_problem(2, 3);
    if (where[0] == 'q') p.q[0] = not_a_number;
    if (where[0] == 'k') p.k[0] = not_a_number;
    if (where[0] == 'v') p.v[0] = not_a_number;
    Arguments arguments;
    test::add_qkv(arguments, p);
    AttentionOptions options;
    options.top_k = 2;
    for (const int k : {0, 2}) {
      options.top_k = k;
      const auto o = evaluate(attention(options), arguments.inputs).at("o").values;
      INFO(where << ", top_k " << k);
      if (where[0] != 'v' || k == 0) CHECK(std::isnan(o[0]));
      CHECK_FALSE(std::isnan(o.back()));
    }
  }
}

TEST_CASE("the branch of select that is not taken never matters") {
  PlainAttention p = small_problem(1, 3);
  p.k[0] = not_a_number;
  Arguments arguments;
  test::add_qkv(arguments, p);
  AttentionOptions options;
  options.score_mod = [](const Expr& s) {
    return select(index(key) == 0 && floor_div(index(key), index(key)) <= 0, 1.0, s);
  };
  const auto o = evaluate(attention(options), arguments.inputs).at("o").values;
  CHECK(std::isfinite(o[0]));
}

TEST_CASE("huge finite inputs keep their exact result") {
  for (const double huge : {131072.0, 98304.0}) {
    PlainAttention p;
    p.dim = p.value_dim = 64;
    p.scale = 0.125;
    p.q = p.k = p.v = std::vector<double>(64, huge);
    Arguments arguments;
    test::add_qkv(arguments, p);
    AttentionOptions options;
    options.lse = true;
    const auto out = evaluate(attention(options), arguments.inputs);
    CHECK(out.at("o").values == p.v);
    CHECK(out.at("lse").values[0] == 8 * huge * huge);
  }
}

TEST_CASE("a row of lowest floats as bias is the plain mean") {
  PlainAttention p;
  p.keys = 6;
  p.dim = 4;
  p.q.assign(4, 0);
  p.k.assign(24, 0);
  p.v = {1, 2, 3, 4, 5, 9};
  Arguments arguments;
  test::add_qkv(arguments, p);
  arguments.add("bias", {1, 1, 1, 6}, std::vector<double>(6, std::numeric_limits<float>::lowest()));
  AttentionOptions options;
  options.bias = true;
  CHECK(evaluate(attention(options), arguments.inputs).at("o").values[0] == 4);
}

TEST_CASE("expanded and transposed inputs read as their copies do") {
  PlainAttention p = small_problem(3, 4);
  p.bias.assign(2 * 2 * 3 * 4, 0);
  for (std::size_t i = 0; i < p.bias.size(); ++i) p.bias[i] = 0.25 * static_cast<double>(i % 4);
  Arguments arguments;
  test::add_qkv(arguments, p);
  AttentionOptions options;
  options.bias = true;
  arguments.add("bias", {2, 2, 3, 4}, p.bias);
  const auto copied = evaluate(attention(options), arguments.inputs).at("o").values;
  arguments.add("bias", {1, 1, 1, 4}, {0, 0.25, 0.5, 0.75});
  arguments.inputs.tensors["bias"].strides = {0, 0, 0, 1};
  CHECK(evaluate(attention(options), arguments.inputs).at("o").values == copied);
  // q as [rows][heads][batch][dim] in memory
  std::vector<double> turned(p.q.size());
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t d = 0; d < 2; ++d) turned[((i * 2 + h) * 2 + b) * 2 + d] = p.q[((b * 2 + h) * 3 + i) * 2 + d];
  arguments.add("q", {2, 2, 3, 2}, turned);
  arguments.inputs.tensors["q"].strides = {2, 4, 8, 1};
  CHECK(evaluate(attention(options), arguments.inputs).at("o").values == copied);
}

TEST_CASE("packed sequences equal the same sequences one by one") {
  std::mt19937 random(3);
  const std::vector<std::int64_t> rows{2, 0, 3, 1}, keys{3, 2, 0, 4};
  const std::vector<double> q = test::random_values(random, 2 * 6 * 2), k = test::random_values(random, 9 * 2),
                            v = test::random_values(random, 9 * 2);
  AttentionOptions options;
  options.causal = options.lse = true;
  options.lengths = Lengths::packed;
  options.top_k = 2;  // gathers by index within the sequence
  Arguments packed;
  packed.inputs.batch = 4;
  packed.inputs.heads = 2;
  packed.add("q", {1, 2, 6, 2}, q);
  packed.add("k", {1, 1, 9, 2}, k);
  packed.add("v", {1, 1, 9, 2}, v);
  packed.add("cu_seqlens_q", {5}, {0, 2, 2, 5, 6}, DType::int32);
  packed.add("cu_seqlens_k", {5}, {0, 3, 5, 5, 9}, DType::int32);
  packed.scalar("scale", 1);
  const auto all = evaluate(attention(options), packed.inputs);
  CHECK(all.at("o").shape == std::vector<std::int64_t>{1, 2, 6, 2});
  options.lengths = Lengths::dense;
  std::int64_t row = 0, first_key = 0;
  for (std::size_t s = 0; s < 4; ++s) {
    PlainAttention p;
    p.heads = p.dim = p.value_dim = 2;
    p.rows = rows[s];
    p.keys = keys[s];
    p.causal = true;
    p.top_k = 2;
    for (std::int64_t h = 0; h < 2; ++h)
      p.q.insert(p.q.end(), q.begin() + (h * 6 + row) * 2, q.begin() + (h * 6 + row + p.rows) * 2);
    p.k.assign(k.begin() + first_key * 2, k.begin() + (first_key + p.keys) * 2);
    p.v.assign(v.begin() + first_key * 2, v.begin() + (first_key + p.keys) * 2);
    p.run();
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < p.rows; ++i) {
        const auto at = static_cast<std::size_t>(h * 6 + row + i), own = static_cast<std::size_t>(h * p.rows + i);
        CHECK(std::fabs(all.at("o").values[2 * at] - p.o[2 * own]) < 1e-14);
        CHECK((all.at("lse").values[at] == p.lse[own] || std::fabs(all.at("lse").values[at] - p.lse[own]) < 1e-14));
      }
    row += p.rows;
    first_key += p.keys;
  }
}

TEST_CASE("top-k gives its values and indices, filled up with -inf and -1") {
  PlainAttention p;
  p.keys = 5;
  p.q = {1};
  p.k = {3, 5, 1, 5, 2};
  p.v = {10, 20, 30, 40, 50};
  Arguments arguments;
  test::add_qkv(arguments, p);
  AttentionOptions options;
  options.top_k = 3;
  options.top_k_outputs = true;
  auto out = evaluate(attention(options), arguments.inputs);
  CHECK(out.at("indices").shape == std::vector<std::int64_t>{1, 1, 1, 3});
  CHECK(out.at("indices").values == std::vector<double>{1, 3, 0});
  CHECK(out.at("values").values == std::vector<double>{5, 5, 3});
  options.top_k = 7;
  out = evaluate(attention(options), arguments.inputs);
  CHECK(out.at("indices").values == std::vector<double>{1, 3, 0, 4, 2, -1, -1});
  CHECK(out.at("values").values == std::vector<double>{5, 5, 3, 2, 1, -infinite, -infinite});
}

TEST_CASE("standard attention in three steps equals the one-pass algorithm") {
  PlainAttention p = small_problem(5, 3);
  p.causal = true;
  p.run();
  const StandardAttention standard = standard_attention(true);
  Arguments arguments;
  test::add_qkv(arguments, p);
  const auto scores = evaluate(standard.scores, arguments.inputs);
  CHECK(scores.at("s").shape == std::vector<std::int64_t>{2, 2, 5, 3});
  arguments.add("s", {2, 2, 5, 3}, scores.at("s").values);
  arguments.add("m", {2, 2, 5}, scores.at("m").values);
  arguments.add("l", {2, 2, 5}, scores.at("l").values);
  const auto probabilities = evaluate(standard.probabilities, arguments.inputs);
  CHECK(probabilities.at("p").values[0] == 0);
  arguments.add("p", {2, 2, 5, 3}, probabilities.at("p").values);
  const auto o = evaluate(standard.output, arguments.inputs).at("o").values;
  CHECK(test::worst_difference(o, p.o) < 1e-6);  // s and p went through float32
}

TEST_CASE("the largest magnitude is that of a finite value") {
  CHECK(largest_magnitude({}) == 0);
  CHECK(largest_magnitude({1, -3, 2}) == 3);
  CHECK(largest_magnitude({not_a_number, infinite, 0.5, -infinite}) == 0.5);
  CHECK(largest_magnitude({not_a_number, -infinite}) == 0);
}
