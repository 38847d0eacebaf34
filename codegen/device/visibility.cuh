// Which tiles of the stream a task visits, and the extremes of a tensor that decide it.
#pragma once

#include "base.cuh"

namespace attile {

// The tiles in [first, end) of which some position may be seen, in order: 32 are asked about at once, one a lane. An
// answer is 0 for none, 1 for some, 3 for all positions.
struct TileWalk {
  i32 first, end;
  u32 found = 0, whole = 0;
  bool all = false;  // are all positions of the last tile seen?

  // The next one, or `end` after the last.
  template <class Seen>
  __device__ __forceinline__ i32 next(const Seen& seen) {
    while (found == 0) {
      if (first >= end) return end;
      const u32 answer = first + lane() < end ? seen(first + lane()) : 0;
      found = __ballot_sync(0xFFFFFFFFu, answer != 0);
      whole = __ballot_sync(0xFFFFFFFFu, answer == 3);
      first += 32;
    }
    const i32 at = __ffs(found) - 1;
    all = whole >> at & 1;
    found &= found - 1;
    return first - 32 + at;
  }
};

// The same for answers that take a look at memory: each thread of the block asks about one tile, and all warps learn all
// answers. All threads call it together. Before the loop, where registers are free, looks are many at a time.
template <int threads>
struct BlockWalk {
  static constexpr int words = threads / 32;
  i32 first, end;
  i32 word = words;  // of the tiles asked about, the next 32
  u32 found = 0, whole = 0, side = 0;
  bool all = false;

  template <class Seen>
  __device__ __forceinline__ void start(const Seen& seen) {
    if (first < end) ask(seen, Yes{});
  }
  template <class Seen>
  __device__ __forceinline__ i32 next(const Seen& seen) {
    while (found == 0) {
      if (word == words) {
        if (first >= end) return end;
        ask(seen, No{});
      }
      found = answers()[side * 2 * words + word], whole = answers()[(side * 2 + 1) * words + word];
      ++word;
    }
    const i32 at = __ffs(found) - 1;
    all = whole >> at & 1;
    found &= found - 1;
    return first - threads + 32 * (word - 1) + at;
  }

 private:
  // Two sides: a warp may still read one while another writes.
  __device__ __forceinline__ static u32* answers() {
    __shared__ u32 words_of_sides[4 * words];
    return words_of_sides;
  }
  template <class Seen, class Early>
  __device__ __forceinline__ void ask(const Seen& seen, Early early) {
    const i32 tile = first + static_cast<i32>(threadIdx.x);
    const u32 answer = tile < end ? seen(tile, early) : 0;
    const u32 some = __ballot_sync(0xFFFFFFFFu, answer != 0), every = __ballot_sync(0xFFFFFFFFu, answer == 3);
    const int own = warp();  // a shuffle of all lanes
    side ^= 1;
    if (lane() == 0) answers()[side * 2 * words + own] = some, answers()[(side * 2 + 1) * words + own] = every;
    __syncthreads();
    first += threads;
    word = 0;
  }
};

// Leaves out the tiles of [first, end) before the first and after the last that may be seen.
template <class Seen>
__device__ __forceinline__ void narrow(i32& first, i32& end, const Seen& seen) {
#pragma unroll 1
  while (first < end) {
    const u32 found = __ballot_sync(0xFFFFFFFFu, first + lane() < end && seen(first + lane()) != 0);
    first += found != 0 ? __ffs(found) - 1 : 32;
    if (found != 0) break;
  }
#pragma unroll 1
  while (first < end) {
    const u32 found = __ballot_sync(0xFFFFFFFFu, end - 1 - lane() >= first && seen(end - 1 - lane()) != 0);
    end -= found != 0 ? __ffs(found) - 1 : 32;
    if (found != 0) break;
  }
}

template <class T>
struct Extremes {
  T low = sizeof(T) == 4 ? static_cast<T>(0x7FFFFFFF) : static_cast<T>(highest_i64), high = -low - 1;
  __device__ __forceinline__ void add(T x) { low = min_(low, x), high = max_(high, x); }
};

// The least and the greatest of `count` elements; of none, the greatest and the least of their type. i32 four at a time
// where they are neighbours; early, with many on their way at once.
template <class Early, class T>
__device__ __forceinline__ Extremes<T> scan(Early, const T* data, i64 stride, i64 count) {
  Extremes<T> range;
  const i32 n = static_cast<i32>(max_(count, i64{0}));
  i32 i = 0;
  if constexpr (sizeof(T) == 4) {
    if (stride == 1 && reinterpret_cast<u64>(data) % 16 == 0) {
#pragma unroll(Early::yes ? 16 : 1)
      for (; i + 4 <= n; i += 4) {
        const int4 x = *reinterpret_cast<const int4*>(data + i);
        range.low = min_(range.low, min_(min_(x.x, x.y), min_(x.z, x.w)));
        range.high = max_(range.high, max_(max_(x.x, x.y), max_(x.z, x.w)));
      }
    }
#pragma unroll 1
    for (; i < n; ++i) range.add(data[i * stride]);
  } else {
#pragma unroll(Early::yes ? 16 : 1)
    for (; i < n; ++i) range.add(data[i * stride]);
  }
  return range;
}

__device__ __forceinline__ Extremes<i32> of_warp(Extremes<i32> own) {
  return {__reduce_min_sync(0xFFFFFFFFu, own.low), __reduce_max_sync(0xFFFFFFFFu, own.high)};
}
__device__ __forceinline__ Extremes<i64> of_warp(Extremes<i64> own) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) {
    own.low = min_(own.low, __shfl_xor_sync(0xFFFFFFFFu, own.low, other));
    own.high = max_(own.high, __shfl_xor_sync(0xFFFFFFFFu, own.high, other));
  }
  return own;
}
// The same by the 32 lanes of a warp, which all ask for the same.
template <class T>
__device__ __forceinline__ Extremes<T> scan_together(const T* data, i64 stride, i64 count) {
  Extremes<T> own;
#pragma unroll 1
  for (i64 i = lane(); i < count; i += 32) own.add(data[i * stride]);
  return of_warp(own);
}

// An index into packed bounds, which come from the device and may be anything: kept in [0, limit].
__device__ __forceinline__ i32 bound(const i32* bounds, i64 stride, i32 i, i64 limit) {
  const i64 x = bounds[i * stride];
  return static_cast<i32>(x < 0 ? 0 : x > limit ? limit : x);
}

// Sequence s of packed rows owns the tiles from floor(start · scale / tile) + s on; the owner of tile number `number`.
__device__ __forceinline__ i32 owner(const i32* bounds, i64 stride, i32 sequences, i64 limit, i64 scale, i64 tile, i64 number) {
  i32 low = 0, high = sequences;
  while (high - low > 1) {
    const i32 middle = (low + high) / 2;
    if (bound(bounds, stride, middle, limit) * scale / tile + middle <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace attile
