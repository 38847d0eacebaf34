// One function per instruction of sm_80: matrix loads, matrix products, asynchronous copies, shared and global access
// by address. Shared addresses are 32-bit offsets in the shared window (shared_address).
#pragma once

#include "base.cuh"

namespace attile {

__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// 8×8 blocks of 16-bit elements (or 8×4 of 32-bit): lane l gives the address of row l mod 8 of block l/8 and receives
// the 32 bits of row l/4, word l mod 4 of every block. _trans: of column l/4, elements 2(l mod 4) and the next.
__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ __forceinline__ void ldmatrix_x2(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address));
}
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ __forceinline__ void ldmatrix_x2_trans(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address));
}

// d += a·b. Lane l, g = l/4, t = l mod 4 holds d: rows g, g, g+8, g+8, columns 2t, 2t+1 twice;
// a (16×16): columns 2t.. of rows g, g+8, then columns 2t+8.. of rows g, g+8; b (16×8): rows 2t.., 2t+8.. of column g.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <>
__device__ __forceinline__ void mma_m16n8k16<bf16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_m16n8k16<f16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The same over half the depth: a (16×8): columns 2t.. of rows g, g+8; b (8×8): rows 2t.. of column g.
template <class T>
__device__ __forceinline__ void mma_m16n8k8(float (&d)[4], u32 a0, u32 a1, u32 b);
template <>
__device__ __forceinline__ void mma_m16n8k8<bf16>(float (&d)[4], u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b));
}
template <>
__device__ __forceinline__ void mma_m16n8k8<f16>(float (&d)[4], u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b));
}
// With 32-bit elements: a (16×8): column t of rows g, g+8, column t+4 of rows g, g+8; b (8×8): rows t, t+4 of g.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// To nearest, ties away from zero.
__device__ __forceinline__ u32 cvt_rna_tf32(float x) {
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

// Copies `unit` bytes to shared memory; 16 bytes go past L1, since a tile is read once.
template <int unit>
__device__ __forceinline__ void cp_async(u32 to, const void* from) {
  static_assert(unit == 4 || unit == 8 || unit == 16, "cp.async copies 4, 8 or 16 bytes");
  if constexpr (unit == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(unit) : "memory");
  }
}
// The same, or zeros where not `valid`: then `from` is not read.
template <int unit>
__device__ __forceinline__ void cp_async(u32 to, const void* from, bool valid) {
  static_assert(unit == 4 || unit == 8 || unit == 16, "cp.async copies 4, 8 or 16 bytes");
  if constexpr (unit == 16) {
    asm volatile(
        "{\n\t.reg .pred ignore;\n\tsetp.eq.u32 ignore, %2, 0;\n\t"
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, ignore;\n\t}" ::"r"(to),
        "l"(from), "r"(static_cast<u32>(valid))
        : "memory");
  } else {
    asm volatile(
        "{\n\t.reg .pred ignore;\n\tsetp.eq.u32 ignore, %3, 0;\n\t"
        "cp.async.ca.shared.global [%0], [%1], %2, ignore;\n\t}" ::"r"(to),
        "l"(from), "n"(unit), "r"(static_cast<u32>(valid))
        : "memory");
  }
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Returns when all but the latest `pending` groups of this thread have arrived.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

struct alignas(16) Words4 {
  u32 x[4];
};

__device__ __forceinline__ u32 ld_shared_b32(u32 address) {
  u32 x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(address));
  return x;
}
__device__ __forceinline__ u16 ld_shared_b16(u32 address) {
  u16 x;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(x) : "r"(address));
  return x;
}
__device__ __forceinline__ Words4 ld_shared_v4(u32 address) {
  Words4 w;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x[0]), "=r"(w.x[1]), "=r"(w.x[2]), "=r"(w.x[3])
               : "r"(address));
  return w;
}
__device__ __forceinline__ void st_shared_b32(u32 address, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
__device__ __forceinline__ void st_shared_b16(u32 address, u16 x) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(x) : "memory");
}
__device__ __forceinline__ void st_shared_v4(u32 address, const Words4& w) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(w.x[0]), "r"(w.x[1]), "r"(w.x[2]),
               "r"(w.x[3])
               : "memory");
}

}  // namespace attile
