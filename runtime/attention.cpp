#include "runtime/attention.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/attention_check.h"
#include "runtime/attention_kernels.h"
#include "runtime/few_rows.h"
#include "runtime/may_build.h"

namespace attile {
inline namespace v1 {
namespace {

AttentionOptions options_of(const AttentionCall& call) {
  AttentionOptions o;
  o.rule = call.rule;
  o.causal = call.causal;
  o.window = call.window_left >= 0 || call.window_right >= 0;
  o.softcap = call.softcap > 0;
  o.alibi = call.alibi_slopes.has_value();
  o.bias = call.bias.has_value();
  o.mask = call.mask.has_value();
  o.sink = call.sink.has_value();
  o.prefix = call.prefix_len.has_value();
  o.documents = call.doc_ids.has_value();
  o.dropout = call.dropout > 0;
  o.top_k = call.top_k;
  o.top_k_renormalise = call.top_k_renormalise;
  o.top_k_outputs = call.values.has_value();
  o.lse = call.lse.has_value();
  o.lengths = call.cu_seqlens_q ? Lengths::packed : call.kv_lens ? Lengths::used : Lengths::dense;
  return o;
}

// [H] read as [1][H].
TensorRef with_batch(const TensorRef& slopes) {
  if (slopes.rank != 1) return slopes;
  TensorRef t = slopes;
  t.rank = 2;
  t.shape = {1, slopes.shape[0]};
  t.strides = {0, slopes.strides[0]};
  return t;
}

void add_numbers(const AttentionCall& call, Arguments& out) {
  out.numbers.reserve(8);
  out.real("scale", call.scale ? *call.scale : 1 / std::sqrt(static_cast<double>(call.q.shape[3])));
  if (call.softcap > 0) out.real("softcap", call.softcap);
  if (call.window_left >= 0 || call.window_right >= 0)
    out.integer("window_left", call.window_left).integer("window_right", call.window_right);
  if (call.dropout > 0) {
    out.integer("seed", static_cast<std::int64_t>(call.seed)).integer("offset", static_cast<std::int64_t>(call.offset));
    out.integer("dropout_threshold", std::llround(call.dropout * 4294967296.0));
    out.real("dropout_scale", 1 / (1 - call.dropout));
  }
}

Arguments arguments_of(const AttentionCall& call) {
  Arguments out;
  out.tensors.reserve(16);
  out.tensor("q", call.q).tensor("k", call.k).tensor("v", call.v).tensor("o", call.o);
  const auto add = [&](const char* name, const std::optional<TensorRef>& t) {
    if (t) out.tensor(name, *t);
  };
  add("lse", call.lse), add("values", call.values), add("indices", call.indices);
  if (call.alibi_slopes) out.tensor("alibi_slopes", with_batch(*call.alibi_slopes));
  add("bias", call.bias), add("mask", call.mask), add("sink", call.sink), add("prefix_len", call.prefix_len);
  add("doc_ids", call.doc_ids), add("kv_lens", call.kv_lens);
  add("cu_seqlens_q", call.cu_seqlens_q), add("cu_seqlens_k", call.cu_seqlens_k);
  add_numbers(call, out);
  return out;
}

CallKey key_of(const AttentionCall& call, const AttentionOptions& o) {
  CallKey key{};
  key.head_dim = call.q.shape[3], key.value_dim = call.v.shape[3];
  key.group = call.k.shape[1] > 0 ? call.q.shape[1] / call.k.shape[1] : 1;
  key.top_k = o.top_k;
  const bool flags[] = {o.causal,
                        o.window,
                        o.softcap,
                        o.alibi,
                        o.bias,
                        o.mask,
                        o.sink,
                        o.prefix,
                        o.documents,
                        o.dropout,
                        o.top_k_renormalise,
                        o.top_k_outputs,
                        o.lse,
                        call.tf32,
                        are_few_rows(o.lengths, call.q.shape[2], key.group)};
  for (std::size_t i = 0; i < std::size(flags); ++i) key.flags |= std::uint32_t{flags[i]} << i;
  key.dtypes = {call.q.dtype, call.k.dtype, call.v.dtype, call.o.dtype, call.bias ? call.bias->dtype : DType::float32};
  key.rule = o.rule, key.lengths = o.lengths;
  key.schedule = call.schedule;
  key.device = call.device;
  key.tuning = call.schedule ? Tuning::never : call.tuning.value_or(tuning());
  if (key.tuning == Tuning::never) return key;
  const auto power = [](std::int64_t n) { return static_cast<std::uint8_t>(std::bit_width(static_cast<std::uint64_t>(n > 1 ? n - 1 : 0))); };
  key.sizes = {power(call.q.shape[2]), power(call.k.shape[2]), power(call.q.shape[0] * call.q.shape[1])};
  if (call.cu_seqlens_q) key.sizes[2] = power(call.q.shape[1] * call.cu_seqlens_q->shape[0]);
  return key;
}

KernelChoice choice_of(const AttentionCall& call, const AttentionOptions& options) {
  return kernel_choice(key_of(call, options), call.building.value_or(building()), [&] {
    CallAlgorithm a{attention(options), {}};
    a.problem = problem_of(a.algorithm, arguments_of(call));
    a.problem.tf32 = call.tf32;
    return a;
  }, call);
}

}  // namespace

AttentionOptions attention_options(const AttentionCall& call) {
  check_attention(call);
  return options_of(call);
}

Arguments attention_arguments(const AttentionCall& call) {
  check_attention(call);
  return arguments_of(call);
}

Kernel attention_kernel(const AttentionCall& call) {
  check_attention(call);
  return choice_of(call, options_of(call)).kernel;
}

// A schedule that the store named and that cannot run here gives way to the next one.
void run_attention(const AttentionCall& call) {
  check_attention(call);
  const AttentionOptions options = options_of(call);
  const BuildingRight right(call.building.value_or(building()) == Building::on_demand);
  for (;;) {
    const KernelChoice choice = choice_of(call, options);
    try {
      return choice.kernel.run(arguments_of(call), call.run);
    } catch (const Error& error) {
      if (!give_way(key_of(call, options), choice, error)) throw;
    }
  }
}

void warm_up(std::span<const AttentionCall> calls, Tuning tuning) {
  std::optional<Error> first;
  for (AttentionCall call : calls) {
    call.tuning = tuning;
    call.building = Building::on_demand;
    try {
      attention_kernel(call);
      if (tuning == Tuning::cached) continue;
      call.tuning = Tuning::cached;  // as later calls ask
      if (tuning == Tuning::now) forget_chosen_kernel(key_of(call, options_of(call)));  // chosen before it was tuned
      attention_kernel(call);
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  if (first) throw *first;
}

}  // namespace v1
}  // namespace attile
