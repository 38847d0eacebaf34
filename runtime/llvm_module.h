// Finds and opens libattile_llvm.so, once per process, and holds its functions. See runtime/llvm/llvm_abi.h.
#pragma once

#include <string>
#include <vector>

#include "runtime/llvm/llvm_abi.h"

namespace attile {
inline namespace v1 {

struct LlvmModule {
  std::string path;
  decltype(&attile_llvm_version) version;
  decltype(&attile_llvm_compile) compile;
  decltype(&attile_llvm_load) load;
  decltype(&attile_llvm_lookup) lookup;
  decltype(&attile_llvm_unload) unload;
  decltype(&attile_llvm_free) free;
};

// Throws Error(environment) when no module is found or it is of another build; a later call looks again.
const LlvmModule& llvm_module();

// Places in the order they are tried.
std::vector<std::string> llvm_module_places();

}  // namespace v1
}  // namespace attile
