// IR text to object bytes or assembly: parse, verify, short pipeline, code generation at the highest level.
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "llvm/ADT/SmallVector.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/MemoryBufferRef.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"
#include "runtime/llvm/llvm_passes.h"
#include "runtime/llvm/llvm_support.h"

namespace attile_llvm {
namespace {

constexpr const char* triple_text = "x86_64-unknown-linux-gnu";

#if LLVM_VERSION_MAJOR >= 18
constexpr auto highest_level = llvm::CodeGenOptLevel::Aggressive;
constexpr auto object_file = llvm::CodeGenFileType::ObjectFile;
constexpr auto assembly_file = llvm::CodeGenFileType::AssemblyFile;
#else
constexpr auto highest_level = llvm::CodeGenOpt::Aggressive;
constexpr auto object_file = llvm::CGFT_ObjectFile;
constexpr auto assembly_file = llvm::CGFT_AssemblyFile;
#endif

struct Failure {
  int status;
  std::string text;
};

struct Diagnostics {
  std::string text;
  bool failed = false;
};

void on_diagnostic(
#if LLVM_VERSION_MAJOR >= 19
    const llvm::DiagnosticInfo* info,
#else
    const llvm::DiagnosticInfo& info_reference,
#endif
    void* context) {
#if LLVM_VERSION_MAJOR < 19
  const llvm::DiagnosticInfo* info = &info_reference;
#endif
  if (info->getSeverity() != llvm::DS_Error && info->getSeverity() != llvm::DS_Warning) return;
  auto& diagnostics = *static_cast<Diagnostics*>(context);
  bool error = info->getSeverity() == llvm::DS_Error;
  diagnostics.failed |= error;
  llvm::raw_string_ostream out(diagnostics.text);
  out << (error ? "error: " : "warning: ");
  llvm::DiagnosticPrinterRawOStream printer(out);
  info->print(printer);
  out << "\n";
}

std::unique_ptr<llvm::TargetMachine> make_machine(const attile_llvm_request& request) {
  std::string error;
#if LLVM_VERSION_MAJOR >= 21
  llvm::Triple triple(triple_text);
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
#else
  llvm::StringRef triple(triple_text);
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple_text, error);
#endif
  if (!target) throw Failure{attile_llvm_backend_error, error};
  llvm::TargetOptions options;
  // Asked first, since the machine itself would only print to stderr and go on with another CPU.
  std::unique_ptr<llvm::MCSubtargetInfo> known(target->createMCSubtargetInfo(triple, "", ""));
  if (!known || !known->isCPUStringValid(request.cpu))
    throw Failure{attile_llvm_bad_text,
                  std::string("LLVM " LLVM_VERSION_STRING " does not know the CPU '") + request.cpu + "'"};
  // Position independent and small: the object may be mapped anywhere, its externals are reached through stubs.
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, request.cpu, request.features ? request.features : "", options,
                                  llvm::Reloc::PIC_, llvm::CodeModel::Small, highest_level));
  if (!machine) throw Failure{attile_llvm_backend_error, "no target machine for x86-64"};
  return machine;
}

std::unique_ptr<llvm::Module> parse(const attile_llvm_request& request, llvm::LLVMContext& context,
                                    const std::string& layout) {
  llvm::SMDiagnostic diagnostic;
  auto module =
      llvm::parseAssembly(llvm::MemoryBufferRef(llvm::StringRef(request.ir, request.ir_size), "kernel.ll"), diagnostic,
                          context, nullptr, [&](auto&&...) -> std::optional<std::string> { return layout; });
  std::string text;
  llvm::raw_string_ostream out(text);
  if (!module) {
    diagnostic.print(nullptr, out, /*ShowColors=*/false);
    throw Failure{attile_llvm_bad_text, out.str()};
  }
  if (llvm::verifyModule(*module, &out)) throw Failure{attile_llvm_bad_text, out.str()};
  return module;
}

// An intrinsic the CPU lacks is undefined behaviour inside LLVM, not a diagnostic; so it is refused here.
void check_intrinsics(const llvm::Module& module, const llvm::TargetMachine& machine) {
  constexpr std::pair<const char*, const char*> needs[] = {
      {"avx512bf16", "+avx512bf16"},
      {"avx512fp16", "+avx512fp16"},
      {"avx512", "+avx512f"},
      {"avx2", "+avx2"},
      {"avx", "+avx"},
      {"fma", "+fma"},
      {"vcvtps2ph", "+f16c"},
      {"vcvtph2ps", "+f16c"},
  };
  for (const llvm::Function& function : module) {
    llvm::StringRef name = function.getName();
    if (!name.consume_front("llvm.x86.")) continue;
    llvm::StringRef extension = name.split('.').first;
    for (auto [prefix, feature] : needs)
      if (extension == prefix && !machine.getMCSubtargetInfo()->checkFeatures(feature))
        throw Failure{attile_llvm_bad_text, (function.getName() + " needs " + (feature + 1) + ", which the CPU " +
                                             machine.getTargetCPU() + " lacks")
                                                .str()};
  }
}

void set_target(llvm::Module& module, const llvm::TargetMachine& machine, const char* tune) {
  module.setTargetTriple(machine
                             .getTargetTriple()
#if LLVM_VERSION_MAJOR < 21
                             .str()
#endif
  );
  module.setDataLayout(machine.createDataLayout());
  if (!tune || !*tune || !machine.getMCSubtargetInfo()->isCPUStringValid(tune)) return;
  for (llvm::Function& function : module)
    if (!function.isDeclaration() && !function.hasFnAttribute("tune-cpu")) function.addFnAttr("tune-cpu", tune);
}

std::string generate(llvm::Module& module, llvm::TargetMachine& machine, int output) {
  if (output == attile_llvm_optimised_ir) {
    std::string text;
    llvm::raw_string_ostream out(text);
    module.print(out, nullptr);
    return out.str();
  }
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  auto kind = output == attile_llvm_assembly ? assembly_file : object_file;
  if (machine.addPassesToEmitFile(passes, out, nullptr, kind, /*DisableVerify=*/true))
    throw Failure{attile_llvm_backend_error, "this code generator writes no such file"};
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

// Owns everything of one compile; after a fatal error LLVM's state is unknown, so it is abandoned, not destroyed.
struct Job {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::Module> module;
};

std::string compile(const attile_llvm_request& request, Job& job, Diagnostics& diagnostics, attile_llvm_times& times) {
  Stopwatch watch;
  job.context.setDiagnosticHandlerCallBack(on_diagnostic, &diagnostics);
  job.machine = make_machine(request);
  job.module = parse(request, job.context, job.machine->createDataLayout().getStringRepresentation());
  check_intrinsics(*job.module, *job.machine);
  set_target(*job.module, *job.machine, request.tune);
  times.parse_ms = watch.lap();
  run_passes(*job.module, *job.machine);
  times.passes_ms = watch.lap();
  std::string bytes = generate(*job.module, *job.machine, request.output);
  times.codegen_ms = watch.lap();
  if (diagnostics.failed) throw Failure{attile_llvm_backend_error, ""};
  return bytes;
}

int guarded(const attile_llvm_request& request, attile_llvm_buffer& output, attile_llvm_buffer& message,
            attile_llvm_times& times) {
  Diagnostics diagnostics;
  std::unique_ptr<Job> job;
  try {
    initialize();
    job = std::make_unique<Job>();
    std::string bytes = compile(request, *job, diagnostics, times);
    output = to_buffer(bytes);
    message = to_buffer(diagnostics.text);
    return output.data ? attile_llvm_ok : attile_llvm_no_memory;
  } catch (const Failure& failure) {
    message = to_buffer(diagnostics.text + failure.text);
    return failure.status;
  } catch (const FatalError& fatal) {
    static_cast<void>(job.release());
    message = to_buffer(diagnostics.text + fatal.text);
    return attile_llvm_backend_error;
  }
}

}  // namespace
}  // namespace attile_llvm

ATTILE_LLVM_EXPORT int attile_llvm_compile(const attile_llvm_request* request, attile_llvm_buffer* output,
                                           attile_llvm_buffer* message, attile_llvm_times* times) {
  *output = *message = {nullptr, 0};
  *times = {0, 0, 0};
  try {
    const attile_llvm::Inside inside;
    return attile_llvm::guarded(*request, *output, *message, *times);
  } catch (const std::bad_alloc&) {
    return attile_llvm_no_memory;
  } catch (...) {
    return attile_llvm_backend_error;
  }
}
