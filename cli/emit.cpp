// attile emit: the text of a kernel at any stage; nothing is compiled but for asm, and the chip need not be here.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/kernel_flags.h"
#include "cli/output_file.h"
#include "codegen/lower.h"
#include "codegen/program.h"
#include "dsl/derive.h"
#include "dsl/error.h"
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
  Algorithm algorithm = s.algorithm;
  Problem problem = s.problem;
  if (s.schedule.splits > 1) {
    algorithm = split(s.algorithm).partial;
    for (const OutputDecl& o : algorithm.outputs) problem.dtypes[o.name] = DType::float32;
  }
  std::string text;
  ir::lower({algorithm, problem, s.schedule, s.chip.target}, [&](std::string_view pass, const ir::Kernel& kernel) {
    if (wanted == "all" || wanted == pass) text += fmt::format("after {}\n{}\n", pass, ir::print(kernel));
  });
  return text;
}

std::string text_of(const KernelSource& s, const std::string& stage) {
  if (stage == "algorithm") return to_string(s.algorithm);
  std::string text;
  for (const EmittedKernel& kernel : generate(s.algorithm, s.problem, s.schedule, s.chip.target).kernels) {
    if (!text.empty()) text += "\n";
    text += stage == "ir"     ? kernel.ir
            : stage == "llvm" ? kernel.text
                              : OrcCompiler::instance().assembly(kernel.text, s.chip.cpu);
  }
  return text;
}

void check_stage(const std::string& stage) {
  for (const char* other : {"cuda", "ptx", "sass"})
    if (stage == other)
      throw Error(ErrorKind::unsupported, "--stage",
                  fmt::format("{} is not in this build: it has the CPU back end only", stage),
                  "known are algorithm, ir, llvm and asm");
  for (const char* known : {"algorithm", "ir", "llvm", "asm"})
    if (stage == known) return;
  throw Error(ErrorKind::argument, "--stage", fmt::format("\"{}\" is no stage", stage),
              "known are algorithm, ir, llvm, asm, cuda, ptx and sass");
}

int run(const EmitFlags& f) {
  check_stage(f.stage);
  const KernelSource source = kernel_source(f.kernel);
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
  verb.add_option("--stage", flags->stage, "algorithm, ir, llvm or asm; cuda, ptx and sass with a GPU back end (ir)")
      ->type_name("STAGE");
  verb.add_option("--pass", flags->pass, fmt::format("The IR after each pass of the lowering: all, {}", pass_names()))
      ->type_name("NAME");
  verb.add_option("--out", flags->out, "Where the text goes (standard output)")->type_name("FILE");
  add_target_flag(verb, flags->kernel);
  add_kernel_flags(verb, flags->kernel);
  return [flags] { return run(*flags); };
}

}  // namespace attile::cli
