#include "runtime/attention.h"

#include <cmath>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "runtime/attention_check.h"
#include "runtime/few_rows.h"

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

// All of a call that decides its kernel: what attention_options and problem_of read. Types that the checks fix (int32,
// boolean, lse…) are not in it.
struct Key {
  std::int64_t head_dim, value_dim, group;
  std::int32_t top_k;
  std::uint32_t flags;
  std::array<DType, 5> dtypes;  // q k v o bias
  Rule rule;
  Lengths lengths;
  std::optional<Schedule> schedule;
  Device device;
  bool operator==(const Key&) const = default;
};

Key key_of(const AttentionCall& call, const AttentionOptions& o) {
  Key key{};
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
  return key;
}

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t dtypes = 0;
    std::memcpy(&dtypes, key.dtypes.data(), sizeof key.dtypes);
    std::uint64_t h = 0;
    for (const std::uint64_t x : {static_cast<std::uint64_t>(key.head_dim), static_cast<std::uint64_t>(key.value_dim),
                                  static_cast<std::uint64_t>(key.group), static_cast<std::uint64_t>(key.top_k),
                                  static_cast<std::uint64_t>(key.flags), dtypes, static_cast<std::uint64_t>(key.rule),
                                  static_cast<std::uint64_t>(key.lengths)})
      h = (h ^ x) * 0x9E3779B97F4A7C15u ^ (h >> 29);
    return h;  // schedules of one problem are few
  }
};

struct Memory {
  std::shared_mutex mutex;
  std::unordered_map<Key, Kernel, KeyHash> kernels;
};
Memory& memory() {
  static auto* m = new Memory();  // a call may still run while the process exits
  return *m;
}

Kernel kernel_of(const AttentionCall& call, const AttentionOptions& options) {
  const Key key = key_of(call, options);
  Memory& m = memory();
  {
    const std::shared_lock lock(m.mutex);
    if (const auto it = m.kernels.find(key); it != m.kernels.end()) return it->second;
  }
  const Algorithm a = attention(options);
  Problem problem = problem_of(a, arguments_of(call));
  problem.tf32 = call.tf32;
  const Kernel kernel = Kernel::get(a, problem, call.schedule, call.device);
  const std::unique_lock lock(m.mutex);
  return m.kernels.try_emplace(key, kernel).first->second;
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
  return kernel_of(call, options_of(call));
}

void run_attention(const AttentionCall& call) {
  check_attention(call);
  kernel_of(call, options_of(call)).run(arguments_of(call), call.run);
}

}  // namespace v1
}  // namespace attile
