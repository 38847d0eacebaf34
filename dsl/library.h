// Ready attention: normalisation rules, masks and score modifiers as algorithms of a few lines, freely combined.
// Numeric conventions (bottom-right alignment, window, ALiBi, lse in natural log…) are in docs/conventions.md.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dsl/algorithm.h"

namespace attile {
inline namespace v1 {

enum class Rule : std::uint8_t { softmax, softmax_plus_one, sigmoid, linear };
ATTILE_API std::string_view to_string(Rule rule);
ATTILE_API Rule rule_from_string(std::string_view name);

// What the text of the kernel depends on. Numbers (scale, slopes, lengths, window sizes, seed…) are scalars
// and tensors of the call, named in the comments, with dims in brackets.
struct AttentionOptions {
  Rule rule = Rule::softmax;
  bool causal = false;         // bottom-right aligned
  bool window = false;         // int scalars "window_left", "window_right"; -1 = no limit on that side
  bool softcap = false;        // real scalar "softcap": c·tanh(s/c), c > 0
  bool alibi = false;          // "alibi_slopes" float32 [batch, head]
  bool bias = false;           // "bias" [batch, head, query, key]; any dim but the last may be broadcast (stride 0)
  bool mask = false;           // "mask" boolean [batch, head, query, key], true = keep
  bool sink = false;           // "sink" float32 [head]: a logit that joins the sum at the end
  bool prefix = false;         // "prefix_len" int32 [batch]: keys below it are visible to every query
  bool documents = false;      // "doc_ids" int32 [batch, key]: query and key must be of one document
  bool dropout = false;        // int scalars "seed", "offset", "dropout_threshold"; real "dropout_scale"
  int top_k = 0;               // 0 = off, else 1..128
  bool top_k_renormalise = true;
  bool top_k_outputs = false;  // outputs "values" (float32) and "indices" (int32) [batch, head, query, slot]
  bool lse = false;            // output "lse" float32 [batch, head, query]
  Lengths lengths = Lengths::dense;

  // The user's own parts, applied after the ready ones: score_mod(s) returns a new score; mask_mod() a
  // predicate that is and-ed to the visibility.
  std::function<Expr(Expr s)> score_mod;
  std::function<Expr()> mask_mod;
};

// q [batch, head, query, head_dim], k [batch, kv_head, key, head_dim], v [batch, kv_head, key, value_dim],
// real scalar "scale"; outputs "o" [batch, head, query, value_dim] and what the options ask for.
// Throws Error(argument) for a pair of options that is refused; docs/variants.md lists them with the reason.
ATTILE_API Algorithm attention(const AttentionOptions& options);

// query + length(key) − length(query): the key position that a query sits on.
ATTILE_API Expr query_position();

// Standard attention, which materialises S and P (Dao et al. 2022, Algorithm 0), as three algorithms:
// scores → "s" (0 at hidden keys) and the row statistics "m" and "l"; probabilities reads these → "p"; output "p"·v.
// Softmax without modifiers; causal by choice.
struct StandardAttention { Algorithm scores, probabilities, output; };
ATTILE_API StandardAttention standard_attention(bool causal);

}  // namespace v1
}  // namespace attile
