// The most that this machine can do now, measured: multiply-adds, dot products of bf16 pairs, bytes read from memory.
// What a kernel's time is held against. Each uses worker_count() threads through parallel_for.
#pragma once

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

// 10^9 operations a second, a multiply-add counted as two, on the widest vectors kernels may use (ATTILE_CPU
// respected). About `seconds` of work; the best of several bursts. Throws Error(unsupported) without AVX2 and FMA.
ATTILE_API double measure_fma_gflops(double seconds = 0.02);
// The same for AVX512_BF16's dot instruction; 0 where kernels may not use it.
ATTILE_API double measure_bf16_dot_gflops(double seconds = 0.02);
// 10^9 bytes a second read from a buffer of at least four times the last cache. Throws Error(resource).
ATTILE_API double measure_read_gbs();

}  // namespace v1
}  // namespace attile
