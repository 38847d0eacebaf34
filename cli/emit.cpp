// attile emit: the text of a kernel at any stage; nothing is compiled but for asm, ptx and sass, and the chip need not
// be here.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "cli/command.h"
#include "cli/kernel_flags.h"
#include "cli/output_file.h"
#include "codegen/embedded.h"
#include "codegen/lower.h"
#include "codegen/lower_program.h"
#include "codegen/program.h"
#include "dsl/error.h"
#include "runtime/cuda_build.h"
#include "runtime/disassembler.h"
#include "runtime/nvrtc_compiler.h"
#include "runtime/orc_compiler.h"

namespace attile::cli {
namespace {

struct EmitFlags {
  KernelFlags kernel;
  std::string stage = "ir", pass, out;
};

std::string pass_names() {
  std::string names;
  for (const ir::Pass& pass : ir::passes()) names += fmt::format("{}{}", names.empty() ? "" : ", ", pass.name);
  return names;
}

// The IR after each pass, or after the one named. With splits: of the kernel that computes the parts.
std::string after_passes(const KernelSource& s, const std::string& wanted) {
  const bool known = wanted == "all" || pass_names().find(wanted) != std::string::npos;
  if (!known)
    throw Error(ErrorKind::argument, "--pass", fmt::format("\"{}\" is no pass", wanted),
                fmt::format("known are all, {}", pass_names()));
  generate(s.algorithm, s.problem, s.schedule, s.chip.target);  // refuses what is not legal, with all reasons
  const std::vector<ir::LoweredKernel> kernels = ir::lower_program(s.algorithm, s.problem, s.schedule, s.chip.target);
  const auto first = std::find_if(kernels.begin(), kernels.end(),
                                  [](const ir::LoweredKernel& k) { return k.role != ir::Role::packing; });
  std::string text;
  ir::lower(first->context(), [&](std::string_view pass, const ir::Kernel& kernel) {
    if (wanted == "all" || wanted == pass) text += fmt::format("after {}\n{}\n", pass, ir::print(kernel));
  });
  return text;
}

std::string ptx_of(const EmittedKernel& kernel, const std::string& arch) {
  return compile_cuda(kernel.text, kernel.name + ".cu", arch, embedded::device_files(), {.ptx = true}).ptx;
}

std::string sass_of(const EmittedKernel& kernel, const std::string& arch) {
  if (find_disassembler().empty()) return disassemble({});  // says what is missing before anything is compiled
  const CudaBuild build = build_cuda(kernel, arch);
  if (!build.resources_known)
    throw Error(ErrorKind::environment, "--stage", fmt::format("this NVRTC makes PTX only for {}: it is older", arch),
                "install a newer one: 'pip install --upgrade nvidia-cuda-nvrtc'");
  return disassemble(build.image);
}

std::string stage_of(const KernelSource& s, const EmittedKernel& kernel, const std::string& stage) {
  if (stage == "ir") return kernel.ir;
  if (stage == "llvm" || stage == "cuda") return kernel.text;
  if (stage == "ptx") return ptx_of(kernel, s.chip.target.arch);
  if (stage == "sass") return sass_of(kernel, s.chip.target.arch);
  return OrcCompiler::instance().assembly(kernel.text, s.chip.cpu);
}

std::string text_of(const KernelSource& s, const std::string& stage) {
  if (stage == "algorithm") return to_string(s.algorithm);
  std::string text;
  for (const EmittedKernel& kernel : generate(s.algorithm, s.problem, s.schedule, s.chip.target).kernels)
    text += (text.empty() ? "" : "\n") + stage_of(s, kernel, stage);
  return text;
}

constexpr std::array stages_of_all{"algorithm", "ir"}, stages_of_cpu{"llvm", "asm"};
constexpr std::array stages_of_gpu{"cuda", "ptx", "sass"};

bool is_among(const auto& stages, const std::string& stage) {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

void check_stage(const std::string& stage, TargetFamily family) {
  const bool gpu = family == TargetFamily::cuda;
  const auto refuse = [&](const std::string& what, const char* remedy) {
    throw Error(ErrorKind::argument, "--stage", what, remedy);
  };
  if (is_among(stages_of_all, stage)) return;
  if (is_among(stages_of_cpu, stage)) {
    if (gpu)
      refuse(fmt::format("{} is a stage of CPUs", stage), "known for a GPU are algorithm, ir, cuda, ptx and sass");
  } else if (is_among(stages_of_gpu, stage)) {
    if (!gpu) refuse(fmt::format("{} is a stage of GPUs", stage), "name one, such as --target sm_90");
  } else {
    refuse(fmt::format("\"{}\" is no stage", stage),
           "known are algorithm, ir, llvm and asm of a CPU, cuda, ptx and sass of a GPU");
  }
}

int run(EmitFlags f) {
  // Without a word about the chip, a stage of CPUs means this one's.
  if (f.kernel.target.empty() && f.kernel.machine.device == "auto" && is_among(stages_of_cpu, f.stage))
    f.kernel.machine.device = "cpu";
  const KernelSource source = kernel_source(f.kernel);
  check_stage(f.stage, source.chip.target.family);
  std::string text = f.pass.empty() ? text_of(source, f.stage) : after_passes(source, f.pass);
  if (!text.ends_with("\n")) text += "\n";
  if (f.out.empty()) {
    fmt::print("{}", text);
    return good;
  }
  OutputFile file(f.out);
  file.write(text);
  file.finish();
  return good;
}

}  // namespace

Action add_emit(CLI::App& verb) {
  auto flags = std::make_shared<EmitFlags>();
  verb.add_option("--stage", flags->stage, "algorithm, ir; llvm, asm of a CPU; cuda, ptx, sass of a GPU (ir)")
      ->type_name("STAGE");
  verb.add_option("--pass", flags->pass, fmt::format("The IR after each pass of the lowering: all, {}", pass_names()))
      ->type_name("NAME");
  verb.add_option("--out", flags->out, "Where the text goes (standard output)")->type_name("FILE");
  add_target_flag(verb, flags->kernel);
  add_kernel_flags(verb, flags->kernel);
  return [flags] { return run(*flags); };
}

}  // namespace attile::cli
