// The tools that write CUDA text: lines with holes, and expressions.
#include "codegen/cuda_expr.h"
#include "dsl/error.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::cuda_text;
using attile::test::ContainsSubstring;

namespace {

// Leaves by their own names; tensors of integers have 32 bits.
struct Names : Environment {
  std::string index(const Dim& dim) override { return dim.name; }
  std::string length(const Dim& dim) override { return dim.name + "_length"; }
  std::string scalar(const Node& node) override { return "a." + node.name; }
  std::string variable(const Node& node) override { return node.name; }
  std::string element(const Node& node, const std::vector<std::string>& at) override { return node.name + "[" + at.back() + "]"; }
  std::string random(const std::string&, const std::string&) override { return "random"; }
  std::string reduce_sum(const Node&) override { return "sum"; }
  DType dtype(const std::string&) const override { return DType::int32; }
  const Counted* counted() const override { return counting ? &count : nullptr; }
  bool varies(const Expr& e) const override { return has_free_dim(e, key); }
  bool coarse() const override { return false; }

  bool counting = false;
  Counted count{key, "first", "8 * j"};
};

struct Text {
  Names names;
  CodeWriter out;
  ExprText expr{names, out};
};
std::string text(const Expr& e) { return Text{}.expr.text(e); }
std::string counted(const Expr& e) {
  Text t;
  t.names.counting = true;
  return t.expr.real(e);
}

}  // namespace

TEST_CASE("every hole of a line has a value and every value a hole") {
  CHECK(filled("$a + $b_1 + $a", {{"a", "x"}, {"b_1", "$y"}}) == "x + $y + x");
  CHECK_THROWS_WITH(filled("$a + $b", {{"a", "x"}}), ContainsSubstring("nothing for the hole $b"));
  CHECK_THROWS_WITH(filled("$a", {{"a", "x"}, {"b", "y"}}), ContainsSubstring("a name without a hole"));
  CodeWriter out;
  CHECK_THROWS_AS(out.line("$nobody"), Error);
}

TEST_CASE("braces set the indentation of lines") {
  CodeWriter out;
  out.line("if (x) {");
  out.line("#pragma unroll");
  out.line("y();");
  out.line("} else {");
  out.line("z();");
  out.line("}");
  CHECK(out.text() == "if (x) {\n#pragma unroll\n  y();\n} else {\n  z();\n}\n");
}

TEST_CASE("values that nothing reads are left out of the text") {
  CHECK(without_unread("const auto t0 = f(x);\nconst auto t1 = t0 + 1;\n  const auto t2 = t0;\ny = t2 + t10;\n") == "const auto t0 = f(x);\n  const auto t2 = t0;\ny = t2 + t10;\n");
  CHECK(without_unread("const auto t0 = x;\nconst auto t1 = t0;\n") == "");
  CHECK(without_unread("const i32 a = 1;\nconst i32 b = 1, c = 2;\nf(c);\n") == "const i32 b = 1, c = 2;\nf(c);\n");
  CHECK(without_unread("const auto load = [&] {\n};\n") == "const auto load = [&] {\n};\n");
}

TEST_CASE("the user's names become identifiers that the text does not use itself") {
  CHECK(identifier("top.values") == "top_values");
  CHECK(identifier("2x") == "_2x");
  CHECK(identifier("float") == "float_");
  CHECK(identifier("first_row") == "first_row_");
  for (const char* name : {"fill", "rescale", "row_max", "scan", "add_ending", "highest_i64", "lowest_i64", "TileWalk", "Extremes", "of_warp"})
    CHECK(identifier(name) == std::string(name) + "_");  // of the device headers
  for (const char* name : {"a", "t", "rows", "panel", "share", "group", "memory", "slot", "coming", "place", "sweep", "guarded", "grown", "end_tile"})
    CHECK(identifier(name) == std::string(name) + "_");  // of the text around
}

TEST_CASE("a mask is one expression of bools, without a branch for each element") {
  const std::string mask = text(key <= query && (query - key <= scalar("left", Kind::integer) || key == 0));
  CHECK(mask == "((key <= query) & (((query - key) <= a.left) | (key == 0)))");
  CHECK(text(!(key < length(key))) == "!((key < key_length))");
}

TEST_CASE("integers are 64 bits wide where a number of the call or a product takes part") {
  const Expr left = scalar("left", Kind::integer);
  Text t;
  CHECK(t.expr.is_wide(*(query + left)));
  CHECK(t.expr.is_wide(*(query * key)));
  CHECK_FALSE(t.expr.is_wide(*(query * 2 + key)));
  CHECK_FALSE(t.expr.is_wide(*(floor_mod(query * key, 7) + key)));
  CHECK_FALSE(t.expr.is_wide(*(query + key)));
  CHECK(text(query * key) == "(static_cast<i64>(query) * key)");
  CHECK_FALSE(t.expr.is_wide(*(length(key) - 1)));
  CHECK(text(query + left) == "add_ending(query, a.left)");
  CHECK(text(min(query, left)) == "min_(static_cast<i64>(query), static_cast<i64>(a.left))");
  CHECK(text(floor_div(query, 4)) == "floor_div(static_cast<i32>(query), static_cast<i32>(4))");
  CHECK(constant_text(3e9, Kind::integer) == "3000000000ll");
  CHECK(constant_text(-1, Kind::integer) == "(-1)");
}

TEST_CASE("reals are floats that the compiler reads back exactly") {
  CHECK(constant_text(1, Kind::real) == "1.0f");
  CHECK(constant_text(-0.1, Kind::real) == "(-0.1f)");
  CHECK(constant_text(-0.0, Kind::real) == "(-0.0f)");
  CHECK(constant_text(-std::numeric_limits<double>::infinity(), Kind::real) == "-infinity()");
}

TEST_CASE("an index that counts along the stream is converted once") {
  CHECK(counted(to_real(key - query)) == "(static_cast<float>((first - query)) + static_cast<float>(8 * j))");
  CHECK(counted(to_real(query - key)) == "(static_cast<float>((query - first)) - static_cast<float>(8 * j))");
  CHECK_THAT(counted(to_real(abs(key - query))), ContainsSubstring("fabsf((static_cast<float>((first - query))"));
  CHECK(counted(to_real(key * 2)) == "static_cast<float>((key * 2))");
  CHECK(counted(to_real(query)) == "static_cast<float>(query)");
  CHECK(coefficient(key - query, key) == 1);
  CHECK(coefficient(query - key, key) == -1);
  CHECK(coefficient(query + 1, key) == 0);
  CHECK_FALSE(coefficient(key * key, key));
}

TEST_CASE("what occurs twice is computed once and division by a row's value is a product") {
  Text t;
  const Expr x = variable("x", {query, key}), l = variable("l", {query});
  const Expr e = exp(x);
  CHECK(t.expr.text(e + e) == "(t0 + t0)");
  CHECK(t.out.text() == "const auto t0 = exp_(x);\n");
  CHECK(t.expr.text(x / l) == "(x * t1)");
  CHECK_THAT(t.out.text(), ContainsSubstring("const auto t1 = inverse(l);"));
  CHECK(text(exp(x * scalar("scale"))) == "exp2f_(x * (a.scale * log2e))");
}
