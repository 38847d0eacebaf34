// Ready attention in one call: the options that the tensors imply, a kernel from memory, disk or a fresh build, the run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "dsl/library.h"
#include "runtime/chooser.h"
#include "runtime/kernel.h"

namespace attile {
inline namespace v1 {

// One forward call. What is given decides the variant; docs/conventions.md says what each means.
// B sequences, H query heads, H_k kv heads (H a multiple), N_q rows, N_k keys, D head dim, D_v value dim.
struct AttentionCall {
  TensorRef q;   // [B][H][N_q][D]     float32, bfloat16 or float16, any strides with unit last
  TensorRef k;   // [B][H_k][N_k][D]   packed: B = 1 and all sequences one after another along N
  TensorRef v;   // [B][H_k][N_k][D_v]
  TensorRef o;   // [B][H][N_q][D_v], any float type

  std::optional<TensorRef> lse;                        // out: float32 [B][H][N_q], natural logarithm
  std::optional<TensorRef> values, indices;            // out, with top_k: float32 and int32 [B][H][N_q][k]

  std::optional<double> scale;                         // default 1/√D; not negative
  Rule rule = Rule::softmax;
  bool causal = false;                                 // bottom-right aligned
  std::int64_t window_left = -1, window_right = -1;    // keys left and right of the diagonal; −1 = no limit
  double softcap = 0;                                  // 0 = off
  std::optional<TensorRef> alibi_slopes;               // float32 [H], [1][H] or [B][H]
  std::optional<TensorRef> bias;                       // float [B or 1][H or 1][N_q or 1][N_k]
  std::optional<TensorRef> mask;                       // boolean, same shapes, true = keep
  std::optional<TensorRef> sink;                       // float32 [H]
  std::optional<TensorRef> prefix_len;                 // int32 [B]; needs causal
  std::optional<TensorRef> doc_ids;                    // int32 [B][N_k]
  std::optional<TensorRef> kv_lens;                    // int32 [B]
  std::optional<TensorRef> cu_seqlens_q, cu_seqlens_k; // int32 [sequences + 1], both or none
  int top_k = 0;                                       // 0 = off, else 1..128
  bool top_k_renormalise = true;
  double dropout = 0;                                  // probability of dropping, in [0, 1)
  std::uint64_t seed = 0, offset = 0;

  std::optional<Schedule> schedule;                    // default: what tuning found, else the best known
  std::optional<Tuning> tuning;                        // default: of the process, see runtime/chooser.h
  std::optional<Building> building;                    // likewise
  Device device;                                       // where the tensors lie: the CPU, or a GPU
  RunOptions run;                                      // of a GPU: stream and work space
  bool tf32 = false;                                   // on a GPU, float32 products may round to TF32
};

// Runs it. Throws Error; then no output has been written.
ATTILE_API void run_attention(const AttentionCall& call);

// The kernels of these calls, ready before the first of them: built, and tuned where `tuning` is now. Tensors are only read
// where something is tuned. Lengths count by powers of two. Throws the first Error, after all others were tried.
ATTILE_API void warm_up(std::span<const AttentionCall> calls, Tuning tuning = Tuning::cached);

// The parts of run_attention, for reports and reuse: a warm caller keeps the kernel and only calls kernel.run.
ATTILE_API AttentionOptions attention_options(const AttentionCall& call);
ATTILE_API Arguments attention_arguments(const AttentionCall& call);
ATTILE_API Kernel attention_kernel(const AttentionCall& call);

}  // namespace v1
}  // namespace attile
