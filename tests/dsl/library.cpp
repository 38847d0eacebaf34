#include "dsl/library.h"

#include <fstream>
#include <sstream>

#include "dsl/error.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using attile::test::ContainsSubstring;

namespace {

std::string error_of(const std::function<void(AttentionOptions&)>& set) {
  AttentionOptions options;
  set(options);
  try {
    attention(options);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::argument);
    return e.message();
  }
  return "no error";
}

struct Refused {
  std::function<void(AttentionOptions&)> set;
  std::string text;
};

const std::vector<Refused>& refused() {
  static const std::vector<Refused> all{
      {[](AttentionOptions& o) { o.rule = Rule::sigmoid, o.lse = true; }, "lse with rule sigmoid or linear"},
      {[](AttentionOptions& o) { o.rule = Rule::linear, o.sink = true; }, "sink with rule sigmoid or linear"},
      {[](AttentionOptions& o) { o.rule = Rule::softmax_plus_one, o.sink = true; }, "sink with rule softmax_plus_one"},
      {[](AttentionOptions& o) { o.rule = Rule::linear, o.top_k = 3; }, "top_k with rule sigmoid or linear"},
      {[](AttentionOptions& o) { o.top_k = 3, o.dropout = true; }, "top_k with dropout"},
      {[](AttentionOptions& o) { o.top_k_outputs = true; }, "top_k_outputs without top_k"},
      {[](AttentionOptions& o) { o.prefix = true; }, "prefix without causal"},
      {[](AttentionOptions& o) { o.bias = true, o.lengths = Lengths::packed; }, "bias with packed lengths"},
      {[](AttentionOptions& o) { o.mask = true, o.lengths = Lengths::packed; }, "mask with packed lengths"},
      {[](AttentionOptions& o) { o.documents = true, o.lengths = Lengths::packed; }, "documents with packed lengths"},
      {[](AttentionOptions& o) { o.top_k = 129; }, "top_k outside 1..128"},
      {[](AttentionOptions& o) { o.top_k_renormalise = false; }, "top_k_renormalise = false without top_k"},
  };
  return all;
}

// Bits choose the flags, so that every combination is tried.
AttentionOptions options_of(unsigned bits) {
  AttentionOptions o;
  bool* const flags[] = {&o.causal, &o.window, &o.softcap,   &o.alibi,   &o.bias, &o.mask,
                         &o.sink,   &o.prefix, &o.documents, &o.dropout, &o.lse,  &o.top_k_outputs};
  for (bool* flag : flags) {
    *flag = (bits & 1u) != 0;
    bits >>= 1;
  }
  return o;
}

}  // namespace

TEST_CASE("refused combinations say which and why") {
  for (const Refused& r : refused()) CHECK(error_of(r.set) == r.text + " is refused");
}

TEST_CASE("the manual lists exactly the refused combinations") {
  std::ifstream file(ATTILE_SOURCE_DIR "/docs/variants.md");
  std::ostringstream text;
  text << file.rdbuf();
  const std::string manual = text.str();
  for (const Refused& r : refused()) CHECK_THAT(manual, ContainsSubstring("| " + r.text + " |"));
  std::size_t rows = 0;
  const std::size_t table = manual.find("| refused |");
  REQUIRE(table != std::string::npos);
  for (std::size_t at = manual.find("\n| ", table); at != std::string::npos && manual[at + 3] != '-';
       at = manual.find("\n| ", at + 1))
    ++rows;
  CHECK(rows == refused().size());
}

TEST_CASE("every other combination builds") {
  std::size_t built = 0;
  for (unsigned bits = 0; bits < 4096; bits += 3)
    for (const Rule rule : {Rule::softmax, Rule::softmax_plus_one, Rule::sigmoid, Rule::linear})
      for (const int top_k : {0, 5}) {
        AttentionOptions o = options_of(bits);
        o.rule = rule;
        o.top_k = top_k;
        o.lengths = static_cast<Lengths>(bits % 3);
        try {
          attention(o);
          ++built;
        } catch (const Error& e) {
          REQUIRE_THAT(e.what(), ContainsSubstring("is refused"));
        }
      }
  CHECK(built > 500);
}

TEST_CASE("different options are different algorithms") {
  std::vector<std::uint64_t> hashes;
  for (unsigned bit = 0; bit < 11; ++bit) {
    AttentionOptions o = options_of(1u << bit);
    o.causal = o.causal || o.prefix;
    hashes.push_back(hash_of(attention(o)));
  }
  AttentionOptions o;
  hashes.push_back(hash_of(attention(o)));
  o.top_k = 2;
  hashes.push_back(hash_of(attention(o)));
  o.top_k = 3;
  hashes.push_back(hash_of(attention(o)));
  o.top_k_renormalise = false;
  hashes.push_back(hash_of(attention(o)));
  for (const Lengths lengths : {Lengths::used, Lengths::packed}) {
    AttentionOptions x;
    x.lengths = lengths;
    hashes.push_back(hash_of(attention(x)));
  }
  for (const Rule rule : {Rule::softmax_plus_one, Rule::sigmoid, Rule::linear}) {
    AttentionOptions x;
    x.rule = rule;
    hashes.push_back(hash_of(attention(x)));
  }
  std::sort(hashes.begin(), hashes.end());
  CHECK(std::adjacent_find(hashes.begin(), hashes.end()) == hashes.end());
}

TEST_CASE("all variants together print one statement a line") {
  AttentionOptions o;
  o.lse = o.causal = o.window = o.softcap = o.alibi = o.sink = o.dropout = true;
  CHECK(to_string(attention(o)) == R"(for_tiles("attention", query).stream(key)
  input q: real [batch, head, query, head_dim]
  input k: real [batch, kv_head, key, head_dim]
  input alibi_slopes: real [batch, head]
  input v: real [batch, kv_head, key, value_dim]
  input sink: real [head]
  scalar softcap: real
  scalar scale: real
  scalar dropout_threshold: integer
  scalar seed: integer
  scalar offset: integer
  scalar window_left: integer
  scalar window_right: integer
  scalar dropout_scale: real
  _1 = query + length(key) - length(query)
  visible(key <= _1 && (window_left < 0 || _1 - key <= window_left) && (window_right < 0 || key - _1 <= window_right))
  _2 = softcap * tanh(dot(q, k) * scale / softcap) - alibi_slopes * to_real(abs(_1 - key))
  m = running_max(_2)
  _3 = exp(_2 - m)
  l = sum(_3)
  o = sum(dot(_3 * select(dropout_threshold <= random_word(seed, offset), 1.0, 0.0), v))
  rescale({l, o}, m, exp(from - to))
  _4 = max(m, sink)
  _5 = select(_4 == -inf, 0.0, _4)
  _6 = exp(m - _5)
  _7 = l * _6 + exp(sink - _5)
  output("o", select(_7 == 0.0, 0.0, o * _6 / _7) * dropout_scale)
  output("lse", _4 + log(_7))
)");
}

TEST_CASE("the user's score and mask modifiers come last and are called once") {
  int calls = 0;
  AttentionOptions o;
  o.causal = true;
  o.score_mod = [&](const Expr& s) {
    ++calls;
    return s + Expr(input("extra", {head, key}));
  };
  o.mask_mod = [&] {
    ++calls;
    return floor_mod(index(key), 2) == 0;
  };
  const std::string text = to_string(attention(o));
  CHECK(calls == 2);
  CHECK_THAT(text, ContainsSubstring("visible(key <= query + length(key) - length(query) && floor_mod(key, 2) == 0)"));
  CHECK_THAT(text, ContainsSubstring("dot(q, k) * scale + extra"));
}

TEST_CASE("a modifier that returns a condition or nothing is refused") {
  CHECK_THAT(error_of([](AttentionOptions& o) { o.score_mod = [](const Expr& s) { return s < 1.0; }; }),
             ContainsSubstring("is made of booleans"));
  CHECK_THAT(error_of([](AttentionOptions& o) { o.score_mod = [](const Expr&) { return Expr(); }; }),
             ContainsSubstring("empty Expr"));
  CHECK_THAT(error_of([](AttentionOptions& o) { o.mask_mod = [] { return Expr(1.0); }; }),
             ContainsSubstring("visible takes a condition"));
}

TEST_CASE("rule names go both ways and unknown ones are refused with the list") {
  for (const Rule rule : {Rule::softmax, Rule::softmax_plus_one, Rule::sigmoid, Rule::linear})
    CHECK(rule_from_string(to_string(rule)) == rule);
  try {
    rule_from_string("softmin");
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(std::string(e.what()) ==
          "rule: \"softmin\" is not a known rule (known are softmax, softmax_plus_one, sigmoid, linear)");
  }
}
