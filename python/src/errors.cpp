// attile::Error as attile.Error's subclasses (attile/errors.py), one for each kind, with the same text.
#include <exception>
#include <new>

#include "array.h"
#include "module.h"

namespace attile::python {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::argument: return "ArgumentError";
    case ErrorKind::unsupported: return "UnsupportedError";
    case ErrorKind::environment: return "EnvironmentError";
    case ErrorKind::resource: return "ResourceError";
    case ErrorKind::internal: break;
  }
  return "InternalError";
}

void set_error(const char* name, const char* text) {
  const nb::object type = nb::module_::import_("attile.errors").attr(name);
  PyErr_SetObject(type.ptr(), nb::str(text).ptr());
}

}  // namespace

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& e) {
      set_error(class_of(e.kind()), e.what());
    } catch (const WrongType& e) {
      set_error("ArgumentTypeError", e.what());
    }
  });
}

}  // namespace attile::python
