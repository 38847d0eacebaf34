// The extension module attile._attile; the package attile around it is what users see.
#include "module.h"

#include <nanobind/stl/string.h>

#include "runtime/attile_c.h"
#include "runtime/parallel_for.h"

namespace nb = nanobind;
using namespace attile::python;

namespace {

// One dispatch for the whole list: a name for each argument costs more than the call itself.
nb::object attention_of(const nb::args& args) {
  constexpr std::size_t count = sizeof(AttentionArguments) / sizeof(nb::handle);
  if (args.size() != count) throw nb::type_error("_attile.attention() takes every argument by position");
  AttentionArguments arguments;
  auto* slots = reinterpret_cast<nb::handle*>(&arguments);
  for (std::size_t i = 0; i < count; ++i) slots[i] = PyTuple_GetItem(args.ptr(), static_cast<Py_ssize_t>(i));
  return attention(arguments);
}

}  // namespace

NB_MODULE(_attile, m) {
  nb::set_leak_warnings(false);  // caches of types and functions live as long as the process
  bind_errors(m);
  bind_expressions(m);
  bind_algorithms(m);
  m.def("attention", &attention_of);
  m.def("version", &attile_version);
  m.def(
      "set_threads", [](int threads) { attile::set_worker_count(threads); }, nb::arg("threads"));
  m.def("get_threads", &attile::worker_count);
}
