// The machine code of one emitted kernel, from the disk cache or compiled by NVRTC and kept there, with what the
// compiler said of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/program.h"
#include "runtime/ptxas_log.h"

namespace attile {
inline namespace v1 {

struct CudaBuild {
  std::string image;                  // a cubin, or PTX for a chip newer than NVRTC knows
  std::vector<std::string> warnings;  // of front end and ptxas, one line each
  CudaResources resources;            // registers from the cubin, spills from the log
  bool resources_known = false;       // not for PTX: the driver finishes it
  bool from_disk = false;
};

// Throws as compile_cuda does.
ATTILE_API CudaBuild build_cuda(const EmittedKernel& k, const std::string& arch);
// The same without compiling: nothing where the disk cache has it not.
ATTILE_API std::optional<CudaBuild> find_cuda_build(const EmittedKernel& k, const std::string& arch);

}  // namespace v1
}  // namespace attile
