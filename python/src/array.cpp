#include "array.h"

#include <algorithm>
#include <unordered_map>

#include "dlpack.h"

namespace attile::python {
namespace {

struct TypeName {
  const char* name;
  DType dtype;
};
constexpr TypeName type_names[] = {{"float32", DType::float32}, {"bfloat16", DType::bfloat16},
                                   {"float16", DType::float16}, {"int32", DType::int32},
                                   {"int64", DType::int64},     {"bool", DType::boolean}};

[[noreturn]] void refuse_dtype(const char* name, const std::string& dtype) {
  refuse("'" + std::string(name) + "' is " + dtype + ", which Attile has no type for",
         "there are float32, bfloat16, float16, int32, int64 and bool");
}

DType dtype_named(const std::string& text, const char* name) {
  for (const TypeName& t : type_names)
    if (text == t.name) return t.dtype;
  refuse_dtype(name, text);
}

void check_rank(Py_ssize_t rank, const char* name) {
  if (rank > TensorRef::max_rank)
    refuse("'" + std::string(name) + "' has " + std::to_string(rank) + " dims; a tensor has at most " +
           std::to_string(TensorRef::max_rank));
}

void read_extents(nb::handle shape, TensorRef& t, const char* name) {
  const Py_ssize_t rank = PyTuple_Size(shape.ptr());
  check_rank(rank, name);
  t.rank = static_cast<int>(rank);
  for (Py_ssize_t i = 0; i < rank; ++i)
    t.shape[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GetItem(shape.ptr(), i));
}

void row_major(TensorRef& t) {
  std::int64_t step = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.strides[static_cast<std::size_t>(i)] = step;
    step *= t.shape[static_cast<std::size_t>(i)];
  }
}

// ---- What DLPack tells

DType dlpack_dtype(const dlpack::Tensor& t, const char* name) {
  using namespace dlpack;
  if (t.lanes == 1) {
    if (t.code == float_code && t.bits == 32) return DType::float32;
    if (t.code == float_code && t.bits == 16) return DType::float16;
    if (t.code == bfloat_code && t.bits == 16) return DType::bfloat16;
    if (t.code == int_code && t.bits == 32) return DType::int32;
    if (t.code == int_code && t.bits == 64) return DType::int64;
    if (t.code == bool_code && t.bits == 8) return DType::boolean;
  }
  constexpr const char* codes[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  refuse_dtype(name, std::string(t.code < std::size(codes) ? codes[t.code] : "of type code " + std::to_string(t.code)) +
                         std::to_string(t.bits) + (t.lanes == 1 ? "" : "x" + std::to_string(t.lanes)));
}

void take(const dlpack::Tensor& t, const char* name, Array& a) {
  if (t.device_type == dlpack::cuda || t.device_type == dlpack::cuda_managed)
    a.device = {Device::Kind::cuda, t.device_index};
  else if (t.device_type != dlpack::cpu && t.device_type != dlpack::cuda_host)
    refuse("'" + std::string(name) + "' lies on a device of DLPack's type " + std::to_string(t.device_type) +
           "; Attile runs on the CPU and on CUDA devices");
  check_rank(t.rank, name);
  a.tensor.data = static_cast<char*>(t.data) + t.byte_offset;
  a.tensor.dtype = dlpack_dtype(t, name);
  a.tensor.rank = t.rank;
  std::copy_n(t.shape, t.rank, a.tensor.shape.begin());
  row_major(a.tensor);
  if (t.strides) std::copy_n(t.strides, t.rank, a.tensor.strides.begin());
}

// ---- PyTorch

// dtypes are singletons, so their addresses tell them apart.
DType torch_dtype(nb::handle dtype, const char* name) {
  static auto* known = new std::unordered_map<PyObject*, DType>();
  if (const auto it = known->find(dtype.ptr()); it != known->end()) return it->second;
  const std::string text = nb::str(dtype).c_str();  // "torch.float32"
  const DType found = dtype_named(text.substr(text.find('.') + 1), name);
  known->emplace(dtype.ptr(), found);
  return found;
}

bool gradients_are_recorded() {
  static constinit Imported enabled("torch", "is_grad_enabled");
  return nb::cast<bool>(enabled.get()());
}

// With a tangent for differentiation forward; there is none outside of a level.
bool is_dual(nb::handle object) {
  static constinit Imported forward("torch.autograd", "forward_ad");
  static const Name level("_current_level"), unpack("unpack_dual"), tangent("tangent");
  if (PyLong_AsLong(level.of(forward.get()).ptr()) < 0) return false;
  return !tangent.of(unpack.of(forward.get())(object)).is_none();
}

void refuse_gradient(nb::handle object, const char* name) {
  static const Name requires_grad("requires_grad");
  if (is_dual(object))
    throw Error(ErrorKind::unsupported, "attention",
                "'" + std::string(name) + "' has a tangent, and there are no derivatives yet",
                "pass its primal: torch.autograd.forward_ad.unpack_dual(" + std::string(name) + ").primal");
  if (requires_grad.of(object).ptr() != Py_True || !gradients_are_recorded()) return;
  throw Error(ErrorKind::unsupported, "attention",
              "'" + std::string(name) + "' requires a gradient, and there is no backward pass yet",
              "call it under torch.no_grad() or torch.inference_mode(), or pass " + std::string(name) + ".detach()");
}

Device torch_device(nb::handle object, const char* name) {
  static const Name is_cuda("is_cuda"), is_cpu("is_cpu"), get_device("get_device"), device("device");
  if (is_cuda.of(object).ptr() == Py_True) return {Device::Kind::cuda, nb::cast<int>(get_device.call(object))};
  if (is_cpu.of(object).ptr() == Py_True) return {};
  refuse("'" + std::string(name) + "' lies on " + nb::str(device.of(object)).c_str() +
         "; Attile runs on the CPU and on CUDA devices");
}

// From PyTorch 2.10 on; null before.
const dlpack::Exchange* find_torch_exchange() {
  static constinit Imported tensor("torch", "Tensor");
  if (!nb::hasattr(tensor.get(), "__dlpack_c_exchange_api__")) return nullptr;
  const nb::object capsule = tensor.get().attr("__dlpack_c_exchange_api__");
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  const auto* api = static_cast<const dlpack::Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  return api->major == 1 ? api : nullptr;
}

const dlpack::Exchange* torch_exchange() {
  static constinit bool asked = false;
  static constinit const dlpack::Exchange* found = nullptr;
  if (!asked) found = find_torch_exchange(), asked = true;
  return found;
}

// All at once where PyTorch can; what it refuses is left to the attributes, which say why.
bool take_at_once(nb::handle object, const char* name, Array& a) {
  const dlpack::Exchange* api = torch_exchange();
  if (!api) return false;
  dlpack::Tensor t{};
  if (api->tensor_from_object(object.ptr(), &t) == 0) return take(t, name, a), true;
  clear_exception();
  return false;
}

Array read_torch(nb::handle object, const char* name) {
  static const Name dtype("dtype"), shape("shape"), stride("stride"), data_ptr("data_ptr"), is_neg("is_neg");
  refuse_gradient(object, name);
  Array a;
  a.object = object, a.library = Library::torch;
  if (is_neg.call(object).ptr() == Py_True)
    refuse("'" + std::string(name) + "' is a view that negates its memory", "pass its resolve_neg()");
  if (take_at_once(object, name, a)) return a;
  a.device = torch_device(object, name);
  a.tensor.dtype = torch_dtype(dtype.of(object), name);
  try {
    read_extents(shape.of(object), a.tensor, name);
    const nb::object strides = stride.call(object);
    for (int i = 0; i < a.tensor.rank; ++i)
      a.tensor.strides[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GetItem(strides.ptr(), i));
    a.tensor.data = PyLong_AsVoidPtr(data_ptr.call(object).ptr());
    if (PyErr_Occurred()) nb::raise_python_error();
  } catch (nb::python_error& e) {
    need_exception(e);
    refuse("'" + std::string(name) + "' has no memory of its own: " + text_of(e), "pass a strided tensor");
  }
  return a;
}

// ---- NumPy

// Types that are in use once are used again, and asking one for its name is slow.
DType numpy_dtype(const nb::object& dtype, const char* name) {
  static auto* known = new std::unordered_map<PyObject*, DType>();  // types, kept alive
  if (const auto it = known->find(dtype.ptr()); it != known->end()) return it->second;
  if (!nb::cast<bool>(dtype.attr("isnative")))
    refuse("'" + std::string(name) + "' has the bytes of its elements in another machine's order");
  const DType found = dtype_named(nb::cast<std::string>(dtype.attr("name")), name);
  if (known->size() < 64) known->emplace(nb::object(dtype).release().ptr(), found);
  return found;
}

// The buffer without its format, which does not know bfloat16.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDES) != 0) nb::raise_python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  const Py_buffer* operator->() const { return &view_; }

 private:
  Py_buffer view_{};
};

Array read_numpy(nb::handle object, const char* name) {
  static const Name dtype("dtype");
  Array a;
  a.object = object, a.library = Library::numpy;
  a.tensor.dtype = numpy_dtype(dtype.of(object), name);
  const Buffer buffer(object);
  check_rank(buffer->ndim, name);
  a.tensor.data = buffer->buf, a.tensor.rank = buffer->ndim, a.read_only = buffer->readonly != 0;
  std::copy_n(buffer->shape, a.tensor.rank, a.tensor.shape.begin());
  const auto size = static_cast<std::int64_t>(size_of(a.tensor.dtype));
  for (std::size_t i = 0; static_cast<int>(i) < a.tensor.rank; ++i) {
    if (buffer->strides[i] % size != 0)
      refuse("the elements of '" + std::string(name) + "' lie " + std::to_string(buffer->strides[i]) +
                 " bytes apart, no multiple of their size",
             "pass a copy");
    a.tensor.strides[i] = buffer->strides[i] / size;
  }
  return a;
}

// ---- Everything else

// Asked for the newest form first: it tells read-only memory. The stream is the default one, on which such arrays run.
nb::object dlpack_capsule(nb::handle object, const char* name) {
  static const Name method("__dlpack__");
  nb::object export_;
  try {
    export_ = method.of(object);
  } catch (nb::python_error& e) {
    need_exception(e);
    refuse_type(object, name, "an array (of NumPy, PyTorch, JAX, CuPy, or with __dlpack__)");
  }
  try {
    return export_(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;
  }
  return export_();
}

Array read_dlpack(nb::handle object, const char* name) {
  Array a;
  a.object = object;
  try {
    a.owner = dlpack_capsule(object, name);
  } catch (nb::python_error& e) {
    need_exception(e);
    refuse("'" + std::string(name) + "' cannot be read through DLPack: " + text_of(e));
  }
  if (PyCapsule_IsValid(a.owner.ptr(), "dltensor_versioned")) {
    const auto* m = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(a.owner.ptr(), "dltensor_versioned"));
    if (m->major != 1) refuse("'" + std::string(name) + "' speaks DLPack " + std::to_string(m->major) + ", not 1");
    a.read_only = (m->flags & dlpack::read_only_flag) != 0;
    take(m->tensor, name, a);
  } else if (PyCapsule_IsValid(a.owner.ptr(), "dltensor")) {
    take(static_cast<dlpack::Managed*>(PyCapsule_GetPointer(a.owner.ptr(), "dltensor"))->tensor, name, a);
  } else {
    refuse("'" + std::string(name) + "' gave no DLPack capsule");
  }
  return a;
}

// ---- Which of them

bool is_instance(nb::handle object, const char* module, const char* type) {
  // A library that is not imported has made no array. Imported ones are found without running an import.
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  PyObject* found = PyDict_GetItemString(modules.ptr(), module);
  if (!found || found == Py_None || !nb::hasattr(found, type)) return false;
  return PyObject_IsInstance(object.ptr(), nb::handle(found).attr(type).ptr()) == 1;
}

}  // namespace

Library library_of(nb::handle object) {
  static auto* known = new std::unordered_map<PyObject*, Library>();  // types, kept alive
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  if (const auto it = known->find(type); it != known->end()) return it->second;
  const Library library = is_instance(object, "torch", "Tensor")    ? Library::torch
                          : is_instance(object, "numpy", "ndarray") ? Library::numpy
                                                                    : Library::other;
  Py_INCREF(type);
  known->emplace(type, library);
  return library;
}

void refuse(std::string what, std::string remedy) {
  throw Error(ErrorKind::argument, "attention", std::move(what), std::move(remedy));
}

bool is_numpy_scalar(nb::handle value) {
  return nb::cast<std::string>(value.type().attr("__module__")) == "numpy" && nb::hasattr(value, "item") &&
         !nb::hasattr(value, "__setitem__");
}

std::string text_of(const nb::python_error& error) {
  const nb::object text = nb::steal(PyObject_Str(error.value().ptr()));
  const char* utf8 = text.is_valid() ? PyUnicode_AsUTF8AndSize(text.ptr(), nullptr) : nullptr;
  if (!utf8) clear_exception();
  return utf8 ? utf8 : "an error without words";
}

void need_exception(const nb::python_error& error) {
  if (!error.matches(PyExc_Exception)) throw error;
}

void clear_exception() {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) nb::raise_python_error();
  PyErr_Clear();
}

void refuse_type(nb::handle value, const std::string& name, const char* wanted) {
  throw WrongType("attention: '" + name + "' is of type " + nb::cast<std::string>(nb::type_name(value.type())) +
                  ", but must be " + wanted);
}

Array read_array(nb::handle object, const char* name) {
  switch (library_of(object)) {
    case Library::torch: return read_torch(object, name);
    case Library::numpy: return read_numpy(object, name);
    case Library::other: break;
  }
  return read_dlpack(object, name);
}

ArrayForm form_of_array(nb::handle array) {
  static const Name dtype("dtype"), shape("shape"), device("device");
  ArrayForm form;
  const dlpack::Exchange* api = library_of(array) == Library::torch ? torch_exchange() : nullptr;
  if (dlpack::Tensor t{}; api && api->tensor_from_object(array.ptr(), &t) == 0) {
    form.type = std::uint64_t{t.code} << 32 | std::uint64_t{t.bits} << 16 | t.lanes;
    form.shape.assign(t.shape, t.shape + t.rank);
    form.on_host = t.rank > 0 || t.device_type == dlpack::cpu;
    if (t.device_type != dlpack::cpu)
      form.device = std::to_string(t.device_type) + ":" + std::to_string(t.device_index);
    return form;
  }
  clear_exception();
  form.dtype = dtype.of(array);
  form.type = reinterpret_cast<std::uintptr_t>(form.dtype.ptr());
  for (nb::handle extent : shape.of(array)) form.shape.push_back(nb::cast<std::int64_t>(extent));
  if (library_of(array) == Library::numpy || !nb::hasattr(array, "device")) return form;
  form.device = nb::str(device.of(array)).c_str();
  form.on_host = !form.shape.empty() || form.device.find("cuda") == std::string::npos;
  return form;
}

std::string text_of_shape(const TensorRef& t) {
  std::string text;
  for (int i = 0; i < t.rank; ++i) text += (i ? ", " : "") + std::to_string(t.shape[static_cast<std::size_t>(i)]);
  return "[" + text + "]";
}

namespace {

// A storage that was shrunk under its tensor.
void refuse_freed(const Array& array, const char* name) {
  const TensorRef& t = array.tensor;
  std::int64_t last = nb::cast<std::int64_t>(array.object.attr("storage_offset")()), elements = 1;
  for (int i = 0; i < t.rank; ++i) {
    const auto n = t.shape[static_cast<std::size_t>(i)];
    elements *= n, last += (n - 1) * t.strides[static_cast<std::size_t>(i)];
  }
  if (elements > 0 && (last + 1) * static_cast<std::int64_t>(size_of(t.dtype)) >
                          nb::cast<std::int64_t>(array.object.attr("untyped_storage")().attr("nbytes")()))
    refuse("the memory of '" + std::string(name) + "' is freed or smaller than its shape " + text_of_shape(t));
}

}  // namespace

void check_writable(const Array& array, const char* name) {
  if (array.read_only) refuse("'" + std::string(name) + "' is read-only");
  // Without a flag for it, an array that cannot be assigned to is taken for read-only (JAX).
  if (array.library == Library::other && (!nb::hasattr(array.object, "__setitem__") || nb::hasattr(array.object, "at")))
    refuse("'" + std::string(name) + "' is an array that cannot be written to");
  if (array.library == Library::torch) refuse_freed(array, name);
}

// So that a backward pass that saved the tensor sees that it is not what it was.
void tell_written(const Array& array) {
  static constinit Imported graph("torch.autograd", "graph");
  if (array.library != Library::torch || !nb::hasattr(graph.get(), "increment_version")) return;
  if (!nb::cast<bool>(array.object.attr("is_inference")())) graph.get().attr("increment_version")(array.object);
}

nb::object empty_array(const Array& like, const std::int64_t* shape, int rank, DType dtype, bool shape_of_like) {
  if (like.library == Library::torch && shape_of_like) {
    static constinit Imported empty_like("torch", "empty_like");
    return empty_like.get()(like.object);
  }
  static constinit Imported empty("attile.arrays", "empty");
  nb::object extents = nb::steal(PyTuple_New(rank));
  for (int i = 0; i < rank; ++i) PyTuple_SetItem(extents.ptr(), i, PyLong_FromLongLong(shape[i]));
  const char* name = "";
  for (const TypeName& t : type_names)
    if (t.dtype == dtype) name = t.name;
  return empty.get()(like.object, extents, name);
}

}  // namespace attile::python
