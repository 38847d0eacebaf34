// An array of any library as a TensorRef: PyTorch tensors by their attributes, NumPy arrays by their array interface
// (it knows bfloat16, and read-only memory), everything else by DLPack. Nothing is copied; an Array must not outlive
// the object it was read from.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "dsl/error.h"
#include "runtime/device.h"
#include "runtime/tensor_ref.h"

namespace attile::python {

namespace nb = nanobind;

enum class Library : std::uint8_t { numpy, torch, other };

struct Array {
  nb::handle object;
  TensorRef tensor;
  Device device;
  Library library = Library::other;
  bool read_only = false;
  nb::object owner;  // keeps DLPack's view alive
};

Library library_of(nb::handle object);

// Throws WrongType for what is no array, Error(argument) for types that Attile has none for, memory that it cannot
// reach, and a tensor that wants a gradient while one is recorded.
Array read_array(nb::handle object, const char* name);

// What an array is like, whatever it holds and of any type. `dtype`: what `type` is the address of, if it is one.
struct ArrayForm {
  std::uint64_t type = 0;
  bool on_host = true;  // of an array without dims, as others are read alike
  std::vector<std::int64_t> shape;
  std::string device;  // in the words of its library, or DLPack's numbers
  nb::object dtype;
};
ArrayForm form_of_array(nb::handle array);

// Throws Error(argument) for a result's array that cannot be written to: read-only, of a library whose arrays do not
// change, or with less memory than its shape has.
void check_writable(const Array& array, const char* name);
std::string text_of_shape(const TensorRef& t);
// Tells the array's library that its contents are new.
void tell_written(const Array& array);

// "float32" and so on as the library of `like` names it; the array is new, its contents are whatever was there.
nb::object empty_array(const Array& like, const std::int64_t* shape, int rank, DType dtype, bool shape_of_like);

// A Python argument of the wrong type; becomes attile.ArgumentTypeError.
struct WrongType : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void refuse_type(nb::handle value, const std::string& name, const char* wanted);
[[noreturn]] void refuse(std::string what, std::string remedy = {});
// Goes on with what is no Exception, such as KeyboardInterrupt; `error` is dealt with by the caller else.
void need_exception(const nb::python_error& error);
// The same for the error that is set: it is cleared.
void clear_exception();
// A scalar of NumPy's: not an array, not Python's own.
bool is_numpy_scalar(nb::handle value);
// What a Python exception says, without its traceback.
std::string text_of(const nb::python_error& error);

// A thing of a module, looked up at its first use and kept. A static one must be constinit: while an import runs other
// threads run too, and one that waits for a static to be made would never let the import end.
class Imported {
 public:
  constexpr Imported(const char* module, const char* name) : module_(module), name_(name) {}
  nb::handle get() {
    if (found_) return found_;
    nb::object found = nb::module_::import_(module_).attr(name_);
    if (!found_) found_ = found.release().ptr();  // another thread may have been first
    return found_;
  }

 private:
  const char *module_, *name_;
  PyObject* found_ = nullptr;
};

// Attributes by names that are made once, which runs no Python.
class Name {
 public:
  explicit Name(const char* text) : text_(PyUnicode_InternFromString(text)) {}
  nb::object of(nb::handle object) const { return checked(PyObject_GetAttr(object.ptr(), text_)); }
  nb::object call(nb::handle object) const { return nb::borrow<nb::object>(of(object))(); }
  static nb::object checked(PyObject* result) {
    if (!result) nb::raise_python_error();
    return nb::steal<nb::object>(result);
  }

 private:
  PyObject* text_;  // lives as long as the process
};

}  // namespace attile::python
