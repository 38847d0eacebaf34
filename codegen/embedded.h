// The CUDA headers that emitted kernels include, as part of the library; generated like those of schedules/embedded.h.
#pragma once

#include "schedules/embedded.h"

namespace attile::embedded {

// codegen/device/**/*.cuh in the order of their paths; a path is relative to codegen/device/.
std::span<const File> device_files();

}  // namespace attile::embedded
