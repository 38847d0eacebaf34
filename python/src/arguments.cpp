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
    const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
    clear_exception();
    if (too_large) refuse("'" + name + "' is larger than every number of 64 bits");
  }
  refuse_type(value, name, "a number");
}

std::int64_t integer_of(nb::handle value, const std::string& name) {
  if (!PyBool_Check(value.ptr())) {
    if (const nb::object index = nb::steal(PyNumber_Index(value.ptr())); index.is_valid()) {
      const long long number = PyLong_AsLongLong(index.ptr());
      if (number != -1 || !PyErr_Occurred()) return number;
      // A seed may have all 64 bits.
      clear_exception();
      const unsigned long long large = PyLong_AsUnsignedLongLong(index.ptr());
      if (!PyErr_Occurred()) return static_cast<std::int64_t>(large);
      clear_exception();
      const nb::object digits = nb::steal(PyObject_Str(index.ptr()));
      clear_exception();  // Python refuses to write out the largest ones
      refuse("'" + name + "' is " + (digits.is_valid() ? nb::cast<std::string>(digits) : "a number") +
             ", which 64 bits do not hold");
    }
    clear_exception();
  }
  refuse_type(value, name, "an integer");
}

std::int64_t captured_integer(nb::handle value, const std::string& name) {
  const nb::object item = nb::hasattr(value, "item") ? nb::object(value.attr("item")()) : nb::borrow(value);
  return PyBool_Check(item.ptr()) ? item.ptr() == Py_True : integer_of(item, name);
}

std::string text_of(nb::handle value, const char* name) {
  if (!PyUnicode_Check(value.ptr())) refuse_type(value, name, "a string");
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text) return {text, static_cast<std::size_t>(size)};
  clear_exception();
  refuse("'" + std::string(name) + "' holds half of a pair of surrogates, which is no text");
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

// Texts that were parsed, by what they say and where they were read.
Schedule parsed(const std::string& text, const std::string& where) {
  static auto* known = new std::map<std::pair<std::string, std::string>, Schedule>();
  const std::pair key(where, text);
  if (const auto it = known->find(key); it != known->end()) return it->second;
  if (known->size() >= 256) known->clear();
  return known->emplace(key, parse_schedule(text, where)).first->second;
}

Schedule read_schedule(const std::string& text, Device device) {
  if (text.find(": ") != std::string::npos || text.find('\n') != std::string::npos) return parsed(text, "schedule");
  std::string names;
  for (const KnownSchedule& known : schedule_file(target_of(device)).best) {
    if (known.name == text) return known.schedule;
    names += (names.empty() ? "\"" : ", \"") + known.name + "\"";
  }
  // Read at each call: it may have been edited.
  std::ifstream file(text, std::ios::binary);
  std::ostringstream contents;
  if (file && contents << file.rdbuf()) return parsed(contents.str(), text);
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
  PyObject* bytes = nullptr;
  if (!PyUnicode_FSConverter(value.ptr(), &bytes)) {  // str, bytes, whatever is a path
    const bool not_a_path = PyErr_ExceptionMatches(PyExc_TypeError);
    clear_exception();
    if (not_a_path) refuse_type(value, "schedule", "a file, a name or YAML text");
    refuse("'schedule' has characters that no file's name has");
  }
  const nb::object path = nb::steal(bytes);
  return read_schedule({PyBytes_AsString(path.ptr()), static_cast<std::size_t>(PyBytes_Size(path.ptr()))}, device);
}

Stream stream_of(const Array& like) {
  if (like.device.kind == Device::Kind::cpu) return {};
  if (like.library == Library::torch) {
    static constinit Imported current("torch._C", "_cuda_getCurrentRawStream");
    return {PyLong_AsVoidPtr(current.get()(like.device.index).ptr()), false};
  }
  static constinit Imported of_library("attile.arrays", "stream");
  const nb::object found = of_library.get()(like.object, like.device.index);
  return {PyLong_AsVoidPtr(nb::object(found[0]).ptr()), nb::cast<bool>(found[1])};
}

void wait_for(Device device, const Stream& stream) {
  if (!stream.wait) return;
  const CurrentContext context(device.index);
  if (cuda_driver().stream_synchronize(static_cast<cu::Stream>(stream.handle)) != cu::Result::success)
    throw Error(ErrorKind::environment, "attention", "the GPU reported a failure while the call was waited for");
}

}  // namespace attile::python
