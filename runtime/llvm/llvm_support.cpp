#include "runtime/llvm/llvm_support.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/TargetSelect.h"

// A thread may still compile while the process exits. With this definition bound in the module, no destructor of
// LLVM's globals (or of the static C++ library) is ever registered, so nothing is torn down under that thread.
extern "C" __attribute__((visibility("hidden"))) int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }

namespace attile_llvm {
namespace {

void on_fatal_error(void*, const char* reason, bool) { throw FatalError{reason ? reason : "unknown"}; }

void on_no_memory(void*, const char*, bool) { throw std::bad_alloc(); }

}  // namespace

void initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::install_fatal_error_handler(on_fatal_error);
    llvm::install_bad_alloc_error_handler(on_no_memory);
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

attile_llvm_buffer to_buffer(std::string_view text) noexcept {
  attile_llvm_buffer buffer{nullptr, 0};
  if (text.empty()) return buffer;
  buffer.data = static_cast<char*>(std::malloc(text.size()));
  if (!buffer.data) return buffer;
  std::memcpy(buffer.data, text.data(), text.size());
  buffer.size = text.size();
  return buffer;
}

}  // namespace attile_llvm

ATTILE_LLVM_EXPORT int attile_llvm_abi() { return ATTILE_LLVM_ABI; }
ATTILE_LLVM_EXPORT const char* attile_llvm_version() { return LLVM_VERSION_STRING; }
ATTILE_LLVM_EXPORT void attile_llvm_free(char* data) { std::free(data); }
