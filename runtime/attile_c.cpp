#include "runtime/attile_c.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "dsl/error.h"
#include "runtime/attention_check.h"
#include "runtime/parallel_for.h"
#include "schedules/schedule_yaml.h"

using namespace attile;  // NOLINT

// What does not change from run to run.
struct attile_attention {
  AttentionCall call;
};

namespace {

static_assert(ATTILE_FLOAT32 == int(DType::float32) && ATTILE_BFLOAT16 == int(DType::bfloat16) &&
              ATTILE_FLOAT16 == int(DType::float16));
static_assert(ATTILE_INT32 == int(DType::int32) && ATTILE_INT64 == int(DType::int64) &&
              ATTILE_BOOLEAN == int(DType::boolean));
static_assert(ATTILE_TUNING_NEVER == 1 + int(Tuning::never) && ATTILE_TUNING_CACHED == 1 + int(Tuning::cached) &&
              ATTILE_TUNING_NOW == 1 + int(Tuning::now));
static_assert(ATTILE_BUILDING_ON_DEMAND == 1 + int(Building::on_demand) &&
              ATTILE_BUILDING_NEVER == 1 + int(Building::never) &&
              ATTILE_BUILDING_BACKGROUND == 1 + int(Building::background));
static_assert(ATTILE_SOFTMAX == int(Rule::softmax) && ATTILE_SOFTMAX_PLUS_ONE == int(Rule::softmax_plus_one));
static_assert(ATTILE_SIGMOID == int(Rule::sigmoid) && ATTILE_LINEAR == int(Rule::linear));
// Sizes in the first version; they stay when fields are added.
constexpr std::uint64_t first_options_size = 96, first_tensors_size = 1800;
static_assert(sizeof(attile_attention_options) >= first_options_size &&
              sizeof(attile_attention_tensors) >= first_tensors_size);
static_assert(int{ATTILE_MAX_RANK} == TensorRef::max_rank);
static_assert(ATTILE_ERROR_ARGUMENT == 1 + int(ErrorKind::argument) &&
              ATTILE_ERROR_INTERNAL == 1 + int(ErrorKind::internal));

[[noreturn]] void refuse(const char* where, std::string what, std::string remedy = {}) {
  throw Error(ErrorKind::argument, where, std::move(what), std::move(remedy));
}

// The text of this thread; a fixed sentence where there is no memory to keep one.
struct LastError {
  std::string text;
  const char* shown = "";
  void set(const char* what) noexcept {
    try {
      text = what;
      shown = text.c_str();
    } catch (...) {
      shown = "out of memory";
    }
  }
};
LastError& last_error() {
  static thread_local LastError error;
  return error;
}

template <typename Body>
attile_status guarded(Body&& body) noexcept {
  try {
    body();
    return ATTILE_OK;
  } catch (const Error& e) {
    last_error().set(e.what());
    return 1 + static_cast<attile_status>(e.kind());
  } catch (const std::bad_alloc&) {
    last_error().set("out of memory");
    return ATTILE_ERROR_RESOURCE;
  } catch (const std::exception& e) {
    last_error().set(e.what());
  } catch (...) {
    last_error().set("an exception that is no Error");
  }
  return ATTILE_ERROR_INTERNAL;
}

template <typename T>
T& not_null(T* pointer, const char* where, const char* name) {
  if (!pointer) refuse(where, fmt::format("'{}' is NULL", name));
  return *pointer;
}

attile_attention_options default_options() {
  attile_attention_options o{};
  o.size = sizeof o;
  o.window_left = o.window_right = -1;
  o.top_k_renormalise = 1;
  o.device = ATTILE_CPU;
  return o;
}
attile_attention_tensors default_tensors() {
  attile_attention_tensors t{};
  t.size = sizeof t;
  return t;
}

// Copies what both sides know and keeps the defaults of what the caller's header does not have yet.
template <typename T>
T read_struct(const T& from, T defaults, std::uint64_t first_size, const char* where) {
  if (from.size < first_size || from.size > 65536)
    refuse(where, fmt::format("the struct's size is {}, which no version has", from.size),
           "call the init function first");
  const auto* bytes = reinterpret_cast<const unsigned char*>(&from);
  for (std::size_t i = sizeof(T); i < from.size; ++i)
    if (bytes[i] != 0)
      refuse(where, "the struct asks for something that this version does not have", "use a newer library");
  std::memcpy(&defaults, &from, std::min<std::size_t>(from.size, sizeof(T)));
  return defaults;
}

template <typename T>
void init_struct(T* to, std::uint64_t size, const T& defaults, const char* where) {
  if (size < sizeof(std::uint64_t) || size > 65536)
    refuse(where, fmt::format("a struct of {} bytes", size), "pass its sizeof");
  std::memset(&not_null(to, where, "struct"), 0, size);
  std::memcpy(to, &defaults, std::min<std::size_t>(size, sizeof(T)));
  to->size = size;
}

TensorRef tensor_of(const attile_tensor& t, const char* name, const char* where) {
  if (t.dtype < ATTILE_FLOAT32 || t.dtype > ATTILE_BOOLEAN)
    refuse(where, fmt::format("'{}' has the unknown dtype {}", name, t.dtype));
  if (t.rank < 0 || t.rank > ATTILE_MAX_RANK)
    refuse(where, fmt::format("'{}' has rank {}; a tensor has at most {} dims", name, t.rank, int{ATTILE_MAX_RANK}));
  TensorRef out;
  out.data = t.data;
  out.dtype = static_cast<DType>(t.dtype);
  out.rank = t.rank;
  std::copy_n(t.shape, t.rank, out.shape.begin());
  std::copy_n(t.strides, t.rank, out.strides.begin());
  return out;
}

AttentionCall call_of(const attile_attention& attention, const attile_attention_tensors& tensors, const char* where) {
  const attile_attention_tensors t = read_struct(tensors, default_tensors(), first_tensors_size, where);
  AttentionCall call = attention.call;
  call.q = tensor_of(t.q, "q", where), call.k = tensor_of(t.k, "k", where);
  call.v = tensor_of(t.v, "v", where), call.o = tensor_of(t.o, "o", where);
  const auto optional = [&](const attile_tensor& from, const char* name, std::optional<TensorRef>& to) {
    if (from.rank != 0 || from.data != nullptr) to = tensor_of(from, name, where);
  };
  optional(t.lse, "lse", call.lse), optional(t.values, "values", call.values),
      optional(t.indices, "indices", call.indices);
  optional(t.alibi_slopes, "alibi_slopes", call.alibi_slopes), optional(t.bias, "bias", call.bias);
  optional(t.mask, "mask", call.mask), optional(t.sink, "sink", call.sink);
  optional(t.prefix_len, "prefix_len", call.prefix_len), optional(t.doc_ids, "doc_ids", call.doc_ids);
  optional(t.kv_lens, "kv_lens", call.kv_lens), optional(t.cu_seqlens_q, "cu_seqlens_q", call.cu_seqlens_q);
  optional(t.cu_seqlens_k, "cu_seqlens_k", call.cu_seqlens_k);
  call.run = {t.stream, t.workspace, t.workspace_bytes};
  return call;
}

Tuning tuning_of(std::int32_t value, const char* where) {
  if (value < ATTILE_TUNING_NEVER || value > ATTILE_TUNING_NOW)
    refuse(where, fmt::format("there is no tuning {}", value),
           "ATTILE_TUNING_NEVER, ATTILE_TUNING_CACHED or ATTILE_TUNING_NOW");
  return static_cast<Tuning>(value - ATTILE_TUNING_NEVER);
}
Building building_of(std::int32_t value, const char* where) {
  if (value < ATTILE_BUILDING_ON_DEMAND || value > ATTILE_BUILDING_BACKGROUND)
    refuse(where, fmt::format("there is no building {}", value),
           "ATTILE_BUILDING_ON_DEMAND, ATTILE_BUILDING_NEVER or ATTILE_BUILDING_BACKGROUND");
  return static_cast<Building>(value - ATTILE_BUILDING_ON_DEMAND);
}

AttentionCall call_of(const attile_attention_options& options) {
  const char* where = "attile_attention_create";
  const attile_attention_options o = read_struct(options, default_options(), first_options_size, where);
  if (o.rule < ATTILE_SOFTMAX || o.rule > ATTILE_LINEAR) refuse(where, fmt::format("there is no rule {}", o.rule));
  AttentionCall call;
  call.rule = static_cast<Rule>(o.rule);
  call.causal = o.causal != 0;
  call.window_left = o.window_left, call.window_right = o.window_right;
  if (o.has_scale) call.scale = o.scale;
  call.softcap = o.softcap;
  call.top_k = o.top_k, call.top_k_renormalise = o.top_k_renormalise != 0;
  call.dropout = o.dropout, call.seed = o.seed, call.offset = o.offset;
  if (o.device < ATTILE_CPU) refuse(where, fmt::format("there is no device {}", o.device), "ATTILE_CPU, or 0 for the first CUDA device");
  if (o.device != ATTILE_CPU) call.device = {Device::Kind::cuda, o.device};
  call.tf32 = o.tf32 != 0;
  if (o.tuning != ATTILE_TUNING_OF_PROCESS) call.tuning = tuning_of(o.tuning, where);
  if (o.building != ATTILE_BUILDING_OF_PROCESS) call.building = building_of(o.building, where);
  if (o.schedule) call.schedule = parse_schedule(o.schedule, "schedule");
  check_attention_numbers(call);
  return call;
}

}  // namespace

const char* attile_version(void) { return ATTILE_VERSION; }
const char* attile_last_error(void) { return last_error().shown; }

attile_status attile_attention_options_init(attile_attention_options* options, std::uint64_t size) {
  return guarded([&] { init_struct(options, size, default_options(), "attile_attention_options_init"); });
}
attile_status attile_attention_tensors_init(attile_attention_tensors* tensors, std::uint64_t size) {
  return guarded([&] { init_struct(tensors, size, default_tensors(), "attile_attention_tensors_init"); });
}

attile_status attile_attention_create(const attile_attention_options* options, attile_attention** attention) {
  return guarded([&] {
    const char* where = "attile_attention_create";
    not_null(attention, where, "attention") = nullptr;
    *attention = new attile_attention{call_of(not_null(options, where, "options"))};
  });
}

void attile_attention_destroy(attile_attention* attention) { delete attention; }

attile_status attile_attention_run(const attile_attention* attention, const attile_attention_tensors* tensors) {
  return guarded([&] {
    const char* where = "attile_attention_run";
    run_attention(call_of(not_null(attention, where, "attention"), not_null(tensors, where, "tensors"), where));
  });
}

attile_status attile_attention_prepare(const attile_attention* attention, const attile_attention_tensors* tensors) {
  return guarded([&] {
    const char* where = "attile_attention_prepare";
    AttentionCall call = call_of(not_null(attention, where, "attention"), not_null(tensors, where, "tensors"), where);
    call.building = Building::on_demand;
    attention_kernel(call);
  });
}

attile_status attile_attention_workspace(const attile_attention* attention, const attile_attention_tensors* tensors, std::uint64_t* bytes) {
  return guarded([&] {
    const char* where = "attile_attention_workspace";
    const AttentionCall call = call_of(not_null(attention, where, "attention"), not_null(tensors, where, "tensors"), where);
    not_null(bytes, where, "bytes") = attention_kernel(call).workspace_bytes(attention_arguments(call));
  });
}

attile_status attile_set_threads(std::int32_t threads) {
  return guarded([&] { set_worker_count(threads); });
}
attile_status attile_get_threads(std::int32_t* threads) {
  return guarded([&] { not_null(threads, "attile_get_threads", "threads") = worker_count(); });
}

attile_status attile_set_tuning(std::int32_t tuning) {
  return guarded([&] { set_tuning(tuning_of(tuning, "attile_set_tuning")); });
}
attile_status attile_get_tuning(std::int32_t* tuning) {
  return guarded([&] {
    not_null(tuning, "attile_get_tuning", "tuning") = ATTILE_TUNING_NEVER + static_cast<int>(attile::tuning());
  });
}
attile_status attile_set_building(std::int32_t building) {
  return guarded([&] { set_building(building_of(building, "attile_set_building")); });
}
attile_status attile_get_building(std::int32_t* building) {
  return guarded([&] {
    not_null(building, "attile_get_building", "building") =
        ATTILE_BUILDING_ON_DEMAND + static_cast<int>(attile::building());
  });
}
