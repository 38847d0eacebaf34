// Warps that share a panel of rows (column_warps): each scores a share of the positions and sums a share of the columns
// of V. Maxima and weights pass between them through shared memory.
#pragma once

#include "rowwise.cuh"
#include "sm80/guarded.cuh"

namespace attile {

// Waits for the `threads` threads, whole warps, that come to barrier number `name` (1 to 15).
template <int threads>
__device__ __forceinline__ void bar_sync(int name) {
  static_assert(threads % 32 == 0, "whole warps");
  asm volatile("bar.sync %0, %1;" ::"r"(static_cast<u32>(name)), "n"(threads) : "memory");
}

// The warps of a panel: `warps` neighbours, of which this is number `share`; `scratch` is a shared address of
// warps·64·M bytes of the panel's own.
template <int warps>
struct ColumnGroup {
  int panel, share;
  u32 scratch;
  __device__ __forceinline__ void meet() const { bar_sync<32 * warps>(1 + panel); }
};

// Before the next one the warps must have met once more.
template <int warps, int M, class Join>
__device__ __forceinline__ void group_reduce(RowState<M>& state, const ColumnGroup<warps>& group, Join join) {
  exchange_states<warps>(state, group.scratch, group.share, join, [&] { group.meet(); });
}
template <int warps, int M>
__device__ __forceinline__ void group_max(RowState<M>& state, const ColumnGroup<warps>& group) {
  group_reduce(state, group, [](float a, float b) { return max_(a, b); });
}
template <int warps, int M>
__device__ __forceinline__ void group_sum(RowState<M>& state, const ColumnGroup<warps>& group) {
  group_reduce(state, group, [](float a, float b) { return a + b; });
  group.meet();
}

// Writes this warp's weights, rounded to the tile's type, to the rows first_row.. and the columns first_column.. of the
// panel's tile; once the warps have met, all of them read it.
template <int warps, int M, int N, class Tile>
__device__ __forceinline__ void share_weights(const Fragment<M, N>& p, const Tile& tile, int first_row, int first_column,
                                              const ColumnGroup<warps>& group) {
  using T = typename Tile::T;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const u32 to = tile.at(first_row, lane() / 4, (first_column + 8 * n + lane() % 4 * 2) * static_cast<int>(sizeof(T)));
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const u32 at = to + (16 * m + 8 * h) * Tile::pitch_bytes;
        if constexpr (sizeof(T) == 2) {
          st_shared_b32(at, pack<T>(p.x[m][n][2 * h], p.x[m][n][2 * h + 1]));
        } else {
          st_shared_b32(at, __float_as_uint(p.x[m][n][2 * h]));
          st_shared_b32(at + 4, __float_as_uint(p.x[m][n][2 * h + 1]));
        }
      }
  }
  group.meet();
}

// Addresses of v's columns first_column.. in a step of p·v: block n of so many columns as a step of 32 bytes has.
// first_column is a multiple of 8·Columns, of which it may be known that the permutation repeats there.
template <class Tile, int Columns>
struct ValueSteps {
  static constexpr int width = 32 / static_cast<int>(sizeof(typename Tile::T)), share = 8 * Columns / width;
  static_assert(8 * Columns % width == 0, "whole steps");
  static constexpr bool repeats = Tile::period == 0 || share % Tile::period == 0;
  int first;  // in steps
  static __device__ __forceinline__ ValueSteps from(int first_column) { return {first_column / width}; }
  __device__ __forceinline__ u32 operator()(u32 at, int n) const {
    return repeats ? Tile::step(Tile::step(at, first), n) : Tile::step(at, first + n);
  }
};

// o[m][n] += p·v: the rows first_row + 16m.. of the shared weights p; the 8·Columns columns first_column.. of v.
template <class T, bool exact = true, int M, int Columns, class Weights, int rows, int D>
__device__ __forceinline__ void sum_mma_shared(Fragment<M, Columns>& o, const Weights& p, int first_row,
                                               const SharedTile<T, rows, D>& v, int first_column) {
  using Tile = SharedTile<T, rows, D>;
  constexpr int positions = sizeof(T) == 2 ? 16 : 8;  // of a step
  const auto columns = ValueSteps<Tile, Columns>::from(first_column);
#pragma unroll
  for (int step = 0; step < rows / positions; ++step) {
    u32 a[M][4];
    load_step<M>(a, p, first_row, step);
    if constexpr (sizeof(T) == 2) {
      const u32 at = v.at(step * positions, lane() % 16, lane() / 16 * 16);
#pragma unroll
      for (int n = 0; n < Columns; n += 2) {
        u32 b[4];
        ldmatrix_x4_trans(b, columns(at, n / 2));
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int m = 0; m < M; ++m) mma_m16n8k16<T>(o.x[m][n + i], a[m], b[2 * i], b[2 * i + 1]);
      }
    } else {
      const u32 low = v.at(step * positions, lane() % 4, lane() / 4 * 4), high = v.at(step * positions, lane() % 4 + 4, lane() / 4 * 4);
#pragma unroll
      for (int n = 0; n < Columns; ++n) {
        const u32 b0 = ld_shared_b32(columns(low, n)), b1 = ld_shared_b32(columns(high, n));
#pragma unroll
        for (int m = 0; m < M; ++m) step_mma<T, exact>(o.x[m][n], a[m], b0, b1);
      }
    }
  }
}

// A function of its own with rolled loops, as sum_guarded.
template <class T, bool exact, int M, int Columns, class Weights, int rows, int D>
__device__ __noinline__ void sum_guarded_shared(float (*o)[Columns][4], u32 weights, int first_row, u32 tile, int first_column) {
  constexpr int positions = sizeof(T) == 2 ? 16 : 8;  // of a step
  const SharedTile<T, rows, D> v{tile};
  const Weights p{weights};
#pragma unroll 1
  for (int step = 0; step < rows / positions; ++step) {
    u32 a[M][4];
    load_step<M>(a, p, first_row, step);
#pragma unroll 1
    for (int n = 0; n < Columns; ++n) {
      u32 b[4];
      const int column = first_column + 8 * n;
      if constexpr (sizeof(T) == 2) {
        ldmatrix_x2_trans(b, v.at(step * positions + lane() % 16, column * 2));
      } else {
        b[0] = ld_shared_b32(v.at(step * positions + lane() % 4, (column + lane() / 4) * 4));
        b[1] = ld_shared_b32(v.at(step * positions + lane() % 4 + 4, (column + lane() / 4) * 4));
      }
#pragma unroll
      for (int m = 0; m < M; ++m) step_mma<T, exact>(o[m][n], a[m], finite_part<T>(b[0]), finite_part<T>(b[1]));
    }
  }
#pragma unroll 1
  for (int position = 0; position < rows; ++position)
#pragma unroll 1
    for (int m = 0; m < M; ++m)
#pragma unroll 1
      for (int h = 0; h < 2; ++h) {
        const float w = element<T>(p, first_row + 16 * m + 8 * h + lane() / 4, position);
        if (__float_as_uint(w) == 0x80000000u) continue;
#pragma unroll 1
        for (int n = 0; n < 2 * Columns; ++n) {
          const float x = element<T>(v, position, first_column + n / 2 * 8 + lane() % 4 * 2 + n % 2);
          float& sum = o[m][n / 2][2 * h + n % 2];
          if (!(fabsf(x) < infinity())) sum = fmaf(w, x, sum);
        }
      }
}

// The same as sum_mma_shared, bit for bit where v is finite; positions of weight −0 contribute nothing. Slow.
template <class T, bool exact = true, int M, int Columns, class Weights, int rows, int D>
__device__ __forceinline__ void sum_mma_shared_guarded(Fragment<M, Columns>& o, const Weights& p, int first_row,
                                                       const SharedTile<T, rows, D>& v, int first_column) {
  float memory[M][Columns][4];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < Columns; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) memory[m][n][e] = o.x[m][n][e];
  sum_guarded_shared<T, exact, M, Columns, Weights, rows, D>(memory, p.base, first_row, v.base, first_column);
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < Columns; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) o.x[m][n][e] = memory[m][n][e];
}

}  // namespace attile
