#include "dsl/expr.h"

#include "dsl/algorithm.h"
#include "dsl/error.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using attile::test::ContainsSubstring;

namespace {

template <typename Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::argument);
    return e.what();
  }
  return "no error";
}

const Tensor q = input("q", {batch, head, query, head_dim});
const Tensor k = input("k", {batch, kv_head, key, head_dim});
const Tensor v = input("v", {batch, kv_head, key, value_dim});
const Expr a = scalar("a"), b = scalar("b"), c = scalar("c");
const Expr i = scalar("i", Kind::integer), j = scalar("j", Kind::integer);

}  // namespace

TEST_CASE("expressions print infix with as few parentheses as possible") {
  CHECK(to_string(a + b * c) == "a + b * c");
  CHECK(to_string((a + b) * c) == "(a + b) * c");
  CHECK(to_string(a - (b - c)) == "a - (b - c)");
  CHECK(to_string(a - b - c) == "a - b - c");
  CHECK(to_string(a / (b * c)) == "a / (b * c)");
  CHECK(to_string(-(a + b)) == "-(a + b)");
  CHECK(to_string(a * -b) == "a * -b");
  CHECK(to_string((a < b && b <= c) || !(a == b)) == "a < b && b <= c || !(a == b)");
  CHECK(to_string(a < b && (b < c || c < a)) == "a < b && (b < c || c < a)");
  CHECK(to_string(a > b) == "b < a");
  CHECK(to_string(select(a < b, exp(a), max(b, c))) == "select(a < b, exp(a), max(b, c))");
  CHECK(to_string(key <= query + length(key) - length(query)) == "key <= query + length(key) - length(query)");
  CHECK(to_string(dot(q, k) * a) == "dot(q, k) * a");
  CHECK(to_string(dot(q, k, head_dim)) == "dot(q, k)");
  CHECK(to_string(dot(q, q, query)) == "dot(q, q, query)");
  CHECK(to_string(reduce_sum(v, value_dim)) == "reduce_sum(v, value_dim)");
  CHECK(to_string(v(batch, kv_head, key - 1, value_dim)) == "v(batch, kv_head, key - 1, value_dim)");
  CHECK(to_string(input("ids", {batch, key}, Kind::integer, -1)(batch, Expr(key) + 1)) ==
        "ids(batch, key + 1; outside -1)");
  CHECK(to_string(a * 2 + i) == "a * 2.0 + to_real(i)");
  CHECK(to_string(a * -2.5e-30) == "a * -2.5e-30");
  CHECK(to_string(a - infinity()) == "a - inf");
  CHECK(to_string(normalise(a, b)) == "select(b == 0.0, 0.0, a / b)");
  CHECK(to_string(Expr()) == "(empty)");
}

TEST_CASE("kinds follow the operands") {
  CHECK((i + j)->kind == Kind::integer);
  CHECK((i + a)->kind == Kind::real);
  CHECK((i / j)->kind == Kind::real);
  CHECK(floor_div(i, j)->kind == Kind::integer);
  CHECK((i < a)->kind == Kind::boolean);
  CHECK(exp(i)->kind == Kind::real);
  CHECK(select(i < j, 1, 0)->kind == Kind::integer);
  CHECK(select(i < j, 1, a)->kind == Kind::real);
  CHECK(random_word(i, j)->kind == Kind::integer);
  // Operands of one operation have one kind, so that back ends need no conversions of their own.
  CHECK((i + a)->args[0]->op == Op::to_real);
  CHECK((2 + a)->args[0]->kind == Kind::real);
}

TEST_CASE("free dims are those an expression varies along, sorted by name") {
  CHECK(dot(q, k)->dims == Dims{batch, head, key, query});
  CHECK(dot(exp(dot(q, k)), v)->dims == Dims{batch, head, query, value_dim});
  CHECK((key <= query)->dims == Dims{key, query});
  CHECK(length(key)->dims == Dims{batch});
  CHECK(random_word(i, j)->dims == Dims{batch, head, key, query});
  CHECK(has_free_dim(dot(q, k), key));
  CHECK_FALSE(has_free_dim(dot(q, k), head_dim));
}

TEST_CASE("only what is exact is folded") {
  CHECK(to_string(Expr(2) + 3) == "5");
  CHECK(to_string(Expr(2) < 3) == "true");
  CHECK(to_string((Expr(2) < 3) && a < b) == "a < b");
  CHECK(to_string((Expr(3) < 2) && a < b) == "false");
  CHECK(to_string((Expr(3) < 2) || a < b) == "a < b");
  CHECK(to_string(select(Expr(2) < 3, a, b)) == "a");
  CHECK(to_string(-(-a)) == "a");
  CHECK(to_string(!!(a < b)) == "a < b");
  CHECK(to_string(floor_mod(Expr(-1), 4)) == "3");
  CHECK(to_string(floor_div(Expr(1), 0)) == "floor_div(1, 0)");
  CHECK(to_string(Expr(0.1) + 0.2) == "0.1 + 0.2");
  CHECK(to_string(a + 0.0) == "a + 0.0");
  CHECK(to_string(a * 1.0) == "a * 1.0");
}

TEST_CASE("same compares trees and not addresses") {
  CHECK(same(dot(q, k) * a, dot(q, k) * a));
  CHECK_FALSE(same(a, b));
  CHECK_FALSE(same(a + b, b + a));
  CHECK_FALSE(same(constant(0.0), constant(-0.0)));
  CHECK_FALSE(same(Expr(1), Expr(1.0)));
  CHECK(same(constant(std::numeric_limits<double>::quiet_NaN()), constant(std::numeric_limits<double>::quiet_NaN())));
  CHECK(same(Expr(), Expr()));
  CHECK_FALSE(same(Expr(), a));
  Expr x = a, y = a;
  for (int n = 0; n < 500; ++n) {
    x = x * x;
    y = y * y;
  }
  CHECK(same(x, y));  // 2^500 nodes as a tree, 500 as shared
  CHECK(to_string(x).size() < 20000);
}

TEST_CASE("substitute replaces variables and leaves the rest shared") {
  const Expr m = variable("m", {batch, head, query}), s = dot(q, k);
  const Expr e = exp(s - m) + s;
  CHECK(to_string(substitute(e, {{"m", a * b}})) == "exp(dot(q, k) - a * b) + dot(q, k)");
  CHECK(substitute(e, {{"x", a}}).get() == e.get());
  CHECK(to_string(substitute(m - variable("n", {}), {{"m", variable("n", {})}, {"n", m}})) == "n - m");
  CHECK(depends_on_variable(e, "m"));
  CHECK(depends_on_variable(e, "q"));
  CHECK_FALSE(depends_on_variable(e, "v"));
}

TEST_CASE("operands of the wrong kind are refused in the user's terms") {
  CHECK_THAT(error_of([] { a + (a < b); }), ContainsSubstring("a + b: a < b is a boolean, but a number is needed"));
  CHECK_THAT(error_of([] { !a; }), ContainsSubstring("!a: a is a real, but a boolean is needed"));
  CHECK_THAT(error_of([] { a && (a < b); }), ContainsSubstring("a && b: a is a real"));
  CHECK_THAT(error_of([] { floor_div(a, 2); }),
             ContainsSubstring("floor_div(a, b): a is a real, but an integer is needed"));
  CHECK_THAT(error_of([] { select(a, b, c); }), ContainsSubstring("select(condition, if_true, if_false): a is a real"));
  CHECK_THAT(error_of([] { select(a < b, a, a < b); }), ContainsSubstring("both must be numbers or both booleans"));
  CHECK_THAT(error_of([] { random_word(a, i); }), ContainsSubstring("a is a real, but an integer is needed"));
  CHECK_THAT(error_of([] { exp(a < b); }), ContainsSubstring("exp(a): a < b is a boolean"));
  CHECK_THAT(error_of([] { a + Expr(); }), ContainsSubstring("an operand is an empty Expr"));
  CHECK_THAT(error_of([] { dot(Expr(), a); }), ContainsSubstring("an operand is an empty Expr"));
  CHECK_THAT(error_of([] { v(batch, kv_head, a, value_dim); }), ContainsSubstring("the index a along key is a real"));
  CHECK_THAT(error_of([] { v(batch, kv_head); }), ContainsSubstring("2 indices are given for 4 dims"));
  CHECK_THAT(error_of([] { scalar("x", Kind::boolean); }), ContainsSubstring("\"x\" is declared boolean"));
}

TEST_CASE("sums over a dim that is not there, or is ambiguous, are refused") {
  CHECK_THAT(error_of([] { dot(q, q); }), ContainsSubstring("do not have exactly one dim in common"));
  CHECK_THAT(error_of([] { dot(a, b); }), ContainsSubstring("name the dim to sum over"));
  CHECK_THAT(error_of([] { dot(q, k, value_dim); }), ContainsSubstring("no operand varies along value_dim"));
  CHECK_THAT(error_of([] { reduce_sum(q, batch); }), ContainsSubstring("batch only chooses a problem"));
  CHECK_THAT(error_of([] { length(head); }), ContainsSubstring("head has no length of its own"));
}

TEST_CASE("names and sizes have limits") {
  CHECK_THAT(error_of([] { scalar(""); }), ContainsSubstring("\"\" cannot be a name"));
  CHECK_THAT(error_of([] { scalar("1x"); }), ContainsSubstring("cannot be a name"));
  CHECK_THAT(error_of([] { scalar("a b"); }), ContainsSubstring("cannot be a name"));
  CHECK_THAT(error_of([] { input("a\n", {key}); }), ContainsSubstring("cannot be a name"));
  CHECK_THAT(error_of([] { input("x", {}); }), ContainsSubstring("a tensor needs at least one dim"));
  CHECK_THAT(error_of([] { input("x", {key, key}); }), ContainsSubstring("the dim key is given twice"));
  CHECK_THAT(error_of([] { Expr x(std::int64_t{1} << 60); }), ContainsSubstring("integers go up to 2^53"));
  CHECK_THAT(error_of([] {
               Expr x = a;
               for (int n = 0; n < 100000; ++n) x = x + 1.0;
             }),
             ContainsSubstring("nested more than 1000 levels deep"));
}
