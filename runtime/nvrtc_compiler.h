// CUDA text to machine code for one chip, through NVRTC. No header of a toolkit is used: what a text includes is given
// by name. Everything may be called from any thread; compiles on several threads run side by side.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/export.h"
#include "runtime/ptxas_log.h"
#include "schedules/embedded.h"

namespace attile {
inline namespace v1 {

struct CudaCompileOptions {
  bool ptx = false;                      // keep the PTX too
  std::vector<std::string> extra_flags;  // after those of cuda_flags()
};

struct CompiledCuda {
  std::string arch;                      // "sm_90a" as asked for, or "compute_121" where NVRTC does not know the chip
  std::string cubin;                     // empty when only PTX could be made
  std::string ptx;                       // when asked for, or when it is all there is
  std::vector<CudaResources> resources;  // of each kernel; none when only PTX could be made
  std::vector<std::string> warnings;     // of front end and ptxas, C75xx among them
  std::string log;
  double compile_ms = 0;

  const std::string& image() const { return cubin.empty() ? ptx : cubin; }  // for CudaModule
};

// Compiles for exactly `arch` ("sm_80", "sm_90a", "sm_100f"). For a chip newer than NVRTC knows, PTX of the newest one
// it knows below, with a warning, which the driver compiles when it is loaded.
// Throws Error(internal) for a text NVRTC refuses, with its first error, the path of the dumped text and a command that
// reproduces it; Error(unsupported) for a chip NVRTC cannot compile for; Error(environment) without NVRTC;
// Error(argument) for an `arch` that is none.
ATTILE_API CompiledCuda compile_cuda(const std::string& text, const std::string& file_name, std::string_view arch,
                                     std::span<const embedded::File> headers, const CudaCompileOptions& options = {});

// The flags of a compile in order, without extra ones.
ATTILE_API std::vector<std::string> cuda_flags(std::string_view arch);
// All that changes what a text compiles to, beside headers and chip, for cache keys: "NVRTC 13.0 --std=c++17 ...".
ATTILE_API std::string cuda_compiler_text(const CudaCompileOptions& options = {});

// What to compile for: `asked`, or "compute_<n>" of the newest chip below where `known` (ascending) lacks its number.
// Throws Error(argument) for a text that is no chip, Error(unsupported) for one older than all known.
ATTILE_API std::string compiled_arch(std::string_view asked, std::span<const int> known, std::string_view version);

}  // namespace v1
}  // namespace attile
