#include "runtime/kernel.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "dsl/derive.h"
#include "dsl/error.h"
#include "runtime/cuda_device.h"
#include "runtime/few_rows.h"
#include "runtime/fork_mutex.h"
#include "runtime/host_cpu.h"
#include "runtime/kernel_state.h"
#include "runtime/may_build.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {

double elapsed_ms(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

KernelState::KernelState(Program made, CallPlan::Memory memory)
    : program(std::move(made)), call(program.algorithm, program.problem, memory) {
  std::optional<SplitAlgorithm> split_algorithm;
  if (program.schedule.splits != 1) split_algorithm = split(program.algorithm);
  if (split_algorithm) parts.emplace(*split_algorithm, program.problem);
  const auto tensor = [&](std::string_view name) {   // those of the call, then the parts or the packed operands
    const int found = parts ? parts->tensor(name) : work_operand(name);
    return found >= 0 ? call.tensor_count() + found : call.tensor(name);
  };
  const auto number = [&](std::string_view name) { return call.number(name); };
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    const Algorithm& a = !split_algorithm ? program.algorithm : i == 0 ? split_algorithm->partial : split_algorithm->merge;
    launches.emplace_back(program.kernels[i], a, program.problem, tensor, number);
  }
}

// Memory of a call beside its tensors: "work.states" with order keys_outer, which packs nothing ahead.
int KernelState::work_operand(std::string_view name) const {
  if (name == "work.states" && program.kernels.front().state_bytes > 0) return 0;
  for (std::size_t i = 0; i < program.packed.size(); ++i)
    if (program.packed[i].name == name) return static_cast<int>(i);
  return -1;
}

const Target& host_target() {
  static const Target target = [] {
    const HostCpu& cpu = host_cpu();
    const bool wide = cpu.vector_bytes == 64;
    const bool bf16 = wide && cpu.has("avx512bf16");
    if (cpu.vector_bytes < 32 || !cpu.has("fma"))
      throw Error(ErrorKind::unsupported, "host_target", fmt::format("this CPU ({}) has no AVX2 with FMA", cpu.model), "x86-64-v3 is the least that kernels need");
    Target t = target_from_name(bf16 ? "x86-64-v4-bf16" : wide ? "x86-64-v4" : "x86-64-v3");
    if (cpu.l1d_bytes > 0) t.l1_bytes = cpu.l1d_bytes;
    if (cpu.l2_bytes > 0) t.l2_bytes = cpu.l2_bytes;
    return t;
  }();
  return target;
}

// A GPU is known by its facts; the table's chip of that name only says which schedules are meant for it.
static Target cuda_target(const CudaDevice& device) {
  Target t;
  t.family = TargetFamily::cuda;
  t.name = t.arch = device.arch();
  t.multiprocessors = device.sms;
  t.shared_bytes = device.shared_per_block_optin;
  t.shared_per_sm = device.shared_per_sm;
  t.l2_bytes = device.l2_bytes;
  return t;
}

Target target_of(Device device) {
  return device.kind == Device::Kind::cpu ? host_target() : cuda_target(cuda_device(device.index));
}

Kernel Kernel::get(const Algorithm& a, const Problem& p, const std::optional<Schedule>& s, Device device) {
  static std::shared_mutex& mutex = mutex_of(Guarded::kernels);
  // By process too: a child of a fork must not wait for a thread that only its parent has.
  static std::map<std::pair<pid_t, std::string>, std::shared_ptr<std::once_flag>> flags;
  static std::unordered_map<std::string, std::shared_ptr<const KernelState>> kernels;

  const Target target = target_of(device);
  const Schedule schedule = s ? *s : default_schedule(a, p, target);
  const std::string key = to_string(a) + "\n" + to_string(p) + "\n" + to_string(schedule) + "\n" + to_string(target);
  std::shared_ptr<std::once_flag> once;
  {
    const std::lock_guard lock(mutex);
    if (const auto it = kernels.find(key); it != kernels.end()) return Kernel(it->second, device);
    auto& flag = flags[{::getpid(), key}];
    if (!flag) flag = std::make_shared<std::once_flag>();
    once = flag;
  }
  const auto make = [&] {
    const auto start = std::chrono::steady_clock::now();
    Program program = generate(a, p, schedule, target);
    const double generate_ms = elapsed_ms(start);
    auto state = target.family == TargetFamily::cuda ? make_cuda_kernel(std::move(program), generate_ms) : make_cpu_kernel(std::move(program), generate_ms);
    const std::lock_guard lock(mutex);
    kernels.try_emplace(key, std::move(state));
  };
  // Who may not build does not wait for who does. A build that throws leaves the flag open for the next caller.
  may_build() ? std::call_once(*once, make) : make();
  const std::lock_guard lock(mutex);
  return Kernel(kernels.at(key), device);
}

const Program& Kernel::program() const { return state_->program; }
const BuildInfo& Kernel::build_info() const { return state_->info; }

void Kernel::run(const Arguments& arguments, const RunOptions& options) const {
  BoundCall bound;
  state_->call.bind(arguments, bound);
  state_->run(arguments, bound, device_, options);
}

std::size_t Kernel::workspace_bytes(const Arguments& arguments) const {
  BoundCall bound;
  state_->call.bind(arguments, bound);
  return state_->workspace_bytes(bound, device_);
}

Problem problem_of(const Algorithm& a, const Arguments& arguments) {
  Problem p;
  std::map<std::string, std::int64_t> seen;
  const auto look = [&](const std::string& name, const Dims& dims) {
    for (const auto& t : arguments.tensors) {
      if (t.name != name) continue;
      p.dtypes[name] = t.tensor.dtype;
      for (std::size_t i = 0; i < dims.size() && static_cast<int>(i) < t.tensor.rank; ++i) seen.try_emplace(dims[i].name, t.tensor.shape[i]);
    }
  };
  for (const InputDecl& input : a.inputs) look(input.name, input.dims);
  for (const OutputDecl& output : a.outputs) look(output.name, output_dims(a, output));
  for (const Dim& d : compiled_dims(a))
    if (const auto it = seen.find(d.name); it != seen.end()) p.extents[d.name] = it->second;
  const auto heads = seen.find(head.name), kv_heads = seen.find(kv_head.name);
  if (heads != seen.end() && kv_heads != seen.end() && kv_heads->second > 0) {
    if (heads->second % kv_heads->second != 0)
      throw Error(ErrorKind::argument, a.name, fmt::format("{} query heads are no multiple of {} kv heads", heads->second, kv_heads->second));
    p.group = std::max<std::int64_t>(heads->second / kv_heads->second, 1);
  }
  const auto rows = seen.find(a.parallel.name);
  p.few_rows = rows != seen.end() && are_few_rows(a.lengths, rows->second, p.group);
  return p;
}

}  // namespace v1
}  // namespace attile
