#include "arguments.h"

#include <fstream>
#include <map>
#include <sstream>

#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "schedules/registry.h"

namespace attile::python {

bool boolean_of(nb::handle value, const char* name) {
  if (value.ptr() == Py_True) return true;
  if (value.ptr() == Py_False) return false;
  if (is_numpy_scalar(value) && PyBool_Check(nb::object(value.attr("item")()).ptr()))
    return PyObject_IsTrue(value.ptr()) == 1;
  refuse_type(value, name, "True or False");
}

double number_of(nb::handle value, const std::string& name) {
  if (!PyBool_Check(value.ptr()) && !PyUnicode_Check(value.ptr())) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (number != -1 || !PyErr_Occurred()) return number;
    PyErr_Clear();
  }
  refuse_type(value, name, "a number");
}

std::int64_t integer_of(nb::handle value, const std::string& name) {
  if (!PyBool_Check(value.ptr())) {
    if (const nb::object index = nb::steal(PyNumber_Index(value.ptr())); index.is_valid()) {
      const long long number = PyLong_AsLongLong(index.ptr());
      if (number != -1 || !PyErr_Occurred()) return number;
      // A seed may have all 64 bits.
      PyErr_Clear();
      const unsigned long long large = PyLong_AsUnsignedLongLong(index.ptr());
      if (!PyErr_Occurred()) return static_cast<std::int64_t>(large);
      PyErr_Clear();
      refuse("'" + name + "' is " + nb::str(index).c_str() + ", which 64 bits do not hold");
    }
    PyErr_Clear();
  }
  refuse_type(value, name, "an integer");
}

std::string text_of(nb::handle value, const char* name) {
  if (!PyUnicode_Check(value.ptr())) refuse_type(value, name, "a string");
  return nb::cast<std::string>(value);
}

namespace {

// In the order of the values that they name.
constexpr const char* tunings[] = {"never", "cached", "now"};
constexpr const char* buildings[] = {"on_demand", "never", "background"};

template <std::size_t count>
int place_of(nb::handle value, const char* name, const char* const (&texts)[count]) {
  const std::string text = text_of(value, name);
  std::string known;
  for (std::size_t i = 0; i < count; ++i) {
    if (text == texts[i]) return static_cast<int>(i);
    known += (i == 0 ? "\"" : i + 1 < count ? ", \"" : " or \"") + std::string(texts[i]) + "\"";
  }
  refuse(std::string(name) + " is \"" + text + "\", but must be " + known);
}

Schedule read_schedule(const std::string& text, Device device) {
  if (text.find(": ") != std::string::npos || text.find('\n') != std::string::npos)
    return parse_schedule(text, "schedule");
  std::string names;
  for (const KnownSchedule& known : schedule_file(target_of(device)).best) {
    if (known.name == text) return known.schedule;
    names += (names.empty() ? "\"" : ", \"") + known.name + "\"";
  }
  std::ifstream file(text, std::ios::binary);
  std::ostringstream contents;
  if (file && contents << file.rdbuf()) return parse_schedule(contents.str(), text);
  throw Error(ErrorKind::environment, "schedule",
              "\"" + text + "\" is neither a file that can be read nor a shipped schedule",
              "shipped for " + to_string(device) + " are " + names);
}

}  // namespace

Tuning tuning_of(nb::handle value) { return static_cast<Tuning>(place_of(value, "tuning", tunings)); }
Building building_of(nb::handle value) { return static_cast<Building>(place_of(value, "building", buildings)); }
std::string to_string(Tuning tuning) { return tunings[static_cast<int>(tuning)]; }
std::string to_string(Building building) { return buildings[static_cast<int>(building)]; }

std::optional<Schedule> schedule_of(nb::handle value, Device device) {
  if (value.is_none()) return std::nullopt;
  const nb::object path = nb::steal(PyOS_FSPath(value.ptr()));  // a str is one, too
  if (!path.is_valid()) {
    PyErr_Clear();
    refuse_type(value, "schedule", "a file, a name or YAML text");
  }
  const auto text = nb::cast<std::string>(nb::str(path));
  static auto* known = new std::map<std::pair<std::string, int>, Schedule>();
  const std::pair key(text, device.kind == Device::Kind::cpu ? -1 : device.index);
  if (const auto it = known->find(key); it != known->end()) return it->second;
  return known->emplace(key, read_schedule(text, device)).first->second;
}

Stream stream_of(const Array& like) {
  if (like.device.kind == Device::Kind::cpu) return {};
  if (like.library == Library::torch) {
    static auto* current = new nb::object(nb::module_::import_("torch").attr("_C").attr("_cuda_getCurrentRawStream"));
    return {PyLong_AsVoidPtr((*current)(like.device.index).ptr()), false};
  }
  const nb::object found = nb::module_::import_("attile.arrays").attr("stream")(like.object, like.device.index);
  return {PyLong_AsVoidPtr(nb::object(found[0]).ptr()), nb::cast<bool>(found[1])};
}

void wait_for(Device device, const Stream& stream) {
  if (!stream.wait) return;
  const CurrentContext context(device.index);
  if (cuda_driver().stream_synchronize(static_cast<cu::Stream>(stream.handle)) != cu::Result::success)
    throw Error(ErrorKind::environment, "attention", "the GPU reported a failure while the call was waited for");
}

}  // namespace attile::python
