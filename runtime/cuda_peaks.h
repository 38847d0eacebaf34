// The most that a GPU can do now, measured: products on the matrix unit, multiply-adds beside it, bytes read from its
// memory. What a kernel's time is held against. The twin of runtime/measure.h.
#pragma once

#include "dsl/dtype.h"
#include "dsl/export.h"

namespace attile {
inline namespace v1 {

// 10^9 operations a second of mma.sync with float32 sums, a multiply-add counted as two: m16n8k16 of bfloat16 or
// float16, m16n8k8 of TF32 for float32. Some milliseconds; the best of several bursts. (wgmma and tcgen05 of newer
// chips go beyond it.) Throws Error(environment) without the device or NVRTC.
ATTILE_API double measure_cuda_mma_gflops(int device, DType operands);
// The same of float32 multiply-adds.
ATTILE_API double measure_cuda_fma_gflops(int device);
// 10^9 bytes a second read from a buffer of at least four times the L2 cache. Throws Error(resource).
ATTILE_API double measure_cuda_read_gbs(int device);

}  // namespace v1
}  // namespace attile
