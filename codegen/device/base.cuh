// Scalar types and functions of emitted kernels. NVRTC compiles this without toolkit headers.
// Guarantees: conversions to 16 bit round to nearest even and keep NaN; max_ and min_ return NaN if either operand is;
// every function here is total.
#pragma once

namespace attile {

using u8 = unsigned char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};

// sm_90 and up. Lets the blocks of the kernel after this one take what room there is once all blocks of this one have
// called it or ended: it starts early, and waits itself.
__device__ __forceinline__ void griddepcontrol_launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// Until the kernel before this one has ended and what it wrote can be read. At once where it was not started early.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

struct Yes {
  static constexpr bool yes = true;
};
struct No {
  static constexpr bool yes = false;
};

constexpr float log2e = 1.4426950408889634f, ln2 = 0.6931471805599453f;

__device__ __forceinline__ float infinity() { return __int_as_float(0x7F800000); }

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
__device__ __forceinline__ float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

template <class T>
struct FromFloat;
template <>
struct FromFloat<bf16> {
  static constexpr u32 exponent_one = 0x0080;  // the lowest bit of the exponent
  static __device__ __forceinline__ bf16 of(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
  static __device__ __forceinline__ u32 pair(float low, float high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
  }
};
template <>
struct FromFloat<f16> {
  static constexpr u32 exponent_one = 0x0400;
  static __device__ __forceinline__ f16 of(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
  static __device__ __forceinline__ u32 pair(float low, float high) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
  }
};

template <class T>
__device__ __forceinline__ T from_float(float x) { return FromFloat<T>::of(x); }

// Two values of a 16-bit type in one register, `low` in the lower half.
template <class T>
__device__ __forceinline__ u32 pack(float low, float high) { return FromFloat<T>::pair(low, high); }

// 2^x within 2 ulp; exact at 0 and −inf; results below 2^-126 are 0.
__device__ __forceinline__ float exp2f_(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Within 2 ulp and the rounding of x·log2 e (absolute error of the exponent 2^-24·|x|·log2 e).
__device__ __forceinline__ float exp_(float x) { return exp2f_(x * log2e); }
// Within 1 ulp; −inf at 0, NaN below.
__device__ __forceinline__ float log_(float x) { return ::logf(x); }
// Within 2 ulp.
__device__ __forceinline__ float tanh_(float x) { return ::tanhf(x); }
// 1/x within 1 ulp; 1/±inf = ±0, 1/±0 = ±inf.
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1/x within 1 ulp, of subnormal numbers too: for what is divided by once a row.
__device__ __forceinline__ float inverse(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Absolute error 1e-7: what is left of tanh_ where the result is added to larger numbers.
__device__ __forceinline__ float tanh_coarse(float x) { return fmaf(-2.0f, reciprocal(1.0f + exp2f_(x * (2.0f * log2e))), 1.0f); }
__device__ __forceinline__ float sigmoid_(float x) { return reciprocal(1.0f + exp_(-x)); }

__device__ __forceinline__ float max_(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ __forceinline__ float min_(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ __forceinline__ i32 max_(i32 a, i32 b) { return a > b ? a : b; }
__device__ __forceinline__ i32 min_(i32 a, i32 b) { return a < b ? a : b; }
__device__ __forceinline__ i64 max_(i64 a, i64 b) { return a > b ? a : b; }
__device__ __forceinline__ i64 min_(i64 a, i64 b) { return a < b ? a : b; }

__device__ __forceinline__ i32 abs_(i32 x) { return x < 0 ? -x : x; }
__device__ __forceinline__ i64 abs_(i64 x) { return x < 0 ? -x : x; }

// a + b, a − b, a · b and |x|, which end at the last number.
constexpr i64 highest_i64 = 0x7FFFFFFFFFFFFFFF, lowest_i64 = -highest_i64 - 1;
__device__ __forceinline__ i64 add_ending(i64 a, i64 b) {
  const auto sum = static_cast<i64>(static_cast<u64>(a) + static_cast<u64>(b));
  return ((a ^ sum) & (b ^ sum)) < 0 ? (a < 0 ? lowest_i64 : highest_i64) : sum;
}
__device__ __forceinline__ i64 sub_ending(i64 a, i64 b) {
  const auto rest = static_cast<i64>(static_cast<u64>(a) - static_cast<u64>(b));
  return ((a ^ b) & (a ^ rest)) < 0 ? (a < 0 ? lowest_i64 : highest_i64) : rest;
}
__device__ __forceinline__ i64 mul_ending(i64 a, i64 b) {
  const auto product = static_cast<i64>(static_cast<u64>(a) * static_cast<u64>(b));
  return __mul64hi(a, b) == product >> 63 ? product : (a < 0) != (b < 0) ? lowest_i64 : highest_i64;
}
__device__ __forceinline__ i64 abs_ending(i64 x) { return x < 0 ? sub_ending(0, x) : x; }

// Quotient towards −inf and its remainder; 0 where b is not positive.
template <class I>
__device__ __forceinline__ I floor_div(I a, I b) {
  return b > 0 ? a / b - (a % b < 0) : 0;
}
template <class I>
__device__ __forceinline__ I floor_mod(I a, I b) {
  if (b <= 0) return 0;
  const I r = a % b;
  return r < 0 ? r + b : r;
}

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) & 31; }
// By a shuffle, so that the compiler knows it to be the same in all lanes.
__device__ __forceinline__ int warp() { return __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) >> 5, 0); }

struct PhiloxWords {
  u32 x[4];
};

// Philox4x32-10 (Salmon et al., SC 2011): four words of one counter.
__device__ __forceinline__ PhiloxWords philox(u32 c0, u32 c1, u32 c2, u32 c3, u64 key) {
  u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 a = static_cast<u64>(0xD2511F53u) * c0, b = static_cast<u64>(0xCD9E8D57u) * c2;
    c0 = static_cast<u32>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<u32>(b);
    c2 = static_cast<u32>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<u32>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The word of one weight: counter (offset, stream, row, position/4), word position mod 4; as dsl/philox.h.
__device__ __forceinline__ u32 philox_word(u32 offset, u32 stream, u32 row, u32 position, u64 key) {
  const PhiloxWords w = philox(offset, stream, row, position / 4, key);
  const u32 low = position & 1 ? w.x[1] : w.x[0], high = position & 1 ? w.x[3] : w.x[2];
  return position & 2 ? high : low;
}

// The words of the positions `even` and even + 1, which share a counter: `odd` chooses.
__device__ __forceinline__ u32 philox_pair(u32 offset, u32 stream, u32 row, u32 even, u64 key, bool odd) {
  const PhiloxWords w = philox(offset, stream, row, even / 4, key);
  const u32 first = even & 2 ? w.x[2] : w.x[0], second = even & 2 ? w.x[3] : w.x[1];
  return odd ? second : first;
}

}  // namespace attile
