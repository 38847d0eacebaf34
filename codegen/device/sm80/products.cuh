// The two products of attention by mma.sync: scores q·kᵀ and sums of weights p·v. Operands of 16 bits are multiplied
// exactly and added in float32; float32 operands by TF32: rounded to 11 bits, or for `exact` split in two parts with
// three products, which leaves a relative error of about 2^-22.
#pragma once

#include "tile.cuh"

namespace attile {

// d += a·b over one step of columns, of float32 operands in parts of 11 bits: value = high + low up to 2^-23, of which
// the product of the low parts is left out. The matrix unit reads the upper 19 bits of a register. Half a unit in the
// last of them is added where a part is to be rounded: to a in its high part, so that its low part has either sign and
// what is left out has no bias; to b in its low part, which also makes it −0 where b is an infinity or NaN and the
// difference the NaN 0x7FFFFFFF. Infinities and NaN, and what half a unit would make one, meet in the product of the high
// parts alone, as IEEE says.
__device__ __forceinline__ void step_mma_split(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  constexpr u32 upper = 0xFFFFE000u, half = 0x1000u;
  u32 a_high[4], a_low[4], a_finite[4], b_high[2], b_low[2], b_finite[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool rounds = (a[i] & 0x7FFFFFFFu) < 0x7F7FF000u;
    a_high[i] = rounds ? (a[i] + half) & upper : a[i];
    a_finite[i] = rounds ? a_high[i] : 0;
    a_low[i] = rounds ? __float_as_uint(__uint_as_float(a[i]) - __uint_as_float(a_high[i])) : 0;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    b_high[i] = b[i] & upper;
    b_low[i] = __float_as_uint(__uint_as_float(b[i]) - __uint_as_float(b_high[i])) + half;
    b_finite[i] = fabsf(__uint_as_float(b[i])) < infinity() ? b_high[i] : 0;
  }
  // Added outside: the matrix unit truncates, which over many steps would pull every sum towards zero.
  float part[4] = {0, 0, 0, 0};
  mma_m16n8k8_tf32(part, a_low, b_finite[0], b_finite[1]);
  mma_m16n8k8_tf32(part, a_finite, b_low[0], b_low[1]);
  mma_m16n8k8_tf32(part, a_high, b_high[0], b_high[1]);
#pragma unroll
  for (int e = 0; e < 4; ++e) d[e] += part[e];
}

// d += a·b over one step of 32 bytes of columns.
template <class T, bool exact>
__device__ __forceinline__ void step_mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (sizeof(T) == 2) {
    mma_m16n8k16<T>(d, a, b0, b1);
  } else if constexpr (exact) {
    step_mma_split(d, a, {b0, b1});
  } else {
    u32 rounded[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) rounded[i] = cvt_rna_tf32(__uint_as_float(a[i]));
    mma_m16n8k8_tf32(d, rounded, cvt_rna_tf32(__uint_as_float(b0)), cvt_rna_tf32(__uint_as_float(b1)));
  }
}

template <int M, class T, int D>
__device__ __forceinline__ void load_step(u32 (&a)[M][4], const RowOperand<T, M, D>& q, int, int step) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[m][i] = q.x[m][step][i];
}

// s[m][n] += q·kᵀ: rows first_row + 16m.. of q (a tile, or a RowOperand, which is all rows), rows first_position + 8n..
// of the tile k. Padding columns of both must be zero.
template <class T, bool exact = true, int M, int N, class Q, int rows, int D>
__device__ __forceinline__ void score_mma(Fragment<M, N>& s, const Q& q, int first_row, const SharedTile<T, rows, D>& k,
                                          int first_position) {
  using Tile = SharedTile<T, rows, D>;
  static_assert(Q::units == Tile::units, "q and k have the same columns");
  static_assert(N % 2 == 0, "positions in sixteens");
  const u32 first = k.at(first_position, lane() % 8 + lane() / 16 * 8, lane() / 8 % 2 * 16);
  // A loop over whole periods of the permutation, unless q is in registers: quicker to compile, and ptxas, which
  // fetches ahead until it runs out of registers, spills less.
  constexpr int steps = Tile::units / 2, unrolled = Q::in_registers || steps % 4 != 0 ? steps : 4;
#pragma unroll unrolled
  for (int step = 0; step < steps; ++step) {
    u32 a[M][4];
    load_step<M>(a, q, first_row, step);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      u32 b[4];
      ldmatrix_x4(b, Tile::step(first, step) + n * 8 * Tile::pitch_bytes);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int m = 0; m < M; ++m) step_mma<T, exact>(s.x[m][n + i], a[m], b[2 * i], b[2 * i + 1]);
    }
  }
  // A last single unit, half a step deep: one block of eight positions a register.
  if constexpr (Tile::units % 2 == 1) {
    u32 a[M][4];
    load_step<M>(a, q, first_row, Tile::units / 2);
    const u32 last = k.at(first_position + lane() % 16, (Tile::units - 1) * 16);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      u32 b[4];
      ldmatrix_x2(b, last + n * 8 * Tile::pitch_bytes);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int m = 0; m < M; ++m) mma_m16n8k8<T>(s.x[m][n + i], a[m][0], a[m][1], b[i]);
    }
  }
}

// Weights rounded to 16 bits as the left operand of sum_mma: the accumulators of one product are laid out as the left
// operand of the next.
template <class T, int M, int N>
struct Weights {
  static_assert(N % 2 == 0, "16-bit weights are multiplied 16 positions a step");
  u32 x[M][N / 2][4];
};
template <class T, int M, int N>
__device__ __forceinline__ Weights<T, M, N> pack_weights(const Fragment<M, N>& p) {
  Weights<T, M, N> w;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) w.x[m][n / 2][n % 2 * 2 + h] = pack<T>(p.x[m][n][2 * h], p.x[m][n][2 * h + 1]);
  return w;
}

// o[m][n] += p·v: weights p of 8N positions; the 8·Columns columns of the rows first_position.. of the tile v.
template <class T, int M, int N, int Columns, int rows, int D>
__device__ __forceinline__ void sum_mma(Fragment<M, Columns>& o, const Weights<T, M, N>& p,
                                        const SharedTile<T, rows, D>& v, int first_position) {
  using Tile = SharedTile<T, rows, D>;
  static_assert(8 * Columns <= Tile::padded_cols, "o is no wider than v");
  const u32 first = v.at(first_position, lane() % 16, lane() / 16 * 16);
#pragma unroll
  for (int step = 0; step < N / 2; ++step) {
#pragma unroll
    for (int n = 0; n < Columns; n += 2) {
      const u32 at = Tile::step(first, n / 2) + step * 16 * Tile::pitch_bytes;
      u32 b[4];
      if (n + 1 < Columns) {
        ldmatrix_x4_trans(b, at);
      } else {
        ldmatrix_x2_trans(b, at);
      }
#pragma unroll
      for (int m = 0; m < M; ++m) mma_m16n8k16<T>(o.x[m][n], p.x[m][step], b[0], b[1]);
      if (n + 1 < Columns) {
#pragma unroll
        for (int m = 0; m < M; ++m) mma_m16n8k16<T>(o.x[m][n + 1], p.x[m][step], b[2], b[3]);
      }
    }
  }
}

// The same with weights in float32, which are rounded to T.
template <class T, bool exact = true, int M, int N, int Columns, int rows, int D>
__device__ __forceinline__ void sum_mma(Fragment<M, Columns>& o, const Fragment<M, N>& p,
                                        const SharedTile<T, rows, D>& v, int first_position) {
  if constexpr (sizeof(T) == 2) {
    sum_mma(o, pack_weights<T>(p), v, first_position);
  } else {
    using Tile = SharedTile<T, rows, D>;
    static_assert(8 * Columns <= Tile::padded_cols, "o is no wider than v");
    // Positions are permuted alike in p and v (t ↔ 2t, t+4 ↔ 2t+1), so that a lane's weights are its own operand.
    const u32 even = v.at(first_position + lane() % 4 * 2, lane() / 4 * 4);
    const u32 odd = v.at(first_position + lane() % 4 * 2 + 1, lane() / 4 * 4);
#pragma unroll
    for (int step = 0; step < N; ++step) {
      u32 a[M][4];
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = __float_as_uint(p.x[m][step][i % 2 * 2 + i / 2]);
#pragma unroll
      for (int n = 0; n < Columns; ++n) {
        const u32 b0 = ld_shared_b32(Tile::step(even, n) + step * 8 * Tile::pitch_bytes);
        const u32 b1 = ld_shared_b32(Tile::step(odd, n) + step * 8 * Tile::pitch_bytes);
#pragma unroll
        for (int m = 0; m < M; ++m) step_mma<T, exact>(o.x[m][n], a[m], b0, b1);
      }
    }
  }
}

}  // namespace attile
