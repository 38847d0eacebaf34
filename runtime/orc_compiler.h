// LLVM IR text to machine code of this process, through the LLVM module that is opened at the first use.
// Everything may be called from any thread. Failures are Errors: environment when the module is missing or does not
// fit (with every place looked in), internal when LLVM refuses the text (with its diagnostic, the path of the dumped
// text and a command that reproduces it).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsl/export.h"
#include "runtime/host_cpu.h"

namespace attile {
inline namespace v1 {

// Owns executable code; addresses are good until it is destroyed.
class ATTILE_API LoadedObject {
 public:
  LoadedObject() = default;
  LoadedObject(LoadedObject&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  LoadedObject& operator=(LoadedObject&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~LoadedObject();

  // The address of a function the object defines. Throws Error(internal) when it defines none of that name.
  void* symbol(std::string_view name) const;
  template <typename Function>
  Function* function(std::string_view name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  friend class OrcCompiler;
  explicit LoadedObject(void* handle) : handle_(handle) {}
  void* handle_ = nullptr;
};

// What a compile has to tell beside its result; goes to compile.log.
struct CompileReport {
  std::string warnings;
  double parse_ms = 0, passes_ms = 0, codegen_ms = 0;
};

class ATTILE_API OrcCompiler {
 public:
  static OrcCompiler& instance();

  // "19.1.7". This and all below open the module when it is not open yet.
  std::string version();
  // The file that was opened.
  std::string module_path();

  // The object file for `cpu`; its functions need not be supported by this machine.
  std::vector<std::byte> compile(std::string_view ir, const HostCpu& cpu, CompileReport* report = nullptr);
  // Assembly text, as `emit --stage asm` prints it.
  std::string assembly(std::string_view ir, const HostCpu& cpu);
  // The text after the IR passes, before code generation.
  std::string optimised(std::string_view ir, const HostCpu& cpu);
  // Throws Error(environment) when the bytes are no object this process can run.
  LoadedObject load(std::span<const std::byte> object);

  // Where the module is looked for, in order; for `attile doctor`.
  static std::vector<std::string> module_places();

 private:
  OrcCompiler() = default;
};

}  // namespace v1
}  // namespace attile
