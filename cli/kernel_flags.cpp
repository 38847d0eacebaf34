#include "cli/kernel_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/call_data.h"
#include "dsl/error.h"
#include "runtime/kernel.h"

namespace attile::cli {

void add_kernel_flags(CLI::App& app, KernelFlags& flags) {
  add_size_flags(app, flags.attention);
  add_variant_flags(app, flags.attention);
  app.add_option("--out-dtype", flags.attention.out_dtype, "Type of the output (as --dtype)")
      ->type_name("TYPE")
      ->group("Attention");
  app.add_flag("--lse", flags.lse, "With the log-sum-exp as a second output")->group("Attention");
  add_device_flag(app, flags.machine);
  add_schedule_flag(app, flags.machine);
}

void add_target_flag(CLI::App& app, KernelFlags& flags) {
  app.add_option("--target", flags.target,
                 fmt::format("host, or a chip that need not be here: {}", fmt::join(target_names(), ", ")))
      ->type_name("CHIP")
      ->group("Machine");
}

Chip chip_of(const std::string& name) {
  if (name == "host") return {host_target(), host_cpu()};
  if (name.starts_with("sm_"))
    throw Error(ErrorKind::unsupported, "--target",
                fmt::format("{} is not in this build: it has the CPU back end only", name),
                fmt::format("known are {}", fmt::join(target_names(), ", ")));
  Chip chip{target_from_name(name), {}};
  chip.cpu = named_cpu(chip.target.llvm_cpu);
  chip.cpu.features = chip.target.llvm_features;
  return chip;
}

KernelSource kernel_source(const KernelFlags& flags) {
  use_machine(flags.machine);
  const DType out =
      flags.attention.dtype.empty() ? DType::float32 : parse_float_dtype(flags.attention.dtype, "--dtype");
  const CallData data(flags.attention, Contents::shapes, flags.lse, out);
  KernelSource source{attention(attention_options(data.call())), {}, {}, chip_of(flags.target), data.problem_text()};
  source.problem = problem_of(source.algorithm, attention_arguments(data.call()));
  const std::optional<Schedule> chosen = chosen_schedule(flags.machine, source.chip.target);
  source.schedule = chosen ? *chosen : default_schedule(source.algorithm, source.problem, source.chip.target);
  return source;
}

}  // namespace attile::cli
