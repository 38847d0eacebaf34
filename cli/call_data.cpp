#include "cli/call_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/captured.h"
#include "cli/npy.h"
#include "dsl/error.h"

namespace attile::cli {
namespace {

// Stands for memory that is never touched.
alignas(64) std::byte no_memory[64];

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorKind::argument, where, what, remedy);
}

void refuse_sizes_beside_files(const AttentionFlags& f) {
  if (f.random) refuse("--random", "files are given too", "give files or --random");
  for (const auto& [flag, set] :
       {std::pair{"--batch", f.batch.has_value()}, std::pair{"--heads", f.heads.has_value()},
        std::pair{"--kv-heads", f.kv_heads.has_value()}, std::pair{"--seqlen-q", f.seqlen_q.has_value()},
        std::pair{"--seqlen-k", f.seqlen_k.has_value()}, std::pair{"--head-dim", f.head_dim.has_value()},
        std::pair{"--value-dim", f.value_dim.has_value()}})
    if (set) refuse(flag, "the files' shapes say this already", "leave the flag out, or leave --q, --k and --v out");
}

Array read_operand(const std::string& path, const std::string& flag, const AttentionFlags& f) {
  if (path.empty()) refuse(flag, "the file is missing", "--q, --k and --v go together");
  Array array = read_npy(path);
  if (array.shape().size() != 4)
    refuse(path, fmt::format("its shape is {}, but {} has four dims: batch, head, position, feature",
                             shape_text(array.shape()), flag));
  if (!is_float(array.dtype()))
    refuse(path, fmt::format("it holds {}, but {} is float32, float16 or bfloat16", to_string(array.dtype()), flag));
  return f.dtype.empty() ? std::move(array) : converted(std::move(array), parse_float_dtype(f.dtype, "--dtype"), path);
}

std::int64_t last_bound(const std::string& text, const std::string& flag) {
  const Array bounds = read_integers(text, flag);
  return bounds.count() > 0 ? static_cast<std::int64_t>(bounds.get(bounds.count() - 1)) : 0;
}

}  // namespace

CallData::CallData(const AttentionFlags& flags, Contents contents, bool with_lse, DType out_dtype)
    : contents_(contents) {
  if (flags.q.empty() && flags.k.empty() && flags.v.empty())
    make_operands(flags);
  else
    take_operands(flags);
  take_options(flags);
  take_lengths(flags);
  take_captured(flags);
  make_outputs(flags, with_lse, out_dtype);
}

TensorRef CallData::keep(const std::string& name, Array array) {
  return arrays_.insert_or_assign(name, std::move(array)).first->second.ref();
}

TensorRef CallData::operand(const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
  if (contents_ == Contents::shapes) return contiguous(no_memory, dtype, shape);
  Array array(dtype, std::move(shape));
  if (name == "o" || name == "lse")
    array.fill(std::numeric_limits<double>::quiet_NaN());  // what a kernel forgets to write is seen
  else
    fill_random(array, name);
  return keep(name, std::move(array));
}

void CallData::take_operands(const AttentionFlags& f) {
  refuse_sizes_beside_files(f);
  call_.q = keep("q", read_operand(f.q, "--q", f));
  call_.k = keep("k", read_operand(f.k, "--k", f));
  call_.v = keep("v", read_operand(f.v, "--v", f));
}

void CallData::make_operands(const AttentionFlags& f) {
  const bool packed = !f.cu_seqlens_q.empty();
  const DType dtype = f.dtype.empty() ? DType::float32 : parse_float_dtype(f.dtype, "--dtype");
  const std::string& bounds_k = f.cu_seqlens_k.empty() ? f.cu_seqlens_q : f.cu_seqlens_k;
  const std::int64_t rows = f.seqlen_q.value_or(packed ? last_bound(f.cu_seqlens_q, "--cu-seqlens-q") : 1024);
  const std::int64_t keys = f.seqlen_k.value_or(packed ? last_bound(bounds_k, "--cu-seqlens-k") : rows);
  const std::int64_t batch = f.batch.value_or(1), heads = f.heads.value_or(8), kv_heads = f.kv_heads.value_or(heads);
  const std::int64_t head_dim = f.head_dim.value_or(64), value_dim = f.value_dim.value_or(head_dim);
  call_.q = operand("q", dtype, {batch, heads, rows, head_dim});
  call_.k = operand("k", dtype, {batch, kv_heads, keys, head_dim});
  call_.v = operand("v", dtype, {batch, kv_heads, keys, value_dim});
}

void CallData::take_options(const AttentionFlags& f) {
  call_.scale = f.scale;
  try {
    call_.rule = rule_from_string(f.rule);
  } catch (const Error& e) {
    throw Error(e.kind(), "--rule", e.message(), e.remedy());
  }
  call_.causal = f.causal;
  if (!f.window.empty()) {
    const std::vector<std::int64_t> window = parse_integers(f.window, "--window");
    if (window.size() != 2)
      refuse("--window", fmt::format("\"{}\" has not two numbers", f.window), "a window is left,right");
    call_.window_left = window[0];
    call_.window_right = window[1];
  }
  call_.softcap = f.softcap;
  call_.top_k = f.top_k;
  if (!f.top_k_renormalise.empty()) call_.top_k_renormalise = parse_boolean(f.top_k_renormalise, "--top-k-renormalise");
  call_.dropout = f.dropout;
  call_.tf32 = f.tf32 && call_.q.dtype == DType::float32;
  call_.seed = f.seed;
}

void CallData::take_lengths(const AttentionFlags& f) {
  if (!f.kv_lens.empty()) {
    Array lens = f.kv_lens == "random" ? random_integers({call_.q.shape[0]}, 1, call_.k.shape[2], "kv_lens")
                                       : read_integers(f.kv_lens, "--kv-lens");
    call_.kv_lens = keep("kv_lens", std::move(lens));
  }
  if (f.cu_seqlens_q.empty() && !f.cu_seqlens_k.empty())
    refuse("--cu-seqlens-k", "cu-seqlens-q is missing", "they go together");
  if (f.cu_seqlens_q.empty()) return;
  call_.cu_seqlens_q = keep("cu_seqlens_q", read_integers(f.cu_seqlens_q, "--cu-seqlens-q"));
  const bool own = !f.cu_seqlens_k.empty();
  call_.cu_seqlens_k = keep(
      "cu_seqlens_k", read_integers(own ? f.cu_seqlens_k : f.cu_seqlens_q, own ? "--cu-seqlens-k" : "--cu-seqlens-q"));
}

void CallData::take_captured(const AttentionFlags& f) {
  const std::int64_t batch = sequences(), heads = call_.q.shape[1], rows = call_.q.shape[2], keys = call_.k.shape[2];
  if (!f.alibi_slopes.empty())
    call_.alibi_slopes =
        keep("alibi_slopes", f.alibi_slopes == "standard" ? standard_slopes(heads)
                                                          : read_reals(f.alibi_slopes, "--alibi-slopes", {heads}));
  if (!f.sink.empty()) call_.sink = keep("sink", read_reals(f.sink, "--sink", {heads}));
  if (!f.bias.empty()) call_.bias = keep("bias", read_bias(f.bias, {1, heads, rows, keys}));
  if (!f.mask.empty()) call_.mask = keep("mask", read_mask(f.mask, {1, 1, rows, keys}));
  if (!f.prefix_len.empty())
    call_.prefix_len = keep("prefix_len", f.prefix_len == "random" ? random_integers({batch}, 0, keys, "prefix_len")
                                                                   : read_integers(f.prefix_len, "--prefix-len"));
  if (!f.doc_ids.empty()) {
    Array ids = f.doc_ids == "random" ? random_documents(batch, keys) : read_integers(f.doc_ids, "--doc-ids");
    if (ids.shape().size() == 1) ids.reshape({1, ids.count()});
    call_.doc_ids = keep("doc_ids", std::move(ids));
  }
}

void CallData::make_outputs(const AttentionFlags& f, bool with_lse, DType out_dtype) {
  const DType dtype = f.out_dtype.empty() ? out_dtype : parse_float_dtype(f.out_dtype, "--out-dtype");
  const auto& q = call_.q.shape;
  call_.o = operand("o", dtype, {q[0], q[1], q[2], call_.v.shape[3]});
  if (with_lse) call_.lse = operand("lse", DType::float32, {q[0], q[1], q[2]});
}

std::int64_t CallData::sequences() const {
  return call_.cu_seqlens_q ? std::max<std::int64_t>(call_.cu_seqlens_q->shape[0] - 1, 0) : call_.q.shape[0];
}

std::string CallData::problem_text() const {
  const auto &q = call_.q.shape, &k = call_.k.shape;
  const bool grouped = q[1] != k[1];
  return fmt::format("B{} H{}{} Nq{} Nk{} D{} Dv{} {} -> {}", sequences(), q[1],
                     grouped ? fmt::format("/{}", k[1]) : "", q[2], k[2], q[3], call_.v.shape[3],
                     to_string(call_.q.dtype), to_string(call_.o.dtype));
}

}  // namespace attile::cli
