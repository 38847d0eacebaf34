// attention(): the Python arguments as an AttentionCall, its outputs as new arrays of the caller's kind, the run.
#include "module.h"

#include <algorithm>
#include <array>

#include "arguments.h"
#include "runtime/attention.h"
#include "runtime/cuda_driver.h"
#include "variant.h"

namespace attile::python {
namespace {

// One call while it is put together. Arrays stay where they are until the run is over.
class Call {
 public:
  Call(nb::handle q, nb::handle layout) {
    const std::string text = text_of(layout, "layout");
    if (text != "bhnd" && text != "bnhd") refuse("layout is \"" + text + "\", but must be \"bhnd\" or \"bnhd\"");
    heads_last_ = text == "bnhd";
    arrays_.reserve(24);
    read(q, "q");
  }

  AttentionCall call;

  const Array& q() const { return arrays_.front(); }
  Device device() const { return q().device; }
  void tell_written() const {
    if (written_) python::tell_written(*written_);
  }

  TensorRef read(nb::handle object, const char* name) {
    arrays_.push_back(read_array(object, name));
    const Array& a = arrays_.back();
    if (a.device != device())
      refuse("'" + std::string(name) + "' lies on " + to_string(a.device) + ", but 'q' on " + to_string(device()),
             "all tensors of a call lie on one device");
    return a.tensor;
  }
  void read(nb::handle object, const char* name, std::optional<TensorRef>& to) {
    if (!object.is_none()) to = read(object, name);
  }

  // Packed tensors may come without their batch dim; heads and positions change places by their strides.
  TensorRef as_bhnd(TensorRef t) const {
    if (t.rank == 3 && packed()) {
      std::copy_backward(t.shape.begin(), t.shape.begin() + 3, t.shape.begin() + 4);
      std::copy_backward(t.strides.begin(), t.strides.begin() + 3, t.strides.begin() + 4);
      t.shape[0] = 1, t.strides[0] = 0, t.rank = 4;
    }
    if (t.rank == 4 && heads_last_) std::swap(t.shape[1], t.shape[2]), std::swap(t.strides[1], t.strides[2]);
    return t;
  }

  void operands(nb::handle k, nb::handle v) {
    call.device = device();
    if (call.device.kind == Device::Kind::cuda) cuda_driver();  // first of all, for its own words on what is missing
    call.q = as_bhnd(q().tensor);
    call.k = as_bhnd(read(k, "k"));
    call.v = as_bhnd(read(v, "v"));
    for (const auto& [name, t] : {std::pair("k", call.k), {"v", call.v}})
      if (t.dtype != call.q.dtype && is_float(t.dtype) && is_float(call.q.dtype))
        refuse("'" + std::string(name) + "' is " + std::string(to_string(t.dtype)) + ", but 'q' is " +
                   std::string(to_string(call.q.dtype)),
               "q, k and v are of one type");
  }

  nb::object output(nb::handle out) {
    // Where these have other ranks, the check of the call says so.
    if (call.q.rank != 4 || call.v.rank != 4) return nb::none();
    TensorRef wanted = q().tensor;
    const int last = wanted.rank - 1;
    wanted.shape[static_cast<std::size_t>(last)] = call.v.shape[3];
    if (!out.is_none()) return given(out, wanted);
    const nb::object fresh =
        empty_array(q(), wanted.shape.data(), wanted.rank, wanted.dtype, wanted.shape == q().tensor.shape);
    call.o = as_bhnd(fresh_view(fresh, "o"));
    return fresh;
  }

  // [B][H][N_q] and one more extent where it is not 0.
  nb::object row_output(const char* name, DType dtype, std::int64_t extent, std::optional<TensorRef>& to) {
    if (call.q.rank != 4) return nb::none();
    std::array<std::int64_t, 4> shape{call.q.shape[0], call.q.shape[1], call.q.shape[2], extent};
    const bool without_batch = q().tensor.rank == 3;
    const nb::object fresh = empty_array(q(), shape.data() + (without_batch ? 1 : 0),
                                         3 - (without_batch ? 1 : 0) + (extent ? 1 : 0), dtype, false);
    TensorRef t = fresh_view(fresh, name);
    if (without_batch) {
      std::copy_backward(t.shape.begin(), t.shape.begin() + t.rank, t.shape.begin() + t.rank + 1);
      std::copy_backward(t.strides.begin(), t.strides.begin() + t.rank, t.strides.begin() + t.rank + 1);
      t.shape[0] = 1, t.strides[0] = 0, ++t.rank;
    }
    to = t;
    return fresh;
  }

  CallOptions options() const {
    return {call.schedule, device(), call.tf32, call.building.value_or(building()), call.run};
  }

  // The algorithm with the score and mask of the call, and all that it reads.
  std::pair<Variant&, Arguments> with_mods(const AttentionArguments& a) {
    Variant& variant = nb::cast<Mods&>(a.mods).variant(attention_options(call));
    Arguments arguments = attention_arguments(call);
    captured(variant.algorithm(), a.captured, arguments);
    return {variant, std::move(arguments)};
  }

 private:
  // A captured tensor: one without dims counts as one of extent 1.
  void captured(const Algorithm& a, nb::handle list, Arguments& arguments) {
    for (nb::handle pair : list) {
      const auto name = nb::cast<std::string>(pair[0]);
      const nb::object value = pair[1];
      for (const ScalarDecl& s : a.scalars)
        if (s.name == name)
          s.kind == Kind::integer ? arguments.integer(name, captured_integer(value, name))
                                  : arguments.real(name, number_of(value, name));
      if (!a.find_input(name)) continue;
      TensorRef t = read(value, name.c_str());
      if (t.rank == 0) t.rank = 1, t.shape[0] = 1, t.strides[0] = 1;
      arguments.tensor(name, t);
    }
  }

  bool packed() const { return call.cu_seqlens_q.has_value(); }

  TensorRef fresh_view(const nb::object& fresh, const char* name) {
    Array a = read_array(fresh, name);
    arrays_.push_back(a);
    return a.tensor;
  }

  nb::object given(nb::handle out, const TensorRef& wanted) {
    const TensorRef t = read(out, "out");
    check_writable(arrays_.back(), "out");
    if (t.rank != wanted.rank || !std::equal(t.shape.begin(), t.shape.begin() + t.rank, wanted.shape.begin()))
      refuse("'out' has shape " + text_of_shape(t) + ", but the result has " + text_of_shape(wanted));
    written_ = arrays_.back();
    call.o = as_bhnd(t);
    return nb::borrow(out);
  }

  bool heads_last_ = false;
  std::vector<Array> arrays_;
  std::optional<Array> written_;  // what was given as `out`
};

void read_window(nb::handle window, AttentionCall& call) {
  if (window.is_none()) return;
  const bool pair = (nb::isinstance<nb::tuple>(window) || nb::isinstance<nb::list>(window)) && nb::len(window) == 2;
  if (!pair) refuse_type(window, "window", "a pair (left, right), where -1 or None is no limit");
  const auto side = [&](int i, const char* name) {
    const nb::object value = window[i];
    return value.is_none() ? -1 : integer_of(value, name);
  };
  call.window_left = side(0, "window_left"), call.window_right = side(1, "window_right");
}

void read_numbers(const AttentionArguments& a, AttentionCall& call) {
  call.causal = boolean_of(a.causal, "causal");
  read_window(a.window, call);
  if (!a.scale.is_none()) call.scale = number_of(a.scale, "scale");
  call.softcap = number_of(a.softcap, "softcap");
  call.rule = rule_from_string(text_of(a.rule, "rule"));
  call.dropout = number_of(a.dropout, "dropout");
  call.seed = static_cast<std::uint64_t>(integer_of(a.seed, "seed"));
  call.offset = static_cast<std::uint64_t>(integer_of(a.offset, "offset"));
  const std::int64_t top_k = integer_of(a.top_k, "top_k");
  call.top_k = static_cast<int>(std::clamp<std::int64_t>(top_k, -1, 129));  // both ends are refused
  call.top_k_renormalise = boolean_of(a.top_k_renormalise, "top_k_renormalise");
  call.tf32 = boolean_of(a.tf32, "tf32");
  if (!a.tuning.is_none()) call.tuning = tuning_of(a.tuning);
  if (!a.building.is_none()) call.building = building_of(a.building);
}

void read_tensors(const AttentionArguments& a, Call& c) {
  AttentionCall& call = c.call;
  c.read(a.cu_seqlens_q, "cu_seqlens_q", call.cu_seqlens_q);
  c.read(a.cu_seqlens_k, "cu_seqlens_k", call.cu_seqlens_k);
  c.operands(a.k, a.v);
  c.read(a.alibi_slopes, "alibi_slopes", call.alibi_slopes);
  c.read(a.bias, "bias", call.bias), c.read(a.mask, "mask", call.mask), c.read(a.sink, "sink", call.sink);
  c.read(a.kv_lens, "kv_lens", call.kv_lens);
  c.read(a.prefix_len, "prefix_len", call.prefix_len), c.read(a.doc_ids, "doc_ids", call.doc_ids);
}

void run(Call& c, const AttentionArguments& a) {
  const Stream stream = stream_of(c.q());
  c.call.run.stream = stream.handle;
  if (a.mods.is_none()) {
    const nb::gil_scoped_release released;
    run_attention(c.call);
    return wait_for(c.device(), stream);
  }
  const auto [variant, arguments] = c.with_mods(a);
  const nb::gil_scoped_release released;
  variant.run(arguments, c.options());
  wait_for(c.device(), stream);
}

// All but the run; gives what the call gives.
std::vector<nb::object> read(const AttentionArguments& a, Call& c) {
  read_numbers(a, c.call);
  read_tensors(a, c);
  c.call.schedule = schedule_of(a.schedule, c.device());
  std::vector<nb::object> results{c.output(a.out)};
  if (boolean_of(a.return_lse, "return_lse")) results.push_back(c.row_output("lse", DType::float32, 0, c.call.lse));
  if (boolean_of(a.top_k_outputs, "top_k_outputs")) {
    const std::int64_t extent = std::max(c.call.top_k, 1);
    results.push_back(c.row_output("values", DType::float32, extent, c.call.values));
    results.push_back(c.row_output("indices", DType::int32, extent, c.call.indices));
  }
  return results;
}

}  // namespace

void warm_up(const AttentionArguments& a) {
  Call c(a.q, a.layout);
  read(a, c);
  if (a.mods.is_none()) {
    const nb::gil_scoped_release released;
    return attile::warm_up(std::span(&c.call, 1), c.call.tuning.value_or(Tuning::cached));
  }
  c.call.building = Building::on_demand;
  const auto [variant, arguments] = c.with_mods(a);
  const nb::gil_scoped_release released;
  variant.kernel(arguments, c.options());
}

nb::object attention(const AttentionArguments& a) {
  Call c(a.q, a.layout);
  std::vector<nb::object> results = read(a, c);
  run(c, a);
  c.tell_written();
  if (results.size() == 1) return results.front();
  const nb::object all = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
  for (std::size_t i = 0; i < results.size(); ++i)
    PyTuple_SetItem(all.ptr(), static_cast<Py_ssize_t>(i), results[i].release().ptr());
  return all;
}

}  // namespace attile::python
