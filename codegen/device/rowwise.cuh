// Row reductions of fragments over a quad's four lanes, rescaling, and the joins of states over the warps of a CTA.
// Sums run in a fixed order: equal inputs give equal bits in every warp.
#pragma once

#include "tile.cuh"

namespace attile {

// state = max(state, each row's greatest element), the same in the quad's four lanes.
template <int M, int N>
__device__ __forceinline__ void row_max(RowState<M>& state, const Fragment<M, N>& f) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float y = max_(f.x[m][0][2 * h], f.x[m][0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < N; ++n) y = max_(y, max_(f.x[m][n][2 * h], f.x[m][n][2 * h + 1]));
      y = max_(y, __shfl_xor_sync(0xFFFFFFFFu, y, 1));
      y = max_(y, __shfl_xor_sync(0xFFFFFFFFu, y, 2));
      state.x[m][h] = max_(state.x[m][h], y);
    }
}

// state += this lane's part of each row's sum; quad_sum joins the parts once at the end.
template <int M, int N>
__device__ __forceinline__ void row_sum(RowState<M>& state, const Fragment<M, N>& f) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        state.x[m][h] += f.x[m][n][2 * h];
        state.x[m][h] += f.x[m][n][2 * h + 1];
      }
}

// p = exp2((s − reference) · factor), factor > 0: one fused operation an element, whose rounding is that of the row's
// reference · factor and so the same for all its elements, and too small to count up to a distance of 4096. In rows beyond
// that the difference is taken first. A row's bits do not depend on the other rows.
template <int M, int N>
__device__ __forceinline__ void exp2_distance(Fragment<M, N>& p, const Fragment<M, N>& s, const RowState<M>& reference, float factor) {
  RowState<M> offset;
  bool far = false;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      offset.x[m][h] = reference.x[m][h] * factor;
      far |= !(fabsf(offset.x[m][h]) <= 4096.0f);
    }
  p = s;
  if (__any_sync(0xFFFFFFFFu, far)) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (fabsf(offset.x[m][h]) <= 4096.0f) continue;
        offset.x[m][h] = 0.0f;
#pragma unroll
        for (int n = 0; n < N; ++n) p.x[m][n][2 * h] -= reference.x[m][h], p.x[m][n][2 * h + 1] -= reference.x[m][h];
      }
  }
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) p.x[m][n][e] = exp2f_(fmaf(p.x[m][n][e], factor, -offset.x[m][e / 2]));
}

template <int M>
__device__ __forceinline__ void quad_sum(RowState<M>& state) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      state.x[m][h] += __shfl_xor_sync(0xFFFFFFFFu, state.x[m][h], 1);
      state.x[m][h] += __shfl_xor_sync(0xFFFFFFFFu, state.x[m][h], 2);
    }
}

template <int M, int N>
__device__ __forceinline__ void rescale(Fragment<M, N>& f, const RowState<M>& factor) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) f.x[m][n][e] *= factor.x[m][e / 2];
}
template <int M>
__device__ __forceinline__ void rescale(RowState<M>& state, const RowState<M>& factor) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) state.x[m][h] *= factor.x[m][h];
}

// Whether some row of the warp has a factor other than 1 (NaN counts): else the rescale may be left out.
template <int M>
__device__ __forceinline__ bool any_differs_from_one(const RowState<M>& factor) {
  bool differs = false;
#pragma unroll
  for (int m = 0; m < M; ++m) differs = differs || factor.x[m][0] != 1.0f || factor.x[m][1] != 1.0f;
  return __any_sync(0xFFFFFFFFu, differs);
}

// Joins the states of `warps` warps that have the same rows, this one number `own` of them, in the order of their numbers;
// each receives the result. `meet` waits for all of them; `scratch` is a shared address of warps·64·M bytes, free for use.
// The quad's lanes hold equal values.
template <int warps, int M, class Join, class Meet>
__device__ __forceinline__ void exchange_states(RowState<M>& state, u32 scratch, int own, Join join, Meet meet) {
  const u32 mine = scratch + lane() / 4 * 4;
  if (lane() % 4 == 0) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) st_shared_b32(mine + (own * 2 * M + 2 * m + h) * 32, __float_as_uint(state.x[m][h]));
  }
  meet();
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float y = __uint_as_float(ld_shared_b32(mine + (2 * m + h) * 32));
#pragma unroll
      for (int w = 1; w < warps; ++w) y = join(y, __uint_as_float(ld_shared_b32(mine + (w * 2 * M + 2 * m + h) * 32)));
      state.x[m][h] = y;
    }
}

// The join over all warps of the CTA, each of which holds all rows. `scratch` is a shared address of warps·64·M bytes for
// a state, warps·512·M·N for a fragment (a multiple of 16), free for use once all warps have come here.
template <int warps, int M, class Join>
__device__ __forceinline__ void all_reduce(RowState<M>& state, u32 scratch, Join join) {
  const int own = warp();
  __syncthreads();
  exchange_states<warps>(state, scratch, own, join, [] { __syncthreads(); });
}
template <int warps, int M>
__device__ __forceinline__ void all_reduce_max(RowState<M>& state, u32 scratch) {
  all_reduce<warps>(state, scratch, [](float a, float b) { return max_(a, b); });
}
template <int warps, int M>
__device__ __forceinline__ void all_reduce_sum(RowState<M>& state, u32 scratch) {
  all_reduce<warps>(state, scratch, [](float a, float b) { return a + b; });
}
template <int warps, int M, int N>
__device__ __forceinline__ void all_reduce_sum(Fragment<M, N>& f, u32 scratch) {
  const int own = warp();
  __syncthreads();
  const u32 mine = scratch + lane() * 16;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float* x = f.x[m][n];
      st_shared_v4(mine + ((own * M + m) * N + n) * 512,
                   {{__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3])}});
    }
  __syncthreads();
  fill(f, 0.0f);
  // One warp's part after another: reading all at once would need the registers of all.
#pragma unroll 1
  for (int w = 0; w < warps; ++w)
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const Words4 part = ld_shared_v4(mine + ((w * M + m) * N + n) * 512);
#pragma unroll
        for (int e = 0; e < 4; ++e) f.x[m][n][e] += __uint_as_float(part.x[e]);
      }
}

}  // namespace attile
