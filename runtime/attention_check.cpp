#include "runtime/attention_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>
#include <utility>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {
namespace {

[[noreturn]] void refuse(std::string what, std::string remedy = {}) {
  throw Error(ErrorKind::argument, "attention", std::move(what), std::move(remedy));
}

enum class Types : std::uint8_t { any_float, float32, int32, boolean };

bool is_of(DType type, Types wanted) {
  switch (wanted) {
    case Types::any_float: return is_float(type);
    case Types::float32: return type == DType::float32;
    case Types::int32: return type == DType::int32;
    case Types::boolean: return type == DType::boolean;
  }
  return false;
}

const char* words(Types types) {
  switch (types) {
    case Types::any_float: return "float32, bfloat16 or float16";
    case Types::float32: return "float32";
    case Types::int32: return "int32";
    case Types::boolean: return "boolean";
  }
  return "";
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }
std::string shape_text(const TensorRef& t) {
  return shape_text({t.shape.data(), static_cast<std::size_t>(std::clamp(t.rank, 0, TensorRef::max_rank))});
}

// What a tensor of the call must be: `form` names its dims, `shape` is what they are in this call.
struct Form {
  const char* name;
  const char* form;
  Types types;
  std::size_t broadcast = 0;  // so many of the first dims may have extent 1 instead
};

void check_form(const Form& form, const TensorRef& t, int rank) {
  if (t.rank != rank) refuse(fmt::format("'{}' has shape {}, but must be {}", form.name, shape_text(t), form.form));
  if (!is_of(t.dtype, form.types))
    refuse(fmt::format("'{}' is {}, but must be {}", form.name, to_string(t.dtype), words(form.types)));
}

void check_tensor(const Form& form, const TensorRef& t, std::initializer_list<std::int64_t> shape) {
  check_form(form, t, static_cast<int>(shape.size()));
  std::size_t i = 0;
  for (const std::int64_t wanted : shape) {
    if (t.shape[i] != wanted && !(i < form.broadcast && t.shape[i] == 1))
      refuse(fmt::format("'{}' has shape {}, but {} is {} in this call", form.name, shape_text(t), form.form,
                         shape_text(std::span(shape.begin(), shape.size()))));
    ++i;
  }
}

void check_tensor(const Form& form, const std::optional<TensorRef>& t, std::initializer_list<std::int64_t> shape) {
  if (t) check_tensor(form, *t, shape);
}

void check_pairs(const AttentionCall& call) {
  if (call.cu_seqlens_q.has_value() != call.cu_seqlens_k.has_value())
    refuse(fmt::format("{} is given without {}", call.cu_seqlens_q ? "cu_seqlens_q" : "cu_seqlens_k",
                       call.cu_seqlens_q ? "cu_seqlens_k" : "cu_seqlens_q"),
           "packed sequences need the bounds of queries and of keys");
  if (call.cu_seqlens_q && call.kv_lens)
    refuse("kv_lens is given with cu_seqlens", "cu_seqlens_k says already how many keys each sequence has");
  if ((call.values || call.indices) && call.top_k == 0)
    refuse(fmt::format("'{}' is given without top_k", call.values ? "values" : "indices"),
           "set top_k to their last extent");
  if (call.values.has_value() != call.indices.has_value())
    refuse(fmt::format("'{}' is given without '{}'", call.values ? "values" : "indices",
                       call.values ? "indices" : "values"),
           "give both or none");
}

void check_tensors(const AttentionCall& call) {
  check_form({"q", "[B][H][N_q][D]", Types::any_float}, call.q, 4);
  check_form({"k", "[B][H_k][N_k][D]", Types::any_float}, call.k, 4);
  check_form({"v", "[B][H_k][N_k][D_v]", Types::any_float}, call.v, 4);
  const auto [batch, heads, rows, head_dim] =
      std::tuple(call.q.shape[0], call.q.shape[1], call.q.shape[2], call.q.shape[3]);
  const std::int64_t kv_heads = call.k.shape[1], keys = call.k.shape[2], value_dim = call.v.shape[3];
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0)
    refuse(fmt::format("{} query heads are no multiple of {} kv heads", heads, kv_heads));
  check_tensor({"k", "[B][H_k][N_k][D]", Types::any_float}, call.k, {batch, kv_heads, keys, head_dim});
  check_tensor({"v", "[B][H_k][N_k][D_v]", Types::any_float}, call.v, {batch, kv_heads, keys, value_dim});
  check_tensor({"o", "[B][H][N_q][D_v]", Types::any_float}, call.o, {batch, heads, rows, value_dim});
  check_tensor({"lse", "[B][H][N_q]", Types::float32}, call.lse, {batch, heads, rows});
  check_tensor({"values", "[B][H][N_q][top_k]", Types::float32}, call.values, {batch, heads, rows, call.top_k});
  check_tensor({"indices", "[B][H][N_q][top_k]", Types::int32}, call.indices, {batch, heads, rows, call.top_k});
  const char* rectangle = "[B or 1][H or 1][N_q or 1][N_k]";
  check_tensor({"bias", rectangle, Types::any_float, 3}, call.bias, {batch, heads, rows, keys});
  check_tensor({"mask", rectangle, Types::boolean, 3}, call.mask, {batch, heads, rows, keys});
  check_tensor({"sink", "[H]", Types::float32}, call.sink, {heads});
  check_tensor({"doc_ids", "[B][N_k]", Types::int32}, call.doc_ids, {batch, keys});
  check_tensor({"kv_lens", "[B]", Types::int32}, call.kv_lens, {batch});
}

// Tensors of one entry per sequence, whose number packed lengths give.
void check_sequences(const AttentionCall& call) {
  std::int64_t sequences = call.q.shape[0];
  if (call.cu_seqlens_q) {
    check_form({"cu_seqlens_q", "[sequences + 1]", Types::int32}, *call.cu_seqlens_q, 1);
    sequences = call.cu_seqlens_q->shape[0] - 1;
    if (sequences < 0) refuse("'cu_seqlens_q' is empty; it needs one bound more than there are sequences");
    check_tensor({"cu_seqlens_k", "[sequences + 1]", Types::int32}, *call.cu_seqlens_k, {sequences + 1});
    if (call.q.shape[0] != 1)
      refuse(fmt::format("'q' has batch extent {}, but packed sequences lie in a tensor of batch extent 1",
                         call.q.shape[0]));
  }
  check_tensor({"prefix_len", "[B]", Types::int32}, call.prefix_len, {sequences});
  if (!call.alibi_slopes) return;
  const Form slopes{"alibi_slopes", "[H] or [B or 1][H]", Types::float32, 1};
  if (call.alibi_slopes->rank == 1)
    check_tensor({slopes.name, slopes.form, slopes.types}, *call.alibi_slopes, {call.q.shape[1]});
  else
    check_tensor(slopes, *call.alibi_slopes, {sequences, call.q.shape[1]});
}

}  // namespace

void check_attention_numbers(const AttentionCall& call) {
  if (call.scale && !(*call.scale >= 0 && std::isfinite(static_cast<float>(*call.scale))))
    refuse(fmt::format("scale is {}, but must be a number from 0 to what float32 holds", *call.scale));
  const auto cap = static_cast<float>(call.softcap);
  if (call.softcap != 0 && !(cap > 0 && std::isfinite(cap)))
    refuse(fmt::format("softcap is {}, but must be positive and finite", call.softcap), "0 turns it off");
  if (!(call.dropout >= 0 && call.dropout < 1))
    refuse(fmt::format("dropout is {}, but is a probability from 0 to below 1", call.dropout));
  for (const auto& [name, size] : {std::pair("window_left", call.window_left), {"window_right", call.window_right}})
    if (size < -1) refuse(fmt::format("{} is {}", name, size), "-1 is no limit on that side");
}

void check_attention(const AttentionCall& call) {
  check_attention_numbers(call);
  check_pairs(call);
  check_tensors(call);
  check_sequences(call);
}

}  // namespace v1
}  // namespace attile
