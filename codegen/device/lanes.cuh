// A row in the lanes of a warp: column c is register c / 32 of lane c % 32. Every algorithm can be computed so, one warp
// for each row, without matrix instructions.
#pragma once

#include "base.cuh"

namespace attile {

template <int n>
__device__ __forceinline__ float warp_max(const float (&x)[n]) {
  float y = x[0];
#pragma unroll
  for (int i = 1; i < n; ++i) y = max_(y, x[i]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) y = max_(y, __shfl_xor_sync(0xFFFFFFFFu, y, step));
  return y;
}
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
template <int n>
__device__ __forceinline__ float warp_sum(const float (&x)[n]) {
  float y = x[0];
#pragma unroll
  for (int i = 1; i < n; ++i) y += x[i];
  return warp_sum(y);
}

// Σ a·b over D columns; four sums beside each other, for speed and accuracy.
template <int D, class A, class B>
__device__ __forceinline__ float dot(const A* a, const B* b) {
  float sum[4] = {0, 0, 0, 0};
#pragma unroll 2
  for (int c = 0; c + 4 <= D; c += 4)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = fmaf(to_float(a[c + i]), to_float(b[c + i]), sum[i]);
#pragma unroll
  for (int c = D / 4 * 4; c < D; ++c) sum[c % 4] = fmaf(to_float(a[c]), to_float(b[c]), sum[c % 4]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Does x stand before y in a selection? The larger does, and NaN before any number.
__device__ __forceinline__ bool ranks_before(float x, float y) { return x > y || (x != x && y == y); }

// Keeps the k largest of (values, x) with their positions: slot s in register s / 32 of lane s % 32, largest first, ties
// to the lower position. x[i] is position first + 32 i + lane; −inf is never taken.
template <int k, int slots, int n>
__device__ __forceinline__ void insert(float (&values)[slots], i32 (&indices)[slots], const float (&x)[n], i32 first) {
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const float mine = x[i];
    u32 left = 0xFFFFFFFFu;  // positions of this register that are still to be looked at
    while (true) {
      const float last = __shfl_sync(0xFFFFFFFFu, values[(k - 1) / 32], (k - 1) % 32);
      left &= __ballot_sync(0xFFFFFFFFu, ranks_before(mine, last));
      if (left == 0) break;
      const int from = __ffs(left) - 1;
      left &= left - 1;
      const float value = __shfl_sync(0xFFFFFFFFu, mine, from);
      int rank = 0;
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        const bool before = 32 * s + lane() < k && !ranks_before(value, values[s]);
        rank += __popc(__ballot_sync(0xFFFFFFFFu, before));
      }
#pragma unroll
      for (int s = slots - 1; s >= 0; --s) {
        float up = __shfl_up_sync(0xFFFFFFFFu, values[s], 1);
        i32 up_index = __shfl_up_sync(0xFFFFFFFFu, indices[s], 1);
        if (s > 0) {
          const float carried = __shfl_sync(0xFFFFFFFFu, values[s > 0 ? s - 1 : 0], 31);
          const i32 carried_index = __shfl_sync(0xFFFFFFFFu, indices[s > 0 ? s - 1 : 0], 31);
          if (lane() == 0) up = carried, up_index = carried_index;
        }
        const int slot = 32 * s + lane();
        if (slot > rank) values[s] = up, indices[s] = up_index;
        if (slot == rank) values[s] = value, indices[s] = first + 32 * i + from;
      }
    }
  }
}

}  // namespace attile
