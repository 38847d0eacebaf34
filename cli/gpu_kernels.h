// The kernels of a program for a GPU as ptxas made them: registers, spills, shared memory, and how many blocks of them
// a multiprocessor holds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/json.h"
#include "codegen/program.h"
#include "runtime/cuda_build.h"
#include "runtime/cuda_occupancy.h"

namespace attile::cli {

struct GpuKernel {
  std::string name;
  int threads = 0;                         // of a block
  std::int64_t dynamic_shared = 0;         // bytes of a block
  std::optional<CudaResources> resources;  // none where it is not compiled, or to PTX only
  std::vector<std::string> warnings;
  std::int64_t shared() const { return dynamic_shared + (resources ? resources->shared_bytes : 0); }
  CudaOccupancy occupancy(const CudaLimits& limits) const {
    return cuda_occupancy(limits, threads, resources ? resources->registers : 0, shared());
  }
};

// From the disk cache, else compiled by NVRTC and kept there. Throws as build_cuda does.
std::vector<GpuKernel> compiled_kernels(const Program& program);
// Those that the disk cache has; the others without resources.
std::vector<GpuKernel> cached_kernels(const Program& program);

// As generated, none compiled.
std::vector<GpuKernel> bare_kernels(const Program& program);

// "168 registers, no spills, 80 KiB of shared memory, 128 threads".
std::string resources_text(const GpuKernel& k);
Json resources_json(const GpuKernel& k);

}  // namespace attile::cli
