// for_tiles() with Python functions as bodies, and the run of an algorithm on arrays.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>

#include "arguments.h"
#include "expression.h"
#include "module.h"
#include "variant.h"

namespace attile::python {
namespace {

// A body's argument is of use only while the body runs; kept beyond it, it refuses.
template <typename T>
struct Lent {
  T* thing;
  T& get() const {
    if (!thing)
      throw Error(ErrorKind::argument, "for_tiles", "this body is over; its argument cannot be used any more");
    return *thing;
  }
};

template <typename T>
void call_with(const nb::object& body, T& thing) {
  const nb::object lent = nb::cast(Lent<T>{&thing});
  const auto end = [&] { nb::cast<Lent<T>&>(lent).thing = nullptr; };
  try {
    body(lent);
  } catch (...) {
    end();
    throw;
  }
  end();
}

using LentStream = Lent<attile::Stream>;
using LentFinish = Lent<Finish>;

Lengths lengths_named(const std::string& name) {
  if (name == "dense") return Lengths::dense;
  if (name == "used") return Lengths::used;
  if (name == "packed") return Lengths::packed;
  throw Error(ErrorKind::argument, "lengths", "\"" + name + "\" is not a known kind of lengths",
              "known are dense, used, packed");
}

void bind_bodies(nb::module_& m) {
  nb::class_<LentStream>(m, "Stream")
      .def(
          "visible", [](LentStream& s, nb::handle e) { s.get().visible(need_expression(e, "visible")); },
          nb::arg("predicate"))
      .def(
          "running_max",
          [](LentStream& s, std::string name, nb::handle e) {
            return s.get().running_max(std::move(name), need_expression(e, "running_max"));
          },
          nb::arg("name"), nb::arg("s"))
      .def(
          "sum",
          [](LentStream& s, std::string name, nb::handle e) {
            return s.get().sum(std::move(name), need_expression(e, "sum"));
          },
          nb::arg("name"), nb::arg("x"))
      .def(
          "top_k",
          [](LentStream& s, std::string name, nb::handle e, int k) {
            const Selection chosen = s.get().top_k(std::move(name), need_expression(e, "top_k"), k);
            return nb::make_tuple(chosen.values, chosen.indices);
          },
          nb::arg("name"), nb::arg("s"), nb::arg("k"))
      .def(
          "rescale",
          [](LentStream& s, const std::vector<State>& sums, const nb::object& factor) {
            s.get().rescale(
                sums, [&](const Expr& from, const Expr& to) { return need_expression(factor(from, to), "rescale"); });
          },
          nb::arg("sums"), nb::arg("factor"))
      .def(
          "emit",
          [](LentStream& s, std::string name, nb::handle e) {
            s.get().emit(std::move(name), need_expression(e, "emit"));
          },
          nb::arg("name"), nb::arg("x"))
      .def(
          "finish",
          [](LentStream& s, const nb::object& body) { s.get().finish([&](Finish& f) { call_with(body, f); }); },
          nb::arg("body"));
  nb::class_<LentFinish>(m, "Finish")
      .def(
          "output",
          [](LentFinish& f, std::string name, nb::handle e) {
            f.get().output(std::move(name), need_expression(e, "output"));
          },
          nb::arg("name"), nb::arg("value"))
      .def(
          "rebased",
          [](LentFinish& f, const State& sum, nb::handle to) {
            return f.get().rebased(sum, need_expression(to, "rebased"));
          },
          nb::arg("sum"), nb::arg("to"));
  nb::class_<TileLoop>(m, "TileLoop")
      .def(
          "stream",
          [](TileLoop& loop, const Dim& streamed, const nb::object& body) {
            return new Variant(loop.stream(streamed, [&](attile::Stream& s) { call_with(body, s); }));
          },
          nb::arg("streamed"), nb::arg("body"));
  m.def(
      "for_tiles",
      [](std::string name, const Dim& parallel, const std::string& lengths) {
        return for_tiles(std::move(name), parallel).lengths(lengths_named(lengths));
      },
      nb::arg("name"), nb::arg("parallel"), nb::arg("lengths") = "dense");
}

// A run while its arguments are read.
struct Run {
  const Algorithm& algorithm;
  Arguments arguments;
  std::vector<Array> arrays, written;  // written: those of the caller
  std::map<std::string, std::int64_t> extents;

  void add(const std::string& name, const Array& a) {
    if (!arrays.empty() && a.device != arrays.front().device)
      refuse("'" + name + "' lies on " + to_string(a.device) + ", but other tensors on " +
                 to_string(arrays.front().device),
             "all tensors of a call lie on one device");
    arrays.push_back(a);
    arguments.tensor(name, a.tensor);
  }

  void read(const std::string& name, nb::handle value) {
    for (const ScalarDecl& s : algorithm.scalars) {
      if (s.name != name) continue;
      s.kind == Kind::integer ? arguments.integer(name, integer_of(value, name))
                              : arguments.real(name, number_of(value, name));
      return;
    }
    add(name, read_array(value, name.c_str()));
    const InputDecl* declared = algorithm.find_input(name);
    if (!declared) return;  // the run says so
    const TensorRef& t = arrays.back().tensor;
    for (std::size_t i = 0; i < declared->dims.size() && static_cast<int>(i) < t.rank; ++i) {
      std::int64_t& known = extents[declared->dims[i].name];
      known = std::max(known, t.shape[i]);
    }
  }

  // Rows of features as the first tensor has them, everything else in float32 or int32.
  nb::object output(const OutputDecl& declared, nb::handle given) {
    if (!given.is_none()) {
      const Array a = read_array(given, declared.name.c_str());
      check_writable(a, declared.name.c_str());
      written.push_back(a);
      return add(declared.name, a), nb::borrow(given);
    }
    std::vector<std::int64_t> shape;
    bool features = false;
    const Dims dims = output_dims(algorithm, declared);
    const bool packed =
        algorithm.lengths == Lengths::packed && std::find(dims.begin(), dims.end(), algorithm.parallel) != dims.end();
    for (const Dim& d : dims) {
      shape.push_back(d == slot ? selection_extent() : d == batch && packed ? 1 : extents[d.name]);
      features |= d == head_dim || d == value_dim;
    }
    const DType dtype = declared.kind == Kind::integer ? DType::int32
                        : features                     ? arrays.front().tensor.dtype
                                                       : DType::float32;
    const nb::object fresh = empty_array(arrays.front(), shape.data(), static_cast<int>(shape.size()), dtype, false);
    add(declared.name, read_array(fresh, declared.name.c_str()));
    return fresh;
  }

  std::int64_t selection_extent() const {
    for (const StateDecl& s : algorithm.states)
      if (s.kind == StateKind::selection) return s.count;
    return 0;
  }
};

nb::object run_algorithm(Variant& variant, const nb::dict& given, const nb::dict& out, nb::handle schedule, bool tf32) {
  Run run{variant.algorithm(), {}, {}, {}, {}};
  for (const auto& [name, value] : given) run.read(text_of(name, "arguments"), value);
  if (run.arrays.empty()) throw Error(ErrorKind::argument, variant.algorithm().name, "no tensor is given");
  for (const InputDecl& input : variant.algorithm().inputs)
    if (!given.contains(input.name.c_str()))
      throw Error(ErrorKind::argument, variant.algorithm().name, "the tensor '" + input.name + "' is not given");
  for (const auto& [name, value] : out) {
    bool known = false;
    const std::string wanted = text_of(name, "out");
    for (const OutputDecl& o : variant.algorithm().outputs) known |= o.name == wanted;
    if (!known) refuse("there is no output '" + wanted + "'");
  }
  const Array like = run.arrays.front();
  nb::list results;
  for (const OutputDecl& o : variant.algorithm().outputs)
    results.append(run.output(o, out.contains(o.name.c_str()) ? nb::object(out[o.name.c_str()]) : nb::none()));
  const Stream stream = stream_of(like);
  CallOptions options;
  options.schedule = schedule_of(schedule, like.device), options.device = like.device, options.tf32 = tf32;
  options.run.stream = stream.handle;
  {
    const nb::gil_scoped_release released;
    variant.run(run.arguments, options);
    wait_for(like.device, stream);
  }
  for (const Array& a : run.written) tell_written(a);
  return results.size() == 1 ? nb::object(results[0]) : nb::steal(PySequence_Tuple(results.ptr()));
}

}  // namespace

void bind_algorithms(nb::module_& m) {
  bind_bodies(m);
  nb::class_<Variant>(m, "Algorithm")
      .def("run", &run_algorithm, nb::arg("arguments"), nb::arg("out") = nb::dict(), nb::arg("schedule") = nb::none(),
           nb::arg("tf32") = false)
      .def("__call__",
           [](Variant& v, const nb::kwargs& given) { return run_algorithm(v, given, nb::dict(), nb::none(), false); })
      .def("__repr__", [](const Variant& v) { return to_string(v.algorithm()); });
  nb::class_<Mods>(m, "Mods").def(
      "__init__",
      [](Mods* self, nb::handle score, nb::handle mask) {
        const auto part = [](nb::handle e) { return e.is_none() ? Expr() : need_expression(e, "attention"); };
        new (self) Mods(part(score), part(mask));
      },
      nb::arg("score").none(), nb::arg("mask").none());
}

}  // namespace attile::python
