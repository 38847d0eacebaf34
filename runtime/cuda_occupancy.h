// How many blocks of a kernel share a multiprocessor, worked out from a chip's limits, no device needed (CUDA C++
// Programming Guide, technical specifications per compute capability; the driver's own answer is
// CudaKernel::blocks_per_sm).
#pragma once

#include <cstdint>

#include "dsl/export.h"
#include "runtime/cuda_device.h"
#include "schedules/target.h"

namespace attile {
inline namespace v1 {

struct CudaLimits {
  int multiprocessors = 0;
  int threads_per_sm = 0, blocks_per_sm = 0, registers_per_sm = 0;
  std::int64_t shared_per_sm = 0, shared_reserved_per_block = 0;
};
// Of a named chip; a chip that is not in the table has the limits of the newest one before it.
ATTILE_API CudaLimits cuda_limits(const Target& t);
ATTILE_API CudaLimits cuda_limits(const CudaDevice& device);

struct CudaOccupancy {
  int by_registers = 0, by_shared = 0, by_threads = 0, by_blocks = 0;  // blocks that each would allow
  int warps = 0;                                                       // of a block
  ATTILE_API int blocks() const;
  // "registers", "shared memory", "threads" or "blocks": what allows fewest.
  ATTILE_API const char* limited_by() const;
};
// `registers` of a thread; 0: not known, and then no limit. `shared_bytes`: static and dynamic of a block.
ATTILE_API CudaOccupancy cuda_occupancy(const CudaLimits& limits, int threads, int registers,
                                        std::int64_t shared_bytes);

}  // namespace v1
}  // namespace attile
