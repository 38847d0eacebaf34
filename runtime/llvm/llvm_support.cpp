#include "runtime/llvm/llvm_support.h"

#include <pthread.h>

#include <condition_variable>
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

// Who is inside LLVM, and how many forks wait for them to leave.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0, forks = 0;
};
Gate& gate() {
  alignas(Gate) static unsigned char memory[sizeof(Gate)];
  static Gate* made = new (memory) Gate();
  return *made;
}
thread_local int inside_here = 0;  // a thread that forks inside LLVM does not wait for itself

void before_fork() {
  std::unique_lock lock(gate().mutex);
  ++gate().forks;
  gate().changed.wait(lock, [] { return gate().inside == inside_here; });
  lock.release();  // held over the fork
}
void after_fork() {
  --gate().forks;
  gate().mutex.unlock();
  gate().changed.notify_all();
}
// Others that waited at the gate are not in the child.
void after_fork_in_child() {
  Gate& fresh = *new (&gate()) Gate();
  fresh.inside = inside_here;
}

}  // namespace

Inside::Inside() {
  [[maybe_unused]] static const int registered = pthread_atfork(before_fork, after_fork, after_fork_in_child);
  std::unique_lock lock(gate().mutex);
  if (inside_here == 0) gate().changed.wait(lock, [] { return gate().forks == 0; });
  ++gate().inside, ++inside_here;
}

Inside::~Inside() {
  {
    const std::lock_guard lock(gate().mutex);
    --gate().inside, --inside_here;
  }
  gate().changed.notify_all();
}

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
