// Whether an attention call makes sense, in the words of its fields, before anything is built or written.
#pragma once

#include "runtime/attention.h"

namespace attile {
inline namespace v1 {

// Throws Error(argument). What it lets through has a kernel, but for the pairs of options that attention() refuses.
void check_attention(const AttentionCall& call);
// The part of it that needs no tensors.
void check_attention_numbers(const AttentionCall& call);

}  // namespace v1
}  // namespace attile
