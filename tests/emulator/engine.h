// One block of a CUDA kernel on the CPU: a fiber for each thread, all on the thread of the host that launches. What
// threads of a warp do together, barriers and shared memory are done here; kernels see it through device.h.
//
// Stricter than a GPU, so that a fault shows each time and not now and then. A launch ends with an error when:
//   a thread reads shared memory that nobody wrote, or that a copy on its way will write;
//   two warps touch the same place without a barrier of both between, and one of them writes;
//   an address of shared memory is outside what was asked for, or not aligned for its access;
//   lanes of a warp come to different instructions that they must come to together, or some have ended.
// An asynchronous copy makes its place NaN at once and arrives when it is waited for: as early and as late as can be.
// Warps run one after another in an order that changes. Not shown: races within a warp, in global memory, and in arrays
// that a function declares __shared__ itself (an ordinary static here).
#pragma once

#include <cstdint>

namespace emulator {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

struct Index {
  unsigned x, y, z;
};
struct Place {
  Index thread, block, grid, threads;
};
// Of the thread that runs.
extern const Place* place;

// All 32 lanes of a warp come here for the same `what`; the last to come does it for all, then all go on. operands[i] is
// that of lane i.
void together(const char* what, void* operand, void (*act)(void* const* operands));
template <class Operand>
void together(const char* what, Operand& mine, void (*act)(Operand* const* operands)) {
  together(what, &mine, reinterpret_cast<void (*)(void* const*)>(act));
}

// __syncthreads_or; __syncthreads with false.
bool barrier(bool own);
// bar.sync: whole warps, `threads` threads in all, that name the same barrier.
void named_barrier(u32 name, u32 threads);

// Memory at an address of the shared window, for an access of `bytes`, which are also its alignment.
char* shared_to_read(u32 address, int bytes);
char* shared_to_write(u32 address, int bytes);
u32 shared_address(const void* p);
// Where the text's `extern __shared__` array begins.
char* dynamic_shared();

// cp.async; zeros where `from` is null.
void copy_async(u32 to, const void* from, int bytes);
void commit_copies();
void wait_for_copies(int pending);  // of all groups but so many

u64 nanoseconds();  // of a clock that goes on

[[noreturn]] void fault(const char* what);

// Runs every block; null, or what was wrong.
struct Launch {
  Index grid, threads;
  unsigned shared_bytes;
  void (*kernel)(void** arguments);
  void** arguments;
};
const char* run(const Launch& launch);

}  // namespace emulator
