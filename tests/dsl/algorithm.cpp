#include "dsl/algorithm.h"

#include "dsl/error.h"
#include "dsl/library.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using attile::test::ContainsSubstring;

namespace {

const Tensor q = input("q", {batch, head, query, head_dim});
const Tensor k = input("k", {batch, kv_head, key, head_dim});
const Tensor v = input("v", {batch, kv_head, key, value_dim});
Expr score() { return dot(q, k) * scalar("scale"); }
Expr plain_factor(const Expr& from, const Expr& to) { return exp(from - to); }

using Body = std::function<void(Stream&)>;
using Factor = std::function<Expr(Expr, Expr)>;

std::string error_of(const Body& body) {
  try {
    for_tiles("test", query).stream(key, body);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::argument);
    return e.what();
  }
  return "no error";
}

// Softmax attention with the weight, the second sum's term and the factor given.
std::string error_of_rule(const std::function<Expr(Expr s, Expr m)>& weight, const Factor& factor) {
  return error_of([&](Stream& t) {
    const State m = t.running_max("m", score());
    const Expr p = weight(score(), m);
    const State l = t.sum("l", p), o = t.sum("o", dot(p, v));
    t.rescale({l, o}, factor);
    t.finish([&](Finish& f) { f.output("o", normalise(o, l)); });
  });
}

Expr plain_weight(const Expr& s, const Expr& m) { return exp(s - m); }

}  // namespace

TEST_CASE("attention written by hand is the library's attention") {
  const Algorithm a = for_tiles("attention", query).stream(key, [&](Stream& t) {
    const Expr s = dot(q, k) * scalar("scale");
    t.visible(key <= query + length(key) - length(query));
    const State m = t.running_max("m", s);
    const Expr p = exp(s - m);
    const State l = t.sum("l", p);
    const State o = t.sum("o", dot(p, v));
    t.rescale({l, o}, [](const Expr& from, const Expr& to) { return exp(from - to); });
    t.finish([&](Finish& f) {
      f.output("o", normalise(o, l));
      f.output("lse", m + log(l));
    });
  });
  AttentionOptions options;
  options.causal = options.lse = true;
  CHECK(a == attention(options));
  CHECK(to_string(a) == to_string(attention(options)));
  CHECK(hash_of(a) == hash_of(attention(options)));
}

TEST_CASE("an algorithm prints as it was written") {
  AttentionOptions options;
  options.causal = options.lse = true;
  CHECK(to_string(attention(options)) == R"(for_tiles("attention", query).stream(key)
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
  output("o", select(l == 0.0, 0.0, o / l))
  output("lse", m + log(l))
)");
}

TEST_CASE("the hash is the same in every run and build") {
  CHECK(hash_of(attention({})) == hash_of(attention({})));
  CHECK(hash_of(attention({})) == 0x166fb3027913027a);
}

TEST_CASE("rules that keep their law are accepted") {
  CHECK(error_of_rule(plain_weight, plain_factor) == "no error");
  // Base 2, a temperature that is a scalar, a weight with a further factor.
  const Expr ln2 = constant(0.6931471805599453);
  CHECK(error_of_rule([&](const Expr& s, const Expr& m) { return exp((s - m) * ln2); },
                      [&](const Expr& from, const Expr& to) { return exp((from - to) * ln2); }) == "no error");
  const Expr temperature = scalar("temperature");
  CHECK(error_of_rule([&](const Expr& s, const Expr& m) { return exp((s - m) * temperature); },
                      [&](const Expr& from, const Expr& to) { return exp((from - to) * temperature); }) == "no error");
  CHECK(error_of_rule([&](const Expr& s, const Expr& m) { return select(s < 3.0, exp(s - m), 0.0) * tanh(s); },
                      plain_factor) == "no error");
}

TEST_CASE("a rule that breaks its law is refused with a counter-example") {
  const std::string wrong_sign =
      error_of_rule(plain_weight, [](const Expr& from, const Expr& to) { return exp(to - from); });
  CHECK_THAT(wrong_sign, ContainsSubstring("the rescale factor exp(to - from) breaks its law"));
  CHECK_THAT(wrong_sign, ContainsSubstring("with dot(q, k) * scale = "));
  CHECK_THAT(wrong_sign, ContainsSubstring("a term of \"l\" is"));
  CHECK_THAT(wrong_sign, ContainsSubstring("a factor must satisfy x(to) = x(from)·factor(from, to)"));
  CHECK_THAT(error_of_rule(plain_weight, [](const Expr&, const Expr&) { return constant(0.5); }),
             ContainsSubstring("is 0.5 and not 1"));
  CHECK_THAT(error_of_rule(plain_weight, [](const Expr&, const Expr&) { return constant(1.0); }),
             ContainsSubstring("a term of \"l\""));
  CHECK_THAT(error_of_rule(plain_weight,
                           [](const Expr& from, const Expr& to) { return exp((from - to) * 0.6931471805599453); }),
             ContainsSubstring("a term of \"l\""));
  CHECK_THAT(
      error_of_rule([](const Expr& s, const Expr& m) { return exp((s - m) * 0.6931471805599453); }, plain_factor),
      ContainsSubstring("a term of \"l\""));
  CHECK_THAT(error_of_rule(plain_weight, [](const Expr& from, const Expr& to) { return 1.0 + from - to; }),
             ContainsSubstring("but by way of"));
  CHECK_THAT(error_of_rule(plain_weight, [](const Expr& from, const Expr& to) { return exp(from * from - to * to); }),
             ContainsSubstring("breaks its law"));
  CHECK_THAT(error_of_rule([](const Expr& s, const Expr& m) { return sigmoid(s - m); }, plain_factor),
             ContainsSubstring("a term of \"l\""));
  CHECK_THAT(error_of_rule([](const Expr& s, const Expr& m) { return s * log(-exp(m)); }, plain_factor),
             ContainsSubstring("nothing could be checked"));
}

TEST_CASE("a rule that is only nearly right is refused") {
  CHECK_THAT(error_of_rule([](const Expr& s, const Expr& m) { return exp((s - m) * 0.6931471805599453); },
                           [](const Expr& from, const Expr& to) { return exp((from - to) * 0.6931472); }),
             ContainsSubstring("a term of \"l\""));
}

TEST_CASE("a factor that is no number for an empty sum is refused") {
  CHECK_THAT(error_of_rule([](const Expr& s, const Expr& m) { return s * exp(-m) * exp(-0.0 * m); },
                           [](const Expr& from, const Expr& to) { return exp(from - to) * exp((from - to) * 0.0); }),
             ContainsSubstring("an empty sum would be lost"));
}

TEST_CASE("every sum is held to the law, not only the first") {
  CHECK_THAT(error_of([](Stream& t) {
               const State m = t.running_max("m", score());
               const Expr p = exp(score() - m);
               const State l = t.sum("l", p), o = t.sum("o", dot(p * p, v));
               t.rescale({l, o}, plain_factor);
               t.finish([&](Finish& f) { f.output("o", normalise(o, l)); });
             }),
             ContainsSubstring("a term of \"o\""));
}

TEST_CASE("a sum that reads the reference must be listed") {
  const auto with = [](bool rule) {
    return error_of([rule](Stream& t) {
      const State m = t.running_max("m", score());
      const Expr p = exp(score() - m);
      const State l = t.sum("l", p), o = t.sum("o", dot(p, v));
      if (rule) t.rescale({l}, plain_factor);
      t.finish([&](Finish& f) { f.output("o", normalise(o, l)); });
    });
  };
  CHECK_THAT(with(true), ContainsSubstring("the sum \"o\" reads the reference \"m\", but rescale does not list it"));
  CHECK_THAT(with(false), ContainsSubstring("the sum \"l\" reads the reference \"m\", but there is no rescale rule"));
}

TEST_CASE("a sum that does not read the reference must not be listed") {
  CHECK_THAT(error_of([](Stream& t) {
               const State m = t.running_max("m", score());
               const State l = t.sum("l", exp(score() - m)), n = t.sum("n", 1.0);
               t.rescale({l, n}, plain_factor);
               t.finish([&](Finish& f) { f.output("x", l / n); });
             }),
             ContainsSubstring("a term of \"n\""));
}

TEST_CASE("misplaced and missing rules are refused") {
  CHECK_THAT(error_of([](Stream& t) {
               const State l = t.sum("l", score());
               t.rescale({l}, plain_factor);
             }),
             ContainsSubstring("rescale is called without a reference"));
  CHECK_THAT(error_of([](Stream& t) {
               t.running_max("m", score());
               t.rescale({}, plain_factor);
             }),
             ContainsSubstring("rescale lists no sum"));
  CHECK_THAT(error_of([](Stream& t) {
               const State m = t.running_max("m", score());
               t.rescale({m}, plain_factor);
             }),
             ContainsSubstring("rescale lists \"m\", which is no sum"));
  CHECK_THAT(error_of([](Stream& t) {
               const State m = t.running_max("m", score());
               const State l = t.sum("l", exp(score() - m));
               t.rescale({l, l}, plain_factor);
             }),
             ContainsSubstring("rescale lists \"l\" twice"));
  CHECK_THAT(error_of([](Stream& t) {
               const State m = t.running_max("m", score());
               const State l = t.sum("l", exp(score() - m));
               t.rescale({l}, plain_factor);
               t.rescale({l}, plain_factor);
             }),
             ContainsSubstring("rescale is called twice"));
  CHECK_THAT(error_of_rule(plain_weight,
                           [](const Expr& from, const Expr& to) { return exp(from - to) * to_real(index(key)); }),
             ContainsSubstring("it varies along key, but one factor holds for a whole row"));
}

TEST_CASE("states are read where they have a meaning") {
  CHECK_THAT(error_of([](Stream& t) {
               const State l = t.sum("l", score());
               t.sum("o", dot(score() * l, v));
             }),
             ContainsSubstring("sum(\"o\") reads the state \"l\""));
  CHECK_THAT(error_of([](Stream& t) {
               const State m = t.running_max("m", score());
               t.emit("p", exp(score() - m));
             }),
             ContainsSubstring("emit(\"p\") reads the state \"m\""));
  CHECK_THAT(error_of([](Stream& t) {
               const State m = t.running_max("m", score());
               t.visible(score() < m);
             }),
             ContainsSubstring("visible reads the state \"m\""));
  CHECK_THAT(error_of([](Stream& t) { t.sum("o", variable("x", {}) * score()); }),
             ContainsSubstring("reads \"x\", which is no state"));
  CHECK_THAT(error_of([](Stream& t) {
               t.sum("l", score());
               t.emit("s", score());
             }),
             ContainsSubstring("the state \"l\" is never read"));
}

TEST_CASE("dims are where they have a meaning") {
  CHECK_THAT(error_of([](Stream& t) { t.running_max("m", q); }),
             ContainsSubstring("running_max(\"m\") varies along [head_dim]"));
  CHECK_THAT(error_of([](Stream& t) { t.sum("o", Expr(q) * Expr(v)); }),
             ContainsSubstring("varies along [head_dim, value_dim]"));
  CHECK_THAT(error_of([](Stream& t) { t.sum("o", 2.0 * dot(score(), v)); }),
             ContainsSubstring("sums over the streamed dim key inside a larger expression"));
  CHECK_THAT(error_of([](Stream& t) { t.sum("o", reduce_sum(score(), query)); }),
             ContainsSubstring("sums over the parallel dim query"));
  CHECK_THAT(error_of([](Stream& t) { t.finish([](Finish& f) { f.output("s", score()); }); }),
             ContainsSubstring("output(\"s\") varies along the streamed dim key"));
  CHECK_THAT(error_of([](Stream& t) { t.visible(score()); }), ContainsSubstring("visible takes a condition"));
  CHECK_THAT(error_of([](Stream& t) { t.visible(Expr()); }), ContainsSubstring("visible is an empty Expr"));
}

TEST_CASE("names are given once") {
  CHECK_THAT(error_of([](Stream& t) {
               t.sum("l", score());
               t.sum("l", score());
             }),
             ContainsSubstring("two states are named \"l\""));
  CHECK_THAT(error_of([](Stream& t) {
               t.emit("s", score());
               t.emit("s", score());
             }),
             ContainsSubstring("two outputs are named \"s\""));
  CHECK_THAT(error_of([](Stream& t) { t.emit("q", score()); }),
             ContainsSubstring("\"q\" names an output and an argument"));
  CHECK_THAT(error_of([](Stream& t) {
               const State x = t.sum("scale", score());
               t.finish([&](Finish& f) { f.output("o", x); });
             }),
             ContainsSubstring("\"scale\" names a state and an argument"));
  CHECK_THAT(error_of([](Stream& t) { t.emit("s", score() * Expr(input("scale", {batch}))); }),
             ContainsSubstring("\"scale\" names a tensor and a scalar"));
  CHECK_THAT(error_of([](Stream& t) {
               t.emit("s", score() + Expr(input("q", {batch, query})));
             }),
             ContainsSubstring("tensor \"q\" is declared twice"));
  CHECK_THAT(error_of([](Stream& t) { t.emit("s", score() + scalar("scale", Kind::integer)); }),
             ContainsSubstring("scalar \"scale\" is used as a real and as an integer"));
  CHECK_THAT(error_of([](Stream& t) { t.sum("from", score()); }), ContainsSubstring("\"from\" cannot name a state"));
  CHECK_THAT(error_of([](Stream&) {}), ContainsSubstring("there is no output"));
}

TEST_CASE("limits of references and selections are named") {
  CHECK_THAT(error_of([](Stream& t) {
               t.running_max("m", score());
               t.running_max("n", score());
             }),
             ContainsSubstring("\"n\" would be a second reference beside \"m\""));
  CHECK_THAT(error_of([](Stream& t) {
               t.top_k("a", score(), 2);
               t.top_k("b", score(), 2);
             }),
             ContainsSubstring("\"b\" would be a second selection beside \"a\""));
  CHECK_THAT(error_of([](Stream& t) { t.top_k("a", score(), 129); }),
             ContainsSubstring("top_k(\"a\") keeps 129 entries"));
  CHECK_THAT(error_of([](Stream& t) {
               const State l = t.sum("l", score());
               t.finish([&](Finish& f) { f.output("o", f.rebased(l, 0.0)); });
             }),
             ContainsSubstring("no rescale rule lists this sum"));
}

TEST_CASE("batch and heads are neither tiled nor streamed, and a dim is not both") {
  const auto error = [](const Dim& parallel, const Dim& streamed) -> std::string {
    try {
      for_tiles("test", parallel).stream(streamed, [](Stream&) {});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK_THAT(error(head, key), ContainsSubstring("head only chooses a problem"));
  CHECK_THAT(error(query, batch), ContainsSubstring("batch only chooses a problem"));
  CHECK_THAT(error(key, key), ContainsSubstring("key is the parallel and the streamed dim"));
}
