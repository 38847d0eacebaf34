// What a function can reach through its names (reach.py says of what kind each value is), as a key: functions with
// equal keys have equal traces. Numbers and code go in by value and identity, arrays by what they are like, not what
// they hold.
#include <unordered_map>
#include <utility>

#include "array.h"
#include "module.h"

namespace attile::python {
namespace {

// Something whose changes would not be noticed: such a function is traced at every call.
struct Opaque {};

// In the order of _KINDS in reach.py.
enum class Form : std::uint8_t { array, captured, partial, scalar, other };

// Answers by object, which lives as long as its answer; all are forgotten when they are many.
template <typename Answer>
class Known {
 public:
  const Answer* find(nb::handle of) const {
    const auto it = answers_.find(of.ptr());
    return it == answers_.end() ? nullptr : &it->second.second;
  }
  Answer add(nb::handle of, Answer answer) {
    if (answers_.size() >= 4096) std::exchange(answers_, {});
    return answers_.insert_or_assign(of.ptr(), std::pair(nb::borrow(of), std::move(answer))).first->second.second;
  }

 private:
  std::unordered_map<PyObject*, std::pair<nb::object, Answer>> answers_;
};

class Reach {
 public:
  Reach() { key.reserve(256), seen_.reserve(8); }

  std::string key;
  nb::list arrays;
  nb::list kept;  // what the key knows by its address

  void add(nb::handle value, int depth = 0) {
    if (depth > 100) throw Opaque();
    PyTypeObject* type = Py_TYPE(value.ptr());
    if (type == function_type()) return add_function(value, depth);
    if (type == &PyTuple_Type || type == &PyList_Type) return add_sequence(value, type == &PyList_Type, depth);
    if (type == &PyUnicode_Type) return add_text(value);
    if (type == &PyFloat_Type) return put('f'), put(PyFloat_AsDouble(value.ptr()));
    if (type == &PyLong_Type) return add_integer(value);
    if (type == &PyBool_Type || value.is_none()) return put('s'), put(value.ptr());
    switch (form_of(value)) {
      case Form::array: return add_array(value);
      case Form::captured: return add(value.attr("_array"), depth + 1);
      case Form::partial: return add_partial(value, depth);
      case Form::scalar: return put('n'), put(type), add(value.attr("item")(), depth + 1);
      case Form::other: break;
    }
    if (!is_constant(value)) throw Opaque();
    put('o'), put(value.ptr()), kept.append(value);
  }

 private:
  template <typename T>
  void put(const T& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  static nb::handle reach() {
    static constinit Imported module("attile", "reach");
    return module.get();
  }
  static PyTypeObject* function_type() {
    static constinit Imported type("types", "FunctionType");
    return reinterpret_cast<PyTypeObject*>(type.get().ptr());
  }
  static Form form_of(nb::handle value) {
    static auto* known = new Known<Form>();
    const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())));
    if (const Form* form = known->find(type)) return *form;
    return known->add(type, static_cast<Form>(nb::cast<int>(reach().attr("kind_of")(value))));
  }

  static bool is_constant(nb::handle value) {
    static auto* known = new Known<bool>();
    if (known->find(value)) return true;
    const bool constant = nb::cast<bool>(reach().attr("is_constant")(value));
    return constant && known->add(value, true);
  }

  // The names that code and the functions in it read.
  static nb::object names_of(nb::handle code) {
    static auto* known = new Known<nb::object>();
    if (const nb::object* names = known->find(code)) return *names;
    return known->add(code, reach().attr("names_of")(code));
  }

  static bool is_of_a_library(nb::handle function) {
    static const Name module("__module__");
    static auto* known = new Known<bool>();  // by the names of modules
    const nb::object name = module.of(function);
    if (const bool* found = known->find(name)) return *found;
    return known->add(name, nb::cast<bool>(reach().attr("is_library_name")(name)));
  }

  void add_text(nb::handle value) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
    if (!text) PyErr_Clear(), throw Opaque();
    put('t'), put(size), key.append(text, static_cast<std::size_t>(size));
  }

  void add_integer(nb::handle value) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow != 0) throw Opaque();
    put('i'), put(number);
  }

  void add_sequence(nb::handle value, bool is_list, int depth) {
    put(is_list ? 'l' : 'u');
    const nb::object parts = is_list ? nb::steal(PyList_AsTuple(value.ptr())) : nb::borrow(value);
    const Py_ssize_t size = PyTuple_Size(parts.ptr());
    put(size);
    for (Py_ssize_t i = 0; i < size; ++i) add(PyTuple_GetItem(parts.ptr(), i), depth + 1);
  }

  void add_partial(nb::handle value, int depth) {
    put('p');
    for (const char* part : {"func", "args"}) add(value.attr(part), depth + 1);
    add(items_of(value.attr("keywords")), depth + 1);
    add_attributes(value, depth);
  }

  static nb::object items_of(nb::handle dict) {
    return nb::steal(PySequence_Tuple(nb::object(dict.attr("items")()).ptr()));
  }

  // Those that Python code may have given it. Arrays among them are not replaced while a trace is made.
  void add_attributes(nb::handle value, int depth) {
    static const Name attributes("__dict__");
    const nb::object given = attributes.of(value);
    if (PyDict_Size(given.ptr()) == 0) return;
    const std::size_t count = nb::len(arrays);
    put('d'), add(items_of(given), depth + 1);
    if (nb::len(arrays) > count) throw Opaque();
  }

  // Its closure and defaults, and its globals unless it is a library's own.
  void add_function(nb::handle value, int depth) {
    static const Name code("__code__"), closure("__closure__"), globals("__globals__"), contents("cell_contents"),
        defaults("__defaults__"), named_defaults("__kwdefaults__");
    for (std::size_t i = 0; i < seen_.size(); ++i)
      if (seen_[i].is(value)) return put('r'), put(i);
    seen_.push_back(nb::borrow(value));
    const nb::object body = code.of(value);
    put('c'), put(body.ptr()), kept.append(body);
    if (const nb::object cells = closure.of(value); !cells.is_none())
      for (Py_ssize_t i = 0; i < PyTuple_Size(cells.ptr()); ++i)
        add(contents_of(contents, PyTuple_GetItem(cells.ptr(), i)), depth + 1);
    if (!is_of_a_library(value)) {
      const nb::object all = globals.of(value);
      const nb::object names = names_of(body);
      for (Py_ssize_t i = 0; i < PyTuple_Size(names.ptr()); ++i) {
        PyObject* found = PyDict_GetItemWithError(all.ptr(), PyTuple_GetItem(names.ptr(), i));
        if (!found) found = PyDict_GetItemWithError(builtins_of(all).ptr(), PyTuple_GetItem(names.ptr(), i));
        found ? add(nb::borrow(found), depth + 1) : put('-');
      }
      add_attributes(value, depth);
    }
    if (const nb::object given = defaults.of(value); !given.is_none()) add(given, depth + 1);
    if (const nb::object given = named_defaults.of(value); !given.is_none()) add(items_of(given), depth + 1);
  }

  static nb::object builtins_of(nb::handle globals) {
    static constinit Imported all("builtins", "__dict__");
    PyObject* own = PyDict_GetItemString(globals.ptr(), "__builtins__");
    if (!own) return nb::borrow(all.get());
    return PyDict_Check(own) ? nb::borrow(own) : nb::object(nb::handle(own).attr("__dict__"));
  }

  static nb::object contents_of(const Name& contents, nb::handle cell) {
    try {
      return contents.of(cell);
    } catch (nb::python_error& e) {  // an empty one
      need_exception(e);
      throw Opaque();
    }
  }

  void add_array(nb::handle value) {
    const std::size_t count = nb::len(arrays);
    for (std::size_t i = 0; i < count; ++i)
      if (arrays[i].is(value)) return put('a'), put(i);
    if (has_attributes(value)) throw Opaque();
    arrays.append(value);
    put('A');
    const ArrayForm form = form_of_array(value);
    put(form.type), put(form.on_host), put(form.device.size()), key += form.device, put(form.shape.size());
    for (const std::int64_t extent : form.shape) put(extent);
    if (form.dtype.is_valid()) kept.append(form.dtype);
  }

  // A trace may have read them, and only of PyTorch's is that not noticed.
  static bool has_attributes(nb::handle array) {
    static const Name attributes("__dict__");
    return library_of(array) == Library::torch && PyDict_Size(attributes.of(array).ptr()) > 0;
  }

  std::vector<nb::object> seen_;
};

// (key, arrays, kept) of both functions; None where one is opaque.
nb::object reach_of(nb::handle score_mod, nb::handle mask_mod) {
  Reach reach;
  try {
    reach.add(score_mod), reach.add(mask_mod);
  } catch (const Opaque&) {
    return nb::none();
  }
  return nb::make_tuple(nb::bytes(reach.key.data(), reach.key.size()), reach.arrays, reach.kept);
}

}  // namespace

void bind_reach(nb::module_& m) { m.def("reach", &reach_of, nb::arg("score_mod").none(), nb::arg("mask_mod").none()); }

}  // namespace attile::python
