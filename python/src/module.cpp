// The extension module attile._attile; the package attile around it is what users see.
#include "module.h"

#include <algorithm>

#include "arguments.h"
#include "runtime/attile_c.h"
#include "runtime/parallel_for.h"

namespace nb = nanobind;
using namespace attile::python;

namespace {

// One dispatch for the whole list: a name for each argument costs more than the call itself.
AttentionArguments arguments_of(const nb::args& args) {
  constexpr std::size_t count = sizeof(AttentionArguments) / sizeof(nb::handle);
  if (args.size() != count) throw nb::type_error("the arguments of attention() are given by position, all of them");
  AttentionArguments arguments;
  auto* slots = reinterpret_cast<nb::handle*>(&arguments);
  for (std::size_t i = 0; i < count; ++i) slots[i] = PyTuple_GetItem(args.ptr(), static_cast<Py_ssize_t>(i));
  return arguments;
}

}  // namespace

NB_MODULE(_attile, m) {
  nb::set_leak_warnings(false);  // caches of types and functions live as long as the process
  bind_errors(m);
  bind_expressions(m);
  bind_algorithms(m);
  bind_reach(m);
  m.def("attention", [](const nb::args& args) { return attention(arguments_of(args)); });
  m.def("warm_up", [](const nb::args& args) { warm_up(arguments_of(args)); });
  m.def("version", &attile_version);
  m.def(
      "set_threads",
      [](nb::handle threads) {
        attile::set_worker_count(
            static_cast<int>(std::clamp<std::int64_t>(integer_of(threads, "threads"), -1, 1 << 20)));
      },
      nb::arg("threads").none(),
      "Threads of a call on the CPU, the caller included; 0: every core this process may use.");
  m.def("get_threads", &attile::worker_count);
  m.def(
      "set_tuning", [](nb::handle tuning) { attile::set_tuning(tuning_of(tuning)); }, nb::arg("tuning").none(),
      "\"never\", \"cached\" (default) or \"now\", for calls of this process that do not say; see attention().");
  m.def("get_tuning", [] { return to_string(attile::tuning()); });
  m.def(
      "set_building", [](nb::handle building) { attile::set_building(building_of(building)); },
      nb::arg("building").none(),
      "\"on_demand\" (default), \"never\" or \"background\", for calls of this process that do not say; see "
      "attention().");
  m.def("get_building", [] { return to_string(attile::building()); });
}
