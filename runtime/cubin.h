// Reads a cubin (NVIDIA's ELF image of compiled kernels) without its compile log: for cache entries, and to know an
// image whole before the driver, which is not told its size, sees it. Any bytes may be given.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "dsl/export.h"
#include "runtime/ptxas_log.h"

namespace attile {
inline namespace v1 {

struct CubinInfo {
  int arch = 0;                        // 90 for sm_90 and sm_90a
  std::vector<CudaResources> kernels;  // by name; spills are not in a cubin
  const CudaResources* kernel(std::string_view name) const;
};

// Nothing when the bytes are no cubin or not a whole one.
ATTILE_API std::optional<CubinInfo> read_cubin(std::string_view bytes);

}  // namespace v1
}  // namespace attile
