// Tiles in shared memory and register fragments, and the copies between global memory, tiles and fragments.
#pragma once

#include "sm80/mma.cuh"

namespace attile {

// A row-major tile without gaps. Where a row is an even number of 16-byte units, these are permuted within the row so
// that eight consecutive rows at one column fall in distinct banks: byte b of row r lies at byte b ^ key(r)·16. (Rows
// spaced apart instead would be slower: cp.async wants a line of 128 bytes to be a line of shared memory.)
template <class Element, int rows_, int cols_>
struct SharedTile {
  using T = Element;
  static constexpr bool in_registers = false;
  static constexpr int rows = rows_, cols = cols_;
  static constexpr int units = sizeof(T) == 4 ? (cols + 7) / 8 * 2 : (cols + 7) / 8;
  // The matrix instructions read whole units: columns cols.. up to here must be finite (clear_padding).
  static constexpr int padded_cols = units * 16 / static_cast<int>(sizeof(T));
  static constexpr int pitch_bytes = units * 16;
  static constexpr int bytes = rows * pitch_bytes;
  // After so many steps of 32 bytes the permutation repeats; fewer where the pitch itself spreads the rows.
  static constexpr int period = units % 8 == 0 ? 4 : units % 4 == 0 ? 2 : units % 2 == 0 ? 1 : 0;
  u32 base;  // a multiple of 128

  static __device__ __forceinline__ u32 key(u32 row) {
    if constexpr (period == 0) {
      return 0;
    } else {
      return row / (4 / period) % (2 * period);
    }
  }
  __device__ __forceinline__ u32 at(u32 row, u32 byte) const {
    return base + row * pitch_bytes + (byte ^ key(row) * 16);
  }
  // at() of row + by, where row is a multiple of 8 and the rest depends on the lane alone: kept once for all tiles.
  __device__ __forceinline__ u32 at(u32 row, u32 by, u32 byte) const {
    return base + row * pitch_bytes + (by * pitch_bytes + (byte ^ key(by) * 16));
  }
  // The address `steps` steps after `address`, which is an at() of the first step.
  static __device__ __forceinline__ u32 step(u32 address, int steps) {
    if constexpr (period == 0) {
      return address + steps * 32;
    } else {
      return (address ^ steps % period * 32) + steps / period * period * 32;
    }
  }
  // The address `units` units after an at() of the first unit.
  static __device__ __forceinline__ u32 unit(u32 address, int units) {
    return step(period == 0 ? address + units % 2 * 16 : address ^ units % 2 * 16, units / 2);
  }
};

// One warp's accumulators of 16M rows × 8N columns: x[m][n][e] is row 16m + fragment_row(e), column
// 8n + fragment_column(e).
template <int M, int N>
struct Fragment {
  float x[M][N][4];
};
__device__ __forceinline__ int fragment_row(int e) { return lane() / 4 + e / 2 * 8; }
__device__ __forceinline__ int fragment_column(int e) { return lane() % 4 * 2 + e % 2; }

// A value a row: x[m][h] is row 16m + lane/4 + 8h, the same in the four lanes of a quad or a part of their sum.
template <int M>
struct RowState {
  float x[M][2];
};

// 16M rows × D columns as the left operand of a product.
template <class Element, int M, int D>
struct RowOperand {
  using T = Element;
  static constexpr bool in_registers = true;
  static constexpr int units = SharedTile<T, 1, D>::units;
  u32 x[M][(units + 1) / 2][4];
};

template <int M, int N>
__device__ __forceinline__ void fill(Fragment<M, N>& f, float value) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) f.x[m][n][e] = value;
}
template <int M>
__device__ __forceinline__ void fill(RowState<M>& s, float value) {
#pragma unroll
  for (int m = 0; m < M; ++m) s.x[m][0] = s.x[m][1] = value;
}

// The rows first_row + 16m.. of a tile, two units from 2·step on: the left operand's registers; of the last unit where
// their number is odd, a[m][0] and a[m][1] alone.
template <int M, class Tile>
__device__ __forceinline__ void load_step(u32 (&a)[M][4], const Tile& tile, int first_row, int step) {
  const u32 at = Tile::step(tile.at(first_row, lane() % 16, lane() / 16 * 16), step);
#pragma unroll
  for (int m = 0; m < M; ++m) {
    if (2 * step + 1 < Tile::units) {
      ldmatrix_x4(a[m], at + m * 16 * Tile::pitch_bytes);
    } else {
      ldmatrix_x2(a[m], at + m * 16 * Tile::pitch_bytes);
    }
  }
}

template <class T, int M, int D, int rows>
__device__ __forceinline__ void load_rows(RowOperand<T, M, D>& q, const SharedTile<T, rows, D>& tile, int first_row) {
#pragma unroll
  for (int step = 0; step < (q.units + 1) / 2; ++step) {
    u32 a[M][4];
    load_step<M>(a, tile, first_row, step);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) q.x[m][step][i] = a[m][i];
  }
}

// How `threads` threads share the copy of rows of `units` units: `lanes` neighbours a row, where units are permuted a
// power of two so that a thread meets the same permutation in all its rows. The fewest copies a thread, then the most
// lanes.
__device__ constexpr int copy_lanes(int rows, int units, int threads, bool permuted) {
  int best = 1, fewest = rows * units;
  for (int lanes = permuted ? 4 : 3; lanes <= (permuted ? 8 : units) && lanes <= threads;
       lanes += permuted ? lanes : 1) {
    const int groups = threads / lanes;
    const int copies = (rows + groups - 1) / groups * ((units + lanes - 1) / lanes);
    if (copies <= fewest) best = lanes, fewest = copies;
  }
  return best;
}
template <class Tile, int threads>
struct CopyPlan {
  static constexpr int row_bytes = Tile::cols * static_cast<int>(sizeof(typename Tile::T));
  static constexpr int unit = row_bytes % 16 == 0 ? 16 : row_bytes % 8 == 0 ? 8 : row_bytes % 4 == 0 ? 4 : 0;
  static constexpr int units = unit == 0 ? 1 : row_bytes / unit;
  static constexpr int lanes = copy_lanes(Tile::rows, units, threads, Tile::period != 0), groups = threads / lanes;
};

// Read anew for each copy, so that nothing derived from it takes registers throughout a loop.
__device__ __forceinline__ int copy_thread() {
  int x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}

// Element by element, at once: for rows whose addresses or lengths are no multiple of 4 bytes.
template <int threads, class Tile, class Address>
__device__ __forceinline__ void copy_elements(const Tile& tile, int count, Address row_address) {
  using T = typename Tile::T;
#pragma unroll 1
  for (int i = copy_thread(); i < Tile::rows * Tile::cols; i += threads) {
    const int row = i / Tile::cols, col = i % Tile::cols;
    const u32 to = tile.at(row, col * static_cast<int>(sizeof(T)));
    if constexpr (sizeof(T) == 4) {
      st_shared_b32(to, row < count ? __float_as_uint(row_address(row)[col]) : 0u);
    } else {
      st_shared_b16(to, row < count ? row_address(row)[col].bits : u16{0});
    }
  }
}

// Row addresses with a fixed step; in an aligned copy all rows lie within 31 bits.
template <class T>
struct Rows {
  const T* base;
  i64 pitch;  // in elements
  __device__ __forceinline__ const T* operator()(int row) const { return base + row * pitch; }
};
template <class T>
__device__ __forceinline__ Rows<T> rows_at(const T* base, i64 pitch) {
  return {base, pitch};
}

// The address of row first + r < count, r a constant, or anything where no such row is. Rows step from the thread's
// first row; any other function is called for rows that exist only.
template <class T>
__device__ __forceinline__ const char* row_from(const Rows<T>& rows, int first, int r, int) {
  const i32 pitch = static_cast<i32>(rows.pitch);
  const char* own = reinterpret_cast<const char*>(rows.base + first * pitch);
  return own + static_cast<i64>(r * pitch * static_cast<i32>(sizeof(T)));
}
template <class Address>
__device__ __forceinline__ const char* row_from(const Address& row_address, int first, int r, int count) {
  return reinterpret_cast<const char*>(row_address(max_(min_(first + r, count - 1), 0)));
}

// Starts the copy of rows [0, count) of a tile and of zeros to the rows after them; row_address(row) is the global
// address of a row: Rows, or a function that is defined for row 0 and all below `count`; `aligned`: the addresses are
// multiples of 16, 8 or 4 bytes, the largest that divides a row's length. By the CTA's `threads` threads. Arrives with the next group committed; an unaligned copy is made at once by plain stores.
// Either is seen after the barrier that follows. Without branches, so that it may run under matrix products.
template <int threads, class Tile, class Address>
__device__ __forceinline__ void copy_rows_async(const Tile& tile, int count, Address row_address, bool aligned) {
  using Plan = CopyPlan<Tile, threads>;
  constexpr int unit = Plan::unit, units = Plan::units, lanes = Plan::lanes, groups = Plan::groups;
  if (unit == 0 || !aligned) {
    copy_elements<threads>(tile, count, row_address);
    return;
  }
  if constexpr (unit != 0) {
    const int thread = copy_thread(), first = thread / lanes, part = thread % lanes;
#pragma unroll
    for (int r = 0; r < Tile::rows; r += groups) {
      const bool here =
          (threads % lanes == 0 || first < groups) && (r + groups <= Tile::rows || first + r < Tile::rows);
      const bool valid = first + r < count;
      const char* from = row_from(row_address, first, r, count) + part * unit;
      const u32 to = tile.at(first + r, part * unit);
      // Whole periods of the permutation further on, a unit keeps its place.
      constexpr bool regular = Tile::period == 0 || lanes * unit % (Tile::period * 32) == 0;
#pragma unroll
      for (int u = 0; u < units; u += lanes)
        if (here && (u + lanes <= units || part + u < units))
          cp_async<unit>(regular ? to + u * unit : tile.at(first + r, (part + u) * unit), from + u * unit, valid);
    }
  }
}

// Zeroes the columns past a row's end that the matrix instructions read. Once a tile: copies leave them alone.
template <int threads, class Tile>
__device__ __forceinline__ void clear_padding(const Tile& tile) {
  using T = typename Tile::T;
  constexpr int width = Tile::padded_cols - Tile::cols;
  if constexpr (width > 0) {
#pragma unroll 1
    for (int i = copy_thread(); i < Tile::rows * width; i += threads) {
      const u32 to = tile.at(i / width, (Tile::cols + i % width) * static_cast<int>(sizeof(T)));
      if constexpr (sizeof(T) == 4) {
        st_shared_b32(to, 0);
      } else {
        st_shared_b16(to, 0);
      }
    }
  }
}

// Writes the rows first_row + 16m.. of a fragment that are below `count`: row r to row_address(r), the tile's `cols`
// columns. The fragment is rounded to the tile's 16-bit type and passes through the tile's own rows first_row.., which
// no other warp may touch meanwhile; `aligned` as in copy_rows_async.
template <int M, int N, class Tile, class Address>
__device__ __forceinline__ void store_rows(const Fragment<M, N>& f, const Tile& tile, int first_row, int count,
                                           Address row_address, bool aligned) {
  using T = typename Tile::T;
  using Plan = CopyPlan<Tile, 32>;
  static_assert(sizeof(T) == 2 && 8 * N >= Tile::cols && 8 * N <= Tile::padded_cols, "stage: 16 bit, as wide as f");
  const u32 first = tile.at(first_row, lane() / 4, lane() % 4 * 4);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const u32 to = Tile::unit(first, n);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        st_shared_b32(to + (16 * m + 8 * h) * Tile::pitch_bytes, pack<T>(f.x[m][n][2 * h], f.x[m][n][2 * h + 1]));
  }
  __syncwarp();
  const int valid = count - first_row < 16 * M ? count - first_row : 16 * M;
  if (Plan::unit == 16 && aligned) {
    constexpr int units = Plan::units;
#pragma unroll 4
    for (int i = lane(); i < 16 * M * units; i += 32) {
      const int row = i / units, unit = i % units;
      if (row < valid)
        *reinterpret_cast<Words4*>(reinterpret_cast<char*>(row_address(first_row + row)) + unit * 16) =
            ld_shared_v4(tile.at(first_row + row, unit * 16));
    }
  } else {
#pragma unroll 1
    for (int i = lane(); i < valid * Tile::cols; i += 32) {
      const int row = i / Tile::cols, col = i % Tile::cols;
      row_address(first_row + row)[col].bits = ld_shared_b16(tile.at(first_row + row, col * 2));
    }
  }
}

// The same from registers, for float32 outputs and partial results; `aligned`: rows start at a multiple of 8 bytes.
template <int cols, int M, int N, class Address>
__device__ __forceinline__ void store_rows(const Fragment<M, N>& f, int first_row, int count, Address row_address,
                                           bool aligned) {
  static_assert(8 * N >= cols, "a fragment as wide as the rows");
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + 16 * m + fragment_row(2 * h);
      if (row >= count) continue;
      float* to = row_address(row) + lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float x = f.x[m][n][2 * h], y = f.x[m][n][2 * h + 1];
        if (cols % 2 == 0 && aligned && (8 * n + 8 <= cols || 8 * n + fragment_column(0) < cols)) {
          *reinterpret_cast<float2*>(to + 8 * n) = float2{x, y};
        } else {
          if (8 * n + fragment_column(0) < cols) to[8 * n] = x;
          if (8 * n + fragment_column(1) < cols) to[8 * n + 1] = y;
        }
      }
    }
}

}  // namespace attile
