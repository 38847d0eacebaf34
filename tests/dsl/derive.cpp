#include "dsl/derive.h"

#include <functional>

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
using Outputs = std::map<std::string, EvaluatedOutput>;

// The parts' states side by side as the merge's tensors: [..., row][x] becomes [..., row][part][x].
void add_parts(Arguments& arguments, const Algorithm& merge, const std::vector<Outputs>& parts) {
  for (const auto& [name, first] : parts[0]) {
    std::vector<std::int64_t> shape = first.shape;
    const std::int64_t rows = shape[0] * shape[1] * shape[2];
    const auto inner = static_cast<std::size_t>(rows == 0 ? 0 : static_cast<std::int64_t>(first.values.size()) / rows);
    std::vector<double> all;
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
      for (const Outputs& p : parts)
        for (std::size_t e = 0; e < inner; ++e) all.push_back(p.at(name).values[row * inner + e]);
    shape.insert(shape.begin() + 3, static_cast<std::int64_t>(parts.size()));
    const bool integers = merge.find_input(name)->kind == Kind::integer;
    arguments.add(name, shape, all, integers ? DType::int32 : DType::float32);
  }
}

Outputs merged(const SplitAlgorithm& s, Arguments& arguments, const std::vector<Outputs>& parts) {
  add_parts(arguments, s.merge, parts);
  return evaluate(s.merge, arguments.inputs);
}

Outputs part_of(const SplitAlgorithm& s, const Arguments& arguments, std::int64_t begin, std::int64_t end) {
  EvaluateInputs in = arguments.inputs;
  in.stream_begin = begin;
  in.stream_end = end;
  return evaluate(s.partial, in);
}

std::vector<Outputs> parts_of(const SplitAlgorithm& s, const Arguments& arguments, std::int64_t keys,
                              std::int64_t count) {
  std::vector<Outputs> parts;
  const std::int64_t size = (keys + count - 1) / count;
  for (std::int64_t p = 0; p < count; ++p) parts.push_back(part_of(s, arguments, p * size, (p + 1) * size));
  return parts;
}

AttentionOptions with_lse() {
  AttentionOptions options;
  options.lse = true;
  return options;
}

PlainAttention one_head(std::int64_t rows, std::int64_t keys) {
  std::mt19937 random(5);
  PlainAttention p;
  p.dim = p.value_dim = 3;
  p.rows = rows;
  p.keys = keys;
  p.q = test::random_values(random, rows * 3);
  p.k = test::random_values(random, keys * 3);
  p.v = test::random_values(random, keys * 3);
  return p;
}

}  // namespace

TEST_CASE("any number of parts gives the unsplit result, for random option sets") {
  std::mt19937 random(99);
  for (int n = 0; n < 600; ++n) {
    Problem problem = test::random_problem(random);
    const Algorithm a = attention(problem.options);
    const Outputs whole = evaluate(a, problem.arguments.inputs);
    const SplitAlgorithm s = split(a);
    for (const std::int64_t count : {1, 2, 7}) {
      INFO("case " << n << ", " << count << " parts\n" << to_string(s.partial) << to_string(s.merge));
      const Outputs together = merged(s, problem.arguments, parts_of(s, problem.arguments, problem.plain.keys, count));
      REQUIRE(test::worst_difference(together.at("o").values, whole.at("o").values) < 2e-5);
      if (problem.options.lse)
        REQUIRE(test::worst_difference(together.at("lse").values, whole.at("lse").values) < 2e-5);
    }
  }
}

TEST_CASE("merging with an empty part changes no bit") {
  const PlainAttention p = one_head(4, 6);
  Arguments arguments;
  test::add_qkv(arguments, p);
  for (const bool top_k : {false, true}) {
    AttentionOptions options = with_lse();
    options.top_k = top_k ? 2 : 0;
    options.top_k_outputs = top_k;
    const SplitAlgorithm s = split(attention(options));
    const Outputs full = part_of(s, arguments, 0, 6), empty = part_of(s, arguments, 6, 9);
    const Outputs alone = merged(s, arguments, {full});
    for (const auto& parts : {std::vector<Outputs>{full, empty}, {empty, full}, {empty, empty, full, empty}}) {
      const Outputs with = merged(s, arguments, parts);
      for (const auto& [name, value] : alone) CHECK(with.at(name).values == value.values);
    }
  }
}

TEST_CASE("merging nothing with nothing is the identity: output 0 and lse -inf") {
  const PlainAttention p = one_head(2, 3);
  Arguments arguments;
  test::add_qkv(arguments, p);
  const SplitAlgorithm s = split(attention(with_lse()));
  const Outputs empty = part_of(s, arguments, 3, 3);
  CHECK(empty.at("part.m").values == std::vector<double>(2, -infinite));
  CHECK(empty.at("part.l").values == std::vector<double>(2, 0.0));
  const Outputs both = merged(s, arguments, {empty, empty});
  CHECK(both.at("o").values == std::vector<double>(6, 0.0));
  CHECK(both.at("lse").values == std::vector<double>(2, -infinite));
}

TEST_CASE("a part with one zero score and one with three merge to a quarter") {
  PlainAttention p;
  p.keys = 4;
  p.q = {0};
  p.k = {0, 0, 0, 0};
  p.v = {1, 0, 0, 0};
  Arguments arguments;
  test::add_qkv(arguments, p);
  const SplitAlgorithm s = split(attention(with_lse()));
  const Outputs out = merged(s, arguments, {part_of(s, arguments, 0, 1), part_of(s, arguments, 1, 4)});
  CHECK(out.at("o").values[0] == 0.25);
  CHECK(std::fabs(out.at("lse").values[0] - std::log(4.0)) < 1e-15);
}

TEST_CASE("the sink joins once, after all parts") {
  PlainAttention p;
  p.keys = 1;
  p.q = {0};
  p.k = {0};
  p.v = {1};
  Arguments arguments;
  test::add_qkv(arguments, p);
  arguments.add("sink", {1}, {0});
  AttentionOptions options = with_lse();
  options.sink = true;
  const SplitAlgorithm s = split(attention(options));
  CHECK(s.partial.find_input("sink") == nullptr);
  for (const std::int64_t count : {1, 4, 64}) {
    const Outputs out = merged(s, arguments, parts_of(s, arguments, 1, count));
    CHECK(out.at("o").values[0] == 0.5);
    CHECK(std::fabs(out.at("lse").values[0] - 0.6931471805599453) < 1e-15);
  }
}

TEST_CASE("merged selections carry the original indices and break ties to the lower one") {
  PlainAttention p;
  p.keys = 6;
  p.q = {1};
  p.k = {2, 5, 5, 1, 5, 7};
  p.v = {1, 2, 3, 4, 5, 6};
  Arguments arguments;
  test::add_qkv(arguments, p);
  AttentionOptions options = with_lse();
  options.top_k = 3;
  options.top_k_outputs = true;
  const SplitAlgorithm s = split(attention(options));
  for (const std::int64_t count : {1, 2, 3, 6}) {
    const Outputs out = merged(s, arguments, parts_of(s, arguments, 6, count));
    CHECK(out.at("indices").values == std::vector<double>{5, 1, 2});
    CHECK(out.at("values").values == std::vector<double>{7, 5, 5});
  }
}

TEST_CASE("the parts and their merge read as a user would write them") {
  AttentionOptions options = with_lse();
  options.causal = true;
  const SplitAlgorithm s = split(attention(options));
  CHECK(to_string(s.partial) == R"(for_tiles("attention.partial", query).stream(key)
  input q: real [batch, head, query, head_dim]
  input k: real [batch, kv_head, key, head_dim]
  input v: real [batch, kv_head, key, value_dim]
  scalar scale: real
  visible(key <= query + length(key) - length(query))
  _1 = dot(q, k) * scale
  m = running_max(_1)
  _2 = exp(_1 - m)
  l = sum(_2)
  o = sum(dot(_2, v))
  rescale({l, o}, m, exp(from - to))
  output("part.m", m)
  output("part.l", l)
  output("part.o", o)
)");
  CHECK(to_string(s.merge) == R"(for_tiles("attention.merge", query).stream(part)
  input part.m: real [batch, head, query, part]
  input part.l: real [batch, head, query, part]
  input part.o: real [batch, head, query, part, value_dim]
  m = running_max(part.m)
  _1 = exp(part.m - m)
  l = sum(part.l * _1)
  o = sum(part.o * _1)
  rescale({l, o}, m, exp(from - to))
  output("o", select(l == 0.0, 0.0, o / l))
  output("lse", m + log(l))
)");
}

TEST_CASE("what has no merge is refused as unsupported") {
  const auto error_of = [](const Algorithm& a) -> std::string {
    try {
      split(a);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::unsupported);
      return e.what();
    }
    return "no error";
  };
  CHECK_THAT(error_of(standard_attention(false).scores), ContainsSubstring("\"s\" is written at every position"));
  CHECK_THAT(error_of(split(attention({})).merge), ContainsSubstring("a merge is not split again"));
}

TEST_CASE("a reference may lag behind the maximum where no output shows it") {
  const auto takes = [](const Algorithm& a, double slack = 5.5, double most = 256) { return takes_lagging_reference(a, slack, most); };
  const auto with = [](auto set) {
    AttentionOptions options;
    set(options);
    return attention(options);
  };
  CHECK(takes(attention({})));
  CHECK(takes(with([](auto& o) { o.causal = o.lse = o.softcap = true; })));
  CHECK(takes(with([](auto& o) { o.sink = o.lse = true; })));
  CHECK(takes(with([](auto& o) { o.rule = Rule::softmax_plus_one; })));
  CHECK_FALSE(takes(attention({}), 6.0));   // weights grow by more than 256
  CHECK_FALSE(takes(with([](auto& o) { o.rule = Rule::sigmoid; })));
  CHECK_FALSE(takes(with([](auto& o) { o.top_k = 4; })));
  CHECK_FALSE(takes(standard_attention(false).probabilities));
}

TEST_CASE("an algorithm that outputs its maximum or its sum takes no reference that lags") {
  const auto with_output = [](const std::function<Expr(Expr m, Expr l)>& shown) {
    const Tensor q = input("q", {batch, head, query, head_dim}), k = input("k", {batch, kv_head, key, head_dim}), v = input("v", {batch, kv_head, key, value_dim});
    return for_tiles("test", query).stream(key, [&](Stream& t) {
      const Expr s = dot(q, k) * scalar("scale");
      const State m = t.running_max("m", s);
      const Expr p = exp(s - m);
      const State l = t.sum("l", p), o = t.sum("o", dot(p, v));
      t.rescale({l, o}, [](const Expr& from, const Expr& to) { return exp(from - to); });
      t.finish([&](Finish& f) { f.output("o", normalise(o, l)), f.output("shown", shown(m, l)); });
    });
  };
  CHECK_FALSE(takes_lagging_reference(with_output([](const Expr& m, const Expr&) { return m; }), 5.5, 256));
  CHECK_FALSE(takes_lagging_reference(with_output([](const Expr&, const Expr& l) { return l; }), 5.5, 256));
  CHECK(takes_lagging_reference(with_output([](const Expr& m, const Expr& l) { return m + log(l); }), 5.5, 256));
}
