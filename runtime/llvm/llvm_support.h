// What the files of the LLVM module share: buffers that cross the boundary, the fatal error hook, version switches.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "llvm/Config/llvm-config.h"
#include "runtime/llvm/llvm_abi.h"

#define ATTILE_LLVM_EXPORT extern "C" __attribute__((visibility("default")))

#if LLVM_VERSION_MAJOR < 16
#error "Attile needs LLVM 16 or newer"
#endif

namespace attile_llvm {

// LLVM calls std::abort on internal faults ("cannot select ..."); the hook turns that into this exception.
struct FatalError {
  std::string text;
};

// Registers the x86 back end and the hook; once per process, from any thread.
void initialize();

// Held while this thread is inside LLVM. A fork waits for all threads that are, so that a child finds no lock held by a
// thread that only its parent has.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// A malloc'ed copy; an empty text gives a null buffer. Never throws: without memory the buffer stays empty.
attile_llvm_buffer to_buffer(std::string_view text) noexcept;

class Stopwatch {
 public:
  // Milliseconds since construction or the last call.
  double lap() {
    auto now = std::chrono::steady_clock::now();
    double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace attile_llvm
