// What a kernel's text takes from CUDA, for a compiler of the host: included before the text, whose asm statements have
// become calls of emulator::ptx::<instruction> with the operands in their order (nvrtc.cpp).
#pragma once

#include <cmath>
#include <cstring>

#include "tests/emulator/engine.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(bytes) alignas(bytes)

#define threadIdx (emulator::place->thread)
#define blockIdx (emulator::place->block)
#define gridDim (emulator::place->grid)
#define blockDim (emulator::place->threads)

struct int4 {
  int x, y, z, w;
};
struct float2 {
  float x, y;
};

inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
// What a GPU computes where the host's result is its own NaN of no operand.
inline unsigned __float_as_uint(float x) {
  const unsigned bits = __builtin_bit_cast(unsigned, x);
  return bits == 0xFFC00000u ? 0x7FFFFFFFu : bits;
}
inline int __float_as_int(float x) { return static_cast<int>(__float_as_uint(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
__extension__ using emulator_wide = __int128;
inline long long __mul64hi(long long a, long long b) { return static_cast<long long>(static_cast<emulator_wide>(a) * b >> 64); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32); }
inline unsigned long long __cvta_generic_to_shared(const void* p) { return emulator::shared_address(p); }

namespace emulator {

template <class T>
struct Shuffle {
  T own, received;
  int from;  // a lane
};
template <class T>
T shuffle(T own, int from) {
  Shuffle<T> mine{own, {}, from & 31};
  together<Shuffle<T>>("a shuffle", mine, [](Shuffle<T>* const* all) {
    for (int i = 0; i < 32; ++i) all[i]->received = all[all[i]->from]->own;
  });
  return mine.received;
}
inline int lane() { return static_cast<int>(threadIdx.x) & 31; }

struct Vote {
  bool own;
  u32 all;
};
inline u32 votes(bool own) {
  Vote mine{own, 0};
  together<Vote>("a vote", mine, [](Vote* const* all) {
    u32 bits = 0;
    for (int i = 0; i < 32; ++i) bits |= static_cast<u32>(all[i]->own) << i;
    for (int i = 0; i < 32; ++i) all[i]->all = bits;
  });
  return mine.all;
}

struct Reduced {
  int low, high;
};
inline Reduced extremes(int own) {
  Reduced mine{own, own};
  together<Reduced>("a reduction", mine, [](Reduced* const* all) {
    Reduced r = *all[0];
    for (int i = 1; i < 32; ++i) {
      if (all[i]->low < r.low) r.low = all[i]->low;
      if (all[i]->high > r.high) r.high = all[i]->high;
    }
    for (int i = 0; i < 32; ++i) *all[i] = r;
  });
  return mine;
}

inline void whole_warp(unsigned mask) {
  if (mask != ~0u) fault("a mask of lanes that is not the whole warp");
}

}  // namespace emulator

inline void __syncthreads() { emulator::barrier(false); }
inline int __syncthreads_or(int x) { return emulator::barrier(x != 0); }
inline void __syncwarp(unsigned mask = ~0u) {
  emulator::whole_warp(mask);
  emulator::votes(false);
}
inline unsigned __ballot_sync(unsigned mask, int x) {
  emulator::whole_warp(mask);
  return emulator::votes(x != 0);
}
inline int __any_sync(unsigned mask, int x) { return __ballot_sync(mask, x) != 0; }
inline int __all_sync(unsigned mask, int x) { return __ballot_sync(mask, x) == ~0u; }
template <class T>
T __shfl_sync(unsigned mask, T x, int from) {
  emulator::whole_warp(mask);
  return emulator::shuffle(x, from);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T x, int other) { return __shfl_sync(mask, x, emulator::lane() ^ other); }
template <class T>
T __shfl_up_sync(unsigned mask, T x, int by) {
  return __shfl_sync(mask, x, emulator::lane() >= by ? emulator::lane() - by : emulator::lane());
}
inline int __reduce_min_sync(unsigned mask, int x) {
  emulator::whole_warp(mask);
  return emulator::extremes(x).low;
}
inline int __reduce_max_sync(unsigned mask, int x) {
  emulator::whole_warp(mask);
  return emulator::extremes(x).high;
}

namespace emulator::ptx {

inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

inline float bf16_value(u16 x) { return __uint_as_float(static_cast<u32>(x) << 16); }
inline u16 bf16_nearest(float x) {
  const u32 bits = __float_as_uint(x);
  if (x != x) return 0x7FFF;
  return static_cast<u16>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float f16_value(u16 x) {
  const int exponent = x >> 10 & 31, fraction = x & 1023;
  const float size = exponent == 31 ? (fraction ? __builtin_nanf("") : __builtin_inff())
                     : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                     : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return x & 0x8000 ? -size : size;
}
inline u16 f16_nearest(float x) {
  const u16 sign = std::signbit(x) ? 0x8000 : 0;
  if (x != x) return 0x7FFF;
  const float size = std::fabs(x);
  if (size >= 65520.0f) return sign | 0x7C00;
  int exponent = size == 0 ? -14 : std::ilogb(size);
  if (exponent < -14) exponent = -14;
  const auto units = static_cast<u32>(std::nearbyint(std::ldexp(size, 10 - exponent)));  // of the last place
  return static_cast<u16>(sign + ((exponent + 14) << 10) + units);
}

inline void griddepcontrol_launch_dependents() {}
inline void griddepcontrol_wait() {}
inline void cvt_f32_f16(float& y, u16 x) { y = f16_value(x); }
inline void cvt_rn_bf16_f32(u16& y, float x) { y = bf16_nearest(x); }
inline void cvt_rn_f16_f32(u16& y, float x) { y = f16_nearest(x); }
inline void cvt_rn_bf16x2_f32(u32& y, float high, float low) { y = static_cast<u32>(bf16_nearest(high)) << 16 | bf16_nearest(low); }
inline void cvt_rn_f16x2_f32(u32& y, float high, float low) { y = static_cast<u32>(f16_nearest(high)) << 16 | f16_nearest(low); }
inline void cvt_rna_tf32_f32(u32& y, float x) {
  const u32 bits = __float_as_uint(x);
  y = (bits & 0x7F800000u) == 0x7F800000u ? bits : (bits + 0x1000u) & 0xFFFFE000u;
}
inline void ex2_approx_ftz_f32(float& y, float x) { y = flushed(std::exp2(flushed(x))); }
inline void rcp_approx_ftz_f32(float& y, float x) { y = flushed(1.0f / flushed(x)); }
inline void rcp_approx_f32(float& y, float x) { y = 1.0f / x; }
inline void max_NaN_f32(float& y, float a, float b) { y = a != a || b != b ? __builtin_nanf("") : a > b || (a == b && std::signbit(b)) ? a : b; }
inline void min_NaN_f32(float& y, float a, float b) { y = a != a || b != b ? __builtin_nanf("") : a < b || (a == b && std::signbit(a)) ? a : b; }
inline void mov_u32_tid_x(int& x) { x = static_cast<int>(threadIdx.x); }
inline void mov_u64_globaltimer(unsigned long long& x) { x = nanoseconds(); }

// ldmatrix: the addresses of 8 rows a block, by eight lanes each.
struct Blocks {
  u32 address;
  u32 words[4];
};
template <int count, bool transposed>
void load_blocks(Blocks* const* all) {
  for (int b = 0; b < count; ++b) {
    u16 rows[8][8];
    for (int r = 0; r < 8; ++r) std::memcpy(rows[r], shared_to_read(all[8 * b + r]->address, 16), 16);
    for (int i = 0; i < 32; ++i) {
      const int major = i / 4, minor = i % 4 * 2;
      const u16 low = transposed ? rows[minor][major] : rows[major][minor];
      const u16 high = transposed ? rows[minor + 1][major] : rows[major][minor + 1];
      all[i]->words[b] = static_cast<u32>(high) << 16 | low;
    }
  }
}
template <int count, bool transposed>
Blocks loaded(const char* what, u32 address) {
  Blocks mine{address, {}};
  together<Blocks>(what, mine, load_blocks<count, transposed>);
  return mine;
}
inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(u32& a, u32& b, u32& c, u32& d, u32 address) {
  const Blocks got = loaded<4, false>("ldmatrix.x4", address);
  a = got.words[0], b = got.words[1], c = got.words[2], d = got.words[3];
}
inline void ldmatrix_sync_aligned_m8n8_x2_shared_b16(u32& a, u32& b, u32 address) {
  const Blocks got = loaded<2, false>("ldmatrix.x2", address);
  a = got.words[0], b = got.words[1];
}
inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(u32& a, u32& b, u32& c, u32& d, u32 address) {
  const Blocks got = loaded<4, true>("ldmatrix.x4.trans", address);
  a = got.words[0], b = got.words[1], c = got.words[2], d = got.words[3];
}
inline void ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(u32& a, u32& b, u32 address) {
  const Blocks got = loaded<2, true>("ldmatrix.x2.trans", address);
  a = got.words[0], b = got.words[1];
}

// mma.m16n8k<depth>; Element tells how a register holds elements of the operands.
struct Product {
  float* d;
  u32 a[4], b[2];
};
struct Bf16 {
  static constexpr int in_word = 2;
  static float value(u32 word, int i) { return bf16_value(static_cast<u16>(word >> 16 * i)); }
};
struct F16 {
  static constexpr int in_word = 2;
  static float value(u32 word, int i) { return f16_value(static_cast<u16>(word >> 16 * i)); }
};
struct Tf32 {
  static constexpr int in_word = 1;
  static float value(u32 word, int) { return __uint_as_float(word & 0xFFFFE000u); }
};
template <class Element, int depth>
void multiply(Product* const* all) {
  constexpr int in_word = Element::in_word, half = 4 * in_word;  // of the depth, a register
  float a[16][depth], b[depth][8];
  for (int i = 0; i < 32; ++i)
    for (int r = 0; r < depth / half; ++r)
      for (int e = 0; e < in_word; ++e) {
        const int k = r * half + i % 4 * in_word + e;
        a[i / 4][k] = Element::value(all[i]->a[2 * r], e);
        a[i / 4 + 8][k] = Element::value(all[i]->a[2 * r + 1], e);
        b[k][i / 4] = Element::value(all[i]->b[r], e);
      }
  for (int m = 0; m < 16; ++m) {
    double sum[8] = {};
    for (int k = 0; k < depth; ++k)
      for (int n = 0; n < 8; ++n) sum[n] += static_cast<double>(a[m][k]) * b[k][n];
    for (int n = 0; n < 8; ++n) {
      float& d = all[m % 8 * 4 + n / 2]->d[m / 8 * 2 + n % 2];
      d = static_cast<float>(d + sum[n]);
    }
  }
}
template <class Element, int depth>
void product(const char* what, float& d0, float& d1, float& d2, float& d3, Product mine) {
  float d[4] = {d0, d1, d2, d3};
  mine.d = d;
  together<Product>(what, mine, multiply<Element, depth>);
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  product<Bf16, 16>("mma.m16n8k16.bf16", d0, d1, d2, d3, {nullptr, {a0, a1, a2, a3}, {b0, b1}});
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  product<F16, 16>("mma.m16n8k16.f16", d0, d1, d2, d3, {nullptr, {a0, a1, a2, a3}, {b0, b1}});
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 b) {
  product<Bf16, 8>("mma.m16n8k8.bf16", d0, d1, d2, d3, {nullptr, {a0, a1}, {b}});
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 b) {
  product<F16, 8>("mma.m16n8k8.f16", d0, d1, d2, d3, {nullptr, {a0, a1}, {b}});
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  product<Tf32, 8>("mma.m16n8k8.tf32", d0, d1, d2, d3, {nullptr, {a0, a1, a2, a3}, {b0, b1}});
}

inline void bar_sync(u32 name, u32 threads) { named_barrier(name, threads); }

inline void cp_async_cg_shared_global_L2__128B(u32 to, const void* from) { copy_async(to, from, 16); }
inline void cp_async_cg_shared_global_L2__128B(u32 to, const void* from, u32 valid) { copy_async(to, valid ? from : nullptr, 16); }
inline void cp_async_ca_shared_global(u32 to, const void* from, int bytes) { copy_async(to, from, bytes); }
inline void cp_async_ca_shared_global(u32 to, const void* from, int bytes, u32 valid) { copy_async(to, valid ? from : nullptr, bytes); }
inline void cp_async_commit_group() { commit_copies(); }
inline void cp_async_wait_group(int pending) { wait_for_copies(pending); }

inline void ld_shared_b32(u32& x, u32 address) { std::memcpy(&x, shared_to_read(address, 4), 4); }
inline void ld_shared_b16(u16& x, u32 address) { std::memcpy(&x, shared_to_read(address, 2), 2); }
inline void ld_shared_v4_b32(u32& a, u32& b, u32& c, u32& d, u32 address) {
  u32 x[4];
  std::memcpy(x, shared_to_read(address, 16), 16);
  a = x[0], b = x[1], c = x[2], d = x[3];
}
inline void st_shared_b32(u32 address, u32 x) { std::memcpy(shared_to_write(address, 4), &x, 4); }
inline void st_shared_b16(u32 address, u16 x) { std::memcpy(shared_to_write(address, 2), &x, 2); }
inline void st_shared_v4_b32(u32 address, u32 a, u32 b, u32 c, u32 d) {
  const u32 x[4] = {a, b, c, d};
  std::memcpy(shared_to_write(address, 16), x, 16);
}

}  // namespace emulator::ptx
