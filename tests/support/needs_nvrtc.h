// Tests that compile CUDA skip themselves, with the reason, where NVRTC is missing.
#pragma once

#include <algorithm>
#include <string>

#include "dsl/error.h"
#include "runtime/nvrtc.h"
#include "tests/support/catch_compat.h"

namespace attile::test {

// Why NVRTC cannot be used, in one line, which is enough for ctest; empty where it can.
inline std::string fault_of_nvrtc() {
  try {
    nvrtc();
    return {};
  } catch (const Error& error) {
    return error.message().substr(0, error.message().find('\n'));
  }
}

// "sm_90", "sm_90a"
inline bool nvrtc_knows(const std::string& arch) {
  const auto& archs = nvrtc().archs;
  return std::find(archs.begin(), archs.end(), std::stoi(arch.substr(3))) != archs.end();
}

}  // namespace attile::test

#define NEEDS_NVRTC \
  if (const std::string missing = attile::test::fault_of_nvrtc(); !missing.empty()) ATTILE_SKIP(missing)
