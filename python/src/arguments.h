// Python's arguments as the values of a call: strict about types, with the option's name in every message.
#pragma once

#include <optional>

#include "array.h"
#include "runtime/chooser.h"
#include "runtime/kernel.h"

namespace attile::python {

bool boolean_of(nb::handle value, const char* name);
double number_of(nb::handle value, const std::string& name);
std::int64_t integer_of(nb::handle value, const std::string& name);
// Of an array without dims; a truth counts as 0 or 1.
std::int64_t captured_integer(nb::handle value, const std::string& name);
std::string text_of(nb::handle value, const char* name);

// "never", "cached", "now"; "on_demand", "never", "background".
Tuning tuning_of(nb::handle value);
Building building_of(nb::handle value);
std::string to_string(Tuning tuning);
std::string to_string(Building building);

// A file, the name of a shipped schedule, or YAML text (it has a colon and a space or a line break).
std::optional<Schedule> schedule_of(nb::handle value, Device device);

// Where work on arrays like this goes; `wait`: their library does not know of that stream, so the call has to finish
// it.
struct Stream {
  void* handle = nullptr;
  bool wait = false;
};
Stream stream_of(const Array& like);
void wait_for(Device device, const Stream& stream);

}  // namespace attile::python
