#include "runtime/orc_compiler.h"

#include <fmt/format.h>

#include <cstring>

#include "dsl/error.h"
#include "runtime/files.h"
#include "runtime/llvm_module.h"

namespace attile {
inline namespace v1 {
namespace {

// Frees what the module allocated.
class Buffer {
 public:
  explicit Buffer(const LlvmModule& module) : module_(module) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { module_.free(raw.data); }
  std::string_view text() const { return {raw.data, raw.size}; }

  attile_llvm_buffer raw{nullptr, 0};

 private:
  const LlvmModule& module_;
};

[[noreturn]] void refuse(std::string_view ir, const HostCpu& cpu, int status, std::string_view message) {
  if (status == attile_llvm_no_memory) throw Error(ErrorKind::resource, "compile for the CPU", "out of memory", "");
  std::string version = llvm_module().version();
  std::string major = version.substr(0, version.find('.'));
  std::string path, remedy = "this is a fault of Attile; please report it with the text above";
  if (write_temporary(".ll", ir, path) == 0)
    remedy += fmt::format("; to reproduce: llc-{} -O3 -mcpu={} -mattr='{}' '{}'", major, cpu.cpu, cpu.features, path);
  throw Error(ErrorKind::internal, "compile for the CPU", fmt::format("LLVM {} refused the text: {}", version, message),
              remedy);
}

void run(std::string_view ir, const HostCpu& cpu, attile_llvm_output kind, Buffer& output, CompileReport* report) {
  attile_llvm_request request{};
  request.ir = ir.data();
  request.ir_size = ir.size();
  request.cpu = cpu.cpu.c_str();
  request.tune = cpu.tune.c_str();
  request.features = cpu.features.c_str();
  request.output = kind;
  Buffer message(llvm_module());
  attile_llvm_times times{};
  int status = llvm_module().compile(&request, &output.raw, &message.raw, &times);
  if (status != attile_llvm_ok) refuse(ir, cpu, status, message.text());
  if (report) *report = {std::string(message.text()), times.parse_ms, times.passes_ms, times.codegen_ms};
}

}  // namespace

LoadedObject::~LoadedObject() {
  if (handle_) llvm_module().unload(static_cast<attile_llvm_loaded*>(handle_));
}

void* LoadedObject::symbol(std::string_view name) const {
  void* address = nullptr;
  if (handle_) address = llvm_module().lookup(static_cast<attile_llvm_loaded*>(handle_), std::string(name).c_str());
  if (!address)
    throw Error(ErrorKind::internal, "load a CPU kernel", fmt::format("the object does not define '{}'", name), "");
  return address;
}

// Constructed before use and never destroyed: a thread may compile while the process exits.
OrcCompiler& OrcCompiler::instance() {
  static auto* compiler = new OrcCompiler();
  return *compiler;
}

std::string OrcCompiler::version() { return llvm_module().version(); }
std::string OrcCompiler::module_path() { return llvm_module().path; }
std::vector<std::string> OrcCompiler::module_places() { return llvm_module_places(); }

std::vector<std::byte> OrcCompiler::compile(std::string_view ir, const HostCpu& cpu, CompileReport* report) {
  Buffer output(llvm_module());
  run(ir, cpu, attile_llvm_object, output, report);
  std::vector<std::byte> object(output.raw.size);
  std::memcpy(object.data(), output.raw.data, output.raw.size);
  return object;
}

std::string OrcCompiler::assembly(std::string_view ir, const HostCpu& cpu) {
  Buffer output(llvm_module());
  run(ir, cpu, attile_llvm_assembly, output, nullptr);
  return std::string(output.text());
}

std::string OrcCompiler::optimised(std::string_view ir, const HostCpu& cpu) {
  Buffer output(llvm_module());
  run(ir, cpu, attile_llvm_optimised_ir, output, nullptr);
  return std::string(output.text());
}

LoadedObject OrcCompiler::load(std::span<const std::byte> object) {
  attile_llvm_loaded* loaded = nullptr;
  Buffer message(llvm_module());
  int status = llvm_module().load(reinterpret_cast<const char*>(object.data()), object.size(), &loaded, &message.raw);
  if (status == attile_llvm_no_memory) throw Error(ErrorKind::resource, "load a CPU kernel", "out of memory", "");
  if (status != attile_llvm_ok)
    throw Error(ErrorKind::environment, "load a CPU kernel",
                fmt::format("the object cannot be loaded: {}", message.text()),
                "clear the kernel cache with 'attile cache clear'");
  return LoadedObject(loaded);
}

}  // namespace v1
}  // namespace attile
