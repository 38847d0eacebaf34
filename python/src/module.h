// What the files of the extension module give each other.
#pragma once

#include <nanobind/nanobind.h>

namespace attile::python {

namespace nb = nanobind;

// attention()'s arguments as Python passes them, in this order.
struct AttentionArguments {
  nb::handle q, k, v, causal, window, scale, softcap, alibi_slopes, bias, mask, sink, rule, dropout, seed, offset,
      cu_seqlens_q, cu_seqlens_k, kv_lens, prefix_len, doc_ids, top_k, top_k_renormalise, top_k_outputs, return_lse,
      layout, out, schedule, tf32, tuning, building, mods, captured;
};
nb::object attention(const AttentionArguments& arguments);
// The kernel of such a call, built and, where `tuning` is "now", tuned; nothing is computed.
void warm_up(const AttentionArguments& arguments);

void bind_errors(nb::module_& m);
void bind_expressions(nb::module_& m);
void bind_algorithms(nb::module_& m);
void bind_reach(nb::module_& m);

}  // namespace attile::python
