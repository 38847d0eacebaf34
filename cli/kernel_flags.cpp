#include "cli/kernel_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "autotune/results.h"
#include "autotune/stored_choice.h"
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
                 fmt::format("A chip that need not be here: {}; host is this CPU (what --device says)",
                             fmt::join(target_names(), ", ")))
      ->type_name("CHIP")
      ->group("Machine");
}

Chip chip_of(const KernelFlags& flags) {
  if (!flags.target.empty() && flags.machine.device != "auto")
    throw Error(ErrorKind::argument, "--target", "--device is given too, and says the chip already",
                "leave one of the two out");
  const bool named = !flags.target.empty() && flags.target != "host";
  if (!named) {
    MachineFlags machine = flags.machine;
    if (flags.target == "host") machine.device = "cpu";
    const Device device = use_machine(machine);
    const bool gpu = device.kind == Device::Kind::cuda;
    return {target_of(device), gpu ? HostCpu{} : host_cpu(), device};
  }
  Chip chip{target_from_name(flags.target), {}, {}};
  if (chip.target.family == TargetFamily::cuda) return chip;
  chip.cpu = named_cpu(chip.target.llvm_cpu);
  chip.cpu.features = chip.target.llvm_features;
  return chip;
}

KernelSource kernel_source(const KernelFlags& flags) {
  const DType out =
      flags.attention.dtype.empty() ? DType::float32 : parse_float_dtype(flags.attention.dtype, "--dtype");
  const CallData data(flags.attention, Contents::shapes, flags.lse, out);
  KernelSource source{attention(attention_options(data.call())), {}, {}, {}, chip_of(flags), data.problem_text()};
  source.problem = problem_of(source.algorithm, attention_arguments(data.call()));
  source.problem.tf32 = data.call().tf32;
  const std::optional<Schedule> chosen = chosen_schedule(flags.machine, source.chip.target);
  source.schedule = chosen ? *chosen : default_schedule(source.algorithm, source.problem, source.chip.target);
  if (chosen || !source.chip.device || tuning() == Tuning::never) return source;
  AttentionCall call = data.call();
  call.device = *source.chip.device;
  if (auto known = explained_choice(result_folder(), source.algorithm, source.problem, source.chip.target, call))
    source.schedule = known->schedule, source.tuned = known->from;
  return source;
}

}  // namespace attile::cli
