// Sums over positions of which some are hidden from some rows, where v may hold infinities or NaN: 0 · inf is NaN, so
// hidden positions must not be multiplied. Rare: kernels sum without this first and start again if a sum is NaN.
#pragma once

#include "sm80/products.cuh"

namespace attile {

template <int M, int N>
__device__ __forceinline__ bool has_nan(const Fragment<M, N>& f) {
  bool found = false;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) found |= f.x[m][n][e] != f.x[m][n][e];
  return found;
}

// The elements of type T in x with infinities and NaN set to 0.
template <class T>
__device__ __forceinline__ u32 finite_part(u32 x) {
  if constexpr (sizeof(T) == 4) {
    return (x & 0x7F800000u) == 0x7F800000u ? 0u : x;
  } else {
    // Adding one to an exponent of all ones carries into the cleared sign bit.
    const u32 carry = ((x & 0x7FFF7FFFu) + FromFloat<T>::exponent_one * 0x00010001u) & 0x80008000u;
    return x & ~((carry >> 15) * 0xFFFFu);
  }
}

// Accumulators and weights of a thread in memory, where a loop that is not unrolled can index them.
template <int M, int N, int Columns>
struct InMemory {
  float o[M][Columns][4], p[M][N][4];
};

// The left operand of one step of p·v.
template <class T, int N>
__device__ __forceinline__ void step_operand(u32 (&a)[4], const float (&p)[N][4], int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 2) {
      const float(&of)[4] = p[2 * step + i / 2];
      a[i] = pack<T>(of[i % 2 * 2], of[i % 2 * 2 + 1]);
    } else {
      a[i] = __float_as_uint(p[step][i % 2 * 2 + i / 2]);
    }
  }
}

template <class T, class Tile>
__device__ __forceinline__ float element(const Tile& v, int row, int column) {
  const u32 at = v.at(row, column / 2 * 2 * static_cast<int>(sizeof(T)));
  if constexpr (sizeof(T) == 2) {
    return to_float(T{ld_shared_b16(at + column % 2 * 2)});
  } else {
    return __uint_as_float(ld_shared_b32(at + column % 2 * 4));
  }
}

// A function of its own with rolled loops: it is compiled once and costs the kernel around it no registers.
template <class T, bool exact, int M, int N, int Columns, int rows, int D>
__device__ __noinline__ void sum_guarded(InMemory<M, N, Columns>* in, u32 tile, int first_position) {
  constexpr int positions = sizeof(T) == 2 ? 16 : 8;  // of a step
  const SharedTile<T, rows, D> v{tile};
#pragma unroll 1
  for (int step = 0; step < 8 * N / positions; ++step) {
    const int first = first_position + step * positions;
#pragma unroll 1
    for (int n = 0; n < Columns; ++n) {
      u32 b[4];
      if constexpr (sizeof(T) == 2) {
        ldmatrix_x2_trans(b, v.at(first + lane() % 16, n * 16));
      } else {
        b[0] = ld_shared_b32(v.at(first + lane() % 4 * 2, n * 32 + lane() / 4 * 4));
        b[1] = ld_shared_b32(v.at(first + lane() % 4 * 2 + 1, n * 32 + lane() / 4 * 4));
      }
#pragma unroll
      for (int m = 0; m < M; ++m) {
        u32 a[4];
        step_operand<T>(a, in->p[m], step);
        step_mma<T, exact>(in->o[m][n], a, finite_part<T>(b[0]), finite_part<T>(b[1]));
      }
    }
  }
#pragma unroll 1
  for (int position = 0; position < 8 * N; ++position)
#pragma unroll 1
    for (int m = 0; m < M; ++m)
#pragma unroll 1
      for (int h = 0; h < 2; ++h) {
        const float mine = in->p[m][position / 8][2 * h + position % 2];
        const float w = __shfl_sync(0xFFFFFFFFu, mine, lane() / 4 * 4 + position / 2 % 4);
        if (__float_as_uint(w) == 0x80000000u) continue;
#pragma unroll 1
        for (int n = 0; n < 2 * Columns; ++n) {
          const float x = element<T>(v, first_position + position, n / 2 * 8 + lane() % 4 * 2 + n % 2);
          float& o = in->o[m][n / 2][2 * h + n % 2];
          if (!(fabsf(x) < infinity())) o = fmaf(w, x, o);
        }
      }
}

// o += p·v as sum_mma, bit for bit where v is finite. A position of weight −0 is hidden and contributes nothing, whatever
// v holds there; infinities and NaN at others are added one by one. Slow.
template <class T, bool exact = true, int M, int N, int Columns, int rows, int D>
__device__ __forceinline__ void sum_mma_guarded(Fragment<M, Columns>& o, const Fragment<M, N>& p,
                                                const SharedTile<T, rows, D>& v, int first_position) {
  InMemory<M, N, Columns> memory;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int n = 0; n < Columns; ++n) memory.o[m][n][e] = o.x[m][n][e];
#pragma unroll
      for (int n = 0; n < N; ++n) memory.p[m][n][e] = p.x[m][n][e];
    }
  sum_guarded<T, exact, M, N, Columns, rows, D>(&memory, v.base, first_position);
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < Columns; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) o.x[m][n][e] = memory.o[m][n][e];
}

}  // namespace attile
