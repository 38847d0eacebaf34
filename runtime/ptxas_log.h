// What NVRTC and ptxas tell of a compile (--ptxas-options=-v): the resources of each kernel, warnings, the first error.
// The text is not specified anywhere; what is not understood is passed over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

// Of one kernel (entry function). Registers, stack and spills are a thread's; with setmaxnreg registers are those at
// entry. The log of an sm_90 or newer chip does not tell constant bytes, a cubin does not tell spills.
struct CudaResources {
  std::string entry;  // mangled name
  int registers = 0;
  std::int64_t spill_store_bytes = 0, spill_load_bytes = 0, stack_bytes = 0;
  std::int64_t shared_bytes = 0;  // declared in the text; without what the system reserves
  std::int64_t constant_bytes = 0;
  int barriers = 0;
  std::int64_t parameter_bytes = 0;   // 0: not known (from the cubin only)
  int max_threads = 0;                // of __launch_bounds__; 0: none (from the cubin only)
  std::vector<std::string> warnings;  // that name this kernel: C75xx and others
};

struct CudaLog {
  std::vector<CudaResources> kernels;  // in the order of the log
  std::vector<std::string> warnings;   // all, of front end and ptxas, one line each
  std::string first_error;             // empty when there is none
};
ATTILE_API CudaLog parse_cuda_log(std::string_view log);

}  // namespace v1
}  // namespace attile
