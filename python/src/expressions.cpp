// The expression language of dsl/expr.h: dims, tensors, states and expressions with Python's operators.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <limits>

#include "expression.h"
#include "module.h"

namespace attile::python {

namespace {

Expr condition(bool holds) { return Expr(holds ? 0 : 1) == Expr(0); }

std::optional<Expr> constant_of(nb::handle value) {
  if (PyBool_Check(value.ptr())) return condition(value.ptr() == Py_True);
  if (PyLong_Check(value.ptr())) {
    const long long number = PyLong_AsLongLong(value.ptr());
    if (number == -1 && PyErr_Occurred()) {
      clear_exception();
      throw Error(ErrorKind::argument, "a constant", "it is an integer that 64 bits do not hold");
    }
    return Expr(static_cast<std::int64_t>(number));
  }
  if (PyFloat_Check(value.ptr())) return constant(PyFloat_AsDouble(value.ptr()));
  if (!is_numpy_scalar(value)) return std::nullopt;
  const nb::object item = value.attr("item")();
  return item.type().ptr() != value.type().ptr() ? constant_of(item) : std::nullopt;
}

}  // namespace

std::optional<Expr> expression_of(nb::handle value) {
  if (nb::isinstance<Expr>(value)) return nb::cast<Expr>(value);
  if (nb::isinstance<Dim>(value)) return index(nb::cast<Dim>(value));
  if (nb::isinstance<Tensor>(value)) return Expr(nb::cast<const Tensor&>(value));
  if (nb::isinstance<State>(value)) return Expr(nb::cast<const State&>(value));
  return constant_of(value);
}

Expr need_expression(nb::handle value, const char* where) {
  if (auto e = expression_of(value)) return *e;
  throw WrongType(std::string(where) + ": an operand is of type " + nb::cast<std::string>(nb::type_name(value.type())) +
                  ", but must be an expression or a number");
}

namespace {

bool integers(const Expr& a, const Expr& b) { return a->kind == Kind::integer && b->kind == Kind::integer; }

void need_positive(const Expr& divisor) {
  if (divisor->op == Op::constant && !(divisor->value > 0))
    throw Error(ErrorKind::argument, "a // b", "the divisor " + to_string(divisor) + " is not positive");
}
Expr divided(const Expr& a, const Expr& b) {
  if (!integers(a, b)) return floor(a / b);
  need_positive(b);
  return floor_div(a, b);
}
Expr remainder(const Expr& a, const Expr& b) {
  if (!integers(a, b)) return a - floor(a / b) * b;
  need_positive(b);
  return floor_mod(a, b);
}

bool is_constant(const Expr& e) { return e->op == Op::constant; }
bool is_whole(double x) { return x == std::floor(x); }

// By squaring.
Expr product_of(const Expr& a, std::int64_t count) {
  if (count == 0) return a->kind == Kind::integer ? Expr(1) : constant(1);
  if (count == 1) return a;
  const Expr half = product_of(a, count / 2);
  return count % 2 == 0 ? half * half : half * half * a;
}
// Of an integer the powers 0 to 4 are integers; others are products of reals, which do not wrap around at 64 bits.
Expr whole_power(const Expr& a, std::int64_t count) {
  const Expr base = a->kind == Kind::integer && (count < 0 || count > 4) ? to_real(a) : a;
  return count < 0 ? constant(1) / product_of(base, -count) : product_of(base, count);
}

Expr is_odd(const Expr& b) {
  if (b->kind == Kind::integer) return floor_mod(b, Expr(2)) == Expr(1);
  return b - floor(b * 0.5) * 2.0 == constant(1);
}
// A negative base: a number for whole exponents alone.
Expr power_of_negative(const Expr& magnitude, const Expr& b) {
  const Expr signed_ = select(is_odd(b), -magnitude, magnitude);
  if (b->kind == Kind::integer) return signed_;
  return select(floor(b) == b, signed_, constant(std::numeric_limits<double>::quiet_NaN()));
}

Expr logarithm(const Expr& a) { return is_constant(a) ? constant(std::log(std::fabs(a->value))) : log(abs(a)); }

// Whole exponents as products, everything else by exp and log of the base's magnitude.
Expr power(const Expr& a, const Expr& b) {
  if (is_constant(b) && is_whole(b->value) && std::fabs(b->value) <= 1024)
    return whole_power(a, static_cast<std::int64_t>(b->value));
  if (is_constant(a) && a->value > 0) return exp(b * logarithm(a));
  const Expr magnitude = select(b == Expr(0), constant(1), exp(b * logarithm(a)));
  if (is_constant(a)) return a->value < 0 ? power_of_negative(magnitude, b) : magnitude;
  return select(a < Expr(0), power_of_negative(magnitude, b), magnitude);
}

Expr exclusive(const Expr& a, const Expr& b) {
  for (const Expr& e : {a, b})
    if (e->kind != Kind::boolean)
      throw Error(ErrorKind::argument, "a ^ b", to_string(e) + " is a number, not a boolean",
                  "bits of integers are not at hand; of conditions, a ^ b is true where one of them is");
  return a != b;
}

using Binary = Expr (*)(const Expr&, const Expr&);

nb::object result(const Expr& e) { return nb::cast(e); }
nb::object not_implemented() { return nb::borrow(Py_NotImplemented); }

// A constant condition beside another leaves no trace.
nb::object logic(nb::handle a, nb::handle b, bool absorbing, Binary operation) {
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)})
    if (PyBool_Check(one.ptr())) {
      if ((one.ptr() == Py_True) == absorbing) return nb::borrow(one);
      return result(*expression_of(other));
    }
  const auto x = expression_of(a), y = expression_of(b);
  return x && y ? result(operation(*x, *y)) : not_implemented();
}

template <Binary operation, bool reversed = false>
nb::object binary(nb::handle self, nb::handle other) {
  const auto a = expression_of(self), b = expression_of(other);
  if (!a || !b) return not_implemented();
  return result(reversed ? operation(*b, *a) : operation(*a, *b));
}

// Where a constant condition meets a condition, `x == True` is x.
template <bool equal>
nb::object equality(nb::handle self, nb::handle other) {
  const auto a = expression_of(self), b = expression_of(other);
  if (!a || !b) return not_implemented();
  return result(equal ? *a == *b : *a != *b);
}

Expr add(const Expr& a, const Expr& b) { return a + b; }
Expr subtract(const Expr& a, const Expr& b) { return a - b; }
Expr multiply(const Expr& a, const Expr& b) { return a * b; }
Expr divide(const Expr& a, const Expr& b) { return a / b; }
Expr less(const Expr& a, const Expr& b) { return a < b; }
Expr less_equal(const Expr& a, const Expr& b) { return a <= b; }
Expr both(const Expr& a, const Expr& b) { return a && b; }
Expr either(const Expr& a, const Expr& b) { return a || b; }
Expr smaller(const Expr& a, const Expr& b) { return min(a, b); }
Expr larger(const Expr& a, const Expr& b) { return max(a, b); }

template <Binary operation, typename Class>
void arithmetic(Class& c, const char* name, const char* reversed) {
  c.def(name, &binary<operation>, nb::arg().none()).def(reversed, &binary<operation, true>, nb::arg().none());
}

template <typename Class>
void operators(Class& c) {
  arithmetic<add>(c, "__add__", "__radd__"), arithmetic<subtract>(c, "__sub__", "__rsub__");
  arithmetic<multiply>(c, "__mul__", "__rmul__"), arithmetic<divide>(c, "__truediv__", "__rtruediv__");
  arithmetic<divided>(c, "__floordiv__", "__rfloordiv__"), arithmetic<remainder>(c, "__mod__", "__rmod__");
  arithmetic<exclusive>(c, "__xor__", "__rxor__");
  c.def(
      "__pow__", [](nb::handle a, nb::handle b, nb::handle) { return binary<power>(a, b); }, nb::arg(),
      nb::arg() = nb::none());
  c.def(
      "__rpow__", [](nb::handle a, nb::handle b, nb::handle) { return binary<power, true>(a, b); }, nb::arg(),
      nb::arg() = nb::none());
  c.def("__lt__", &binary<less>).def("__gt__", &binary<less, true>);
  c.def("__le__", &binary<less_equal>).def("__ge__", &binary<less_equal, true>);
  c.def("__eq__", &equality<true>, nb::arg().none()).def("__ne__", &equality<false>, nb::arg().none());
  for (const char* name : {"__and__", "__rand__"})
    c.def(name, [](nb::handle a, nb::handle b) { return logic(a, b, false, &both); });
  for (const char* name : {"__or__", "__ror__"})
    c.def(name, [](nb::handle a, nb::handle b) { return logic(a, b, true, &either); });
  c.def("__invert__", [](nb::handle a) { return !*expression_of(a); });
  c.def("__neg__", [](nb::handle a) { return -*expression_of(a); });
  c.def("__pos__", [](nb::handle a) { return *expression_of(a); });
  c.def("__abs__", [](nb::handle a) { return abs(*expression_of(a)); });
  c.def("__hash__", [](nb::handle a) { return reinterpret_cast<std::intptr_t>(a.ptr()) >> 4; });
}

std::string kind_name(Kind kind) { return kind == Kind::real ? "real" : kind == Kind::integer ? "integer" : "boolean"; }
Kind kind_named(const std::string& name) {
  for (const Kind kind : {Kind::real, Kind::integer, Kind::boolean})
    if (name == kind_name(kind)) return kind;
  throw Error(ErrorKind::argument, "kind", "\"" + name + "\" is not a known kind", "known are real, integer, boolean");
}

template <Expr (*function)(const Expr&)>
void unary_function(nb::module_& m, const char* name) {
  m.def(
      name, [name](nb::handle a) { return function(need_expression(a, name)); }, nb::arg("a"));
}
template <Binary function>
void binary_function(nb::module_& m, const char* name) {
  m.def(
      name, [name](nb::handle a, nb::handle b) { return function(need_expression(a, name), need_expression(b, name)); },
      nb::arg("a"), nb::arg("b"));
}

Expr element(const Tensor& t, nb::handle at) {
  std::vector<Expr> indices;
  for (nb::handle one : at) indices.push_back(need_expression(one, t.name().c_str()));
  return t.element(std::move(indices));
}

Dim need_dim(nb::handle value, const char* where) {
  if (nb::isinstance<Dim>(value)) return nb::cast<Dim>(value);
  if (nb::isinstance<nb::str>(value)) return Dim{nb::cast<std::string>(value)};
  throw WrongType(std::string(where) + ": a dim is of type " + nb::cast<std::string>(nb::type_name(value.type())) +
                  ", but must be a Dim or its name");
}

Dims dims_of(nb::handle list) {
  if (!nb::isinstance<nb::tuple>(list) && !nb::isinstance<nb::list>(list)) refuse_type(list, "dims", "a list of dims");
  Dims dims;
  for (nb::handle d : list) dims.push_back(need_dim(d, "input"));
  return dims;
}

void bind_objects(nb::module_& m) {
  nb::class_<Expr> expr(m, "Expr");
  operators(expr);
  expr.def("__repr__", [](const Expr& e) { return to_string(e); });
  expr.def_prop_ro("kind", [](const Expr& e) { return kind_name(e->kind); });
  nb::class_<Dim> dim(m, "Dim");
  dim.def(nb::init<std::string>(), nb::arg("name"));
  operators(dim);
  dim.def_ro("name", &Dim::name).def("__repr__", [](const Dim& d) { return d.name; });
  nb::class_<Tensor> tensor(m, "Tensor");
  operators(tensor);
  tensor.def("__call__", [](const Tensor& t, const nb::args& at) { return element(t, at); })
      .def_prop_ro("name", &Tensor::name);
  tensor.def("__getitem__", [](const Tensor& t, nb::handle at) {
    return nb::isinstance<nb::tuple>(at) ? element(t, at) : element(t, nb::make_tuple(at));
  });
  nb::class_<State> state(m, "State");
  operators(state);
  state.def_prop_ro("name", &State::name);
}

void bind_functions(nb::module_& m) {
  unary_function<exp>(m, "exp"), unary_function<log>(m, "log"), unary_function<tanh>(m, "tanh");
  unary_function<sigmoid>(m, "sigmoid"), unary_function<floor>(m, "floor"), unary_function<abs>(m, "abs");
  unary_function<to_real>(m, "to_real");
  binary_function<smaller>(m, "minimum"), binary_function<larger>(m, "maximum"),
      binary_function<normalise>(m, "normalise");
  m.def(
      "where",
      [](nb::handle condition, nb::handle a, nb::handle b) {
        const Expr c = need_expression(condition, "where");
        return select(c, need_expression(a, "where"), need_expression(b, "where"));
      },
      nb::arg("condition"), nb::arg("if_true"), nb::arg("if_false"));
  m.def(
      "dot",
      [](nb::handle a, nb::handle b, nb::handle over) {
        const Expr x = need_expression(a, "dot"), y = need_expression(b, "dot");
        return over.is_none() ? dot(x, y) : dot(x, y, need_dim(over, "dot"));
      },
      nb::arg("a"), nb::arg("b"), nb::arg("over") = nb::none());
  m.def(
      "reduce_sum", [](nb::handle a, const Dim& over) { return reduce_sum(need_expression(a, "reduce_sum"), over); },
      nb::arg("a"), nb::arg("over"));
  m.def(
      "random_word",
      [](nb::handle seed, nb::handle offset) {
        return random_word(need_expression(seed, "random_word"), need_expression(offset, "random_word"));
      },
      nb::arg("seed"), nb::arg("offset"));
  m.def(
      "scalar", [](std::string name, const std::string& kind) { return scalar(std::move(name), kind_named(kind)); },
      nb::arg("name"), nb::arg("kind") = "real");
  m.def(
      "input",
      [](std::string name, nb::handle dims, const std::string& kind, double outside) {
        return input(std::move(name), dims_of(dims), kind_named(kind), outside);
      },
      nb::arg("name"), nb::arg("dims"), nb::arg("kind") = "real", nb::arg("outside") = 0.0);
  m.def(
      "variable", [](std::string name, nb::handle dims) { return variable(std::move(name), dims_of(dims)); },
      nb::arg("name"), nb::arg("dims"));
  m.def(
      "index", [](const Dim& d) { return index(d); }, nb::arg("dim"));
  m.def(
      "length", [](const Dim& d) { return length(d); }, nb::arg("dim"));
  m.def("query_position", &query_position);
  m.def("infinity", &infinity);
}

}  // namespace

void bind_expressions(nb::module_& m) {
  bind_objects(m);
  bind_functions(m);
  for (const Dim* d : {&batch, &head, &kv_head, &query, &key, &head_dim, &value_dim, &slot})
    m.attr(d->name.c_str()) = *d;
}

}  // namespace attile::python
