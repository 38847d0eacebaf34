#include "runtime/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <unordered_map>

#include "dsl/derive.h"
#include "dsl/error.h"
#include "runtime/bind.h"
#include "runtime/cache.h"
#include "runtime/few_rows.h"
#include "runtime/host_cpu.h"
#include "runtime/launch.h"
#include "runtime/orc_compiler.h"
#include "runtime/parts.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

double elapsed_ms(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

CacheEntry compile(const EmittedKernel& k, const HostCpu& cpu) {
  CompileReport report;
  CacheEntry entry;
  entry.files["kernel.o"] = text_of(OrcCompiler::instance().compile(k.text, cpu, &report));
  entry.files["kernel.ll"] = k.text;
  entry.files["kernel.ir"] = k.ir;
  entry.files["compile.log"] = report.warnings;
  return entry;
}

struct LoadedKernel {
  LoadedObject object;
  LaunchPlan::Function* function = nullptr;
};

LoadedKernel load(const EmittedKernel& k, BuildInfo& info) {
  const HostCpu& cpu = host_cpu();
  OrcCompiler& compiler = OrcCompiler::instance();
  const auto compile_start = std::chrono::steady_clock::now();
  const CacheKey key{k.name, {{"text", k.text}, {"target", cpu.isa()}, {"compiler", "LLVM " + compiler.version()}, {"library", ATTILE_VERSION}}};
  bool hit = false;
  const auto cache = kernel_cache();
  const CacheEntry entry = cache->get_or_build(key, [&] { return compile(k, cpu); }, &hit);
  info.compile_ms += elapsed_ms(compile_start);
  info.from_disk = info.from_disk && hit;
  const auto load_start = std::chrono::steady_clock::now();
  LoadedKernel loaded;
  loaded.object = compiler.load(bytes_of(entry.files.at("kernel.o")));
  loaded.function = loaded.object.function<LaunchPlan::Function>(k.name);
  info.load_ms += elapsed_ms(load_start);
  return loaded;
}

}  // namespace

struct Kernel::State {
  Program program;
  std::vector<LoadedKernel> kernels;
  BuildInfo info;
  CallPlan call;
  std::optional<PartsPlan> parts;        // with splits: what lies between the two kernels
  std::vector<LaunchPlan> launches;      // one per kernel

  State(Program made, double generate_ms) : program(std::move(made)), call(program.algorithm, program.problem) {
    info.generate_ms = generate_ms;
    info.from_disk = true;
    load_all();
    std::optional<SplitAlgorithm> split_algorithm;
    if (program.schedule.splits > 1) split_algorithm = split(program.algorithm);
    if (split_algorithm) parts.emplace(*split_algorithm, program.problem);
    const auto tensor = [&](std::string_view name) {   // those of the call, then the parts or the packed operands
      const int found = parts ? parts->tensor(name) : packed_operand(name);
      return found >= 0 ? call.tensor_count() + found : call.tensor(name);
    };
    const auto number = [&](std::string_view name) { return call.number(name); };
    for (std::size_t i = 0; i < program.kernels.size(); ++i) {
      const Algorithm& a = !split_algorithm ? program.algorithm : i == 0 ? split_algorithm->partial : split_algorithm->merge;
      launches.emplace_back(program.kernels[i], a, program.problem, tensor, number);
    }
  }

  // Every kernel is compiled on a thread of its own: a first call waits for the longest only.
  void load_all() {
    std::vector<BuildInfo> infos(program.kernels.size(), info);
    std::vector<std::future<LoadedKernel>> pending;
    for (std::size_t i = 1; i < program.kernels.size(); ++i)
      pending.push_back(std::async(std::launch::async, [&, i] { return load(program.kernels[i], infos[i]); }));
    kernels.push_back(load(program.kernels[0], infos[0]));
    for (auto& other : pending) kernels.push_back(other.get());
    for (const BuildInfo& one : infos) {
      info.from_disk = info.from_disk && one.from_disk;
      info.compile_ms = std::max(info.compile_ms, one.compile_ms);
      info.load_ms = std::max(info.load_ms, one.load_ms);
    }
  }

  // Memory of a call beside its tensors: "work.states" with order keys_outer, which packs nothing ahead.
  int packed_operand(std::string_view name) const {
    if (name == "work.states" && program.kernels.front().state_bytes > 0) return 0;
    for (std::size_t i = 0; i < program.packed.size(); ++i)
      if (program.packed[i].name == name) return static_cast<int>(i);
    return -1;
  }

  void launch(std::size_t i, const BoundCall& bound) const { launches[i].launch(kernels[i].function, bound.sizes, bound.tensors, bound.numbers); }
};

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

Kernel Kernel::get(const Algorithm& a, const Problem& p, const std::optional<Schedule>& s) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::shared_ptr<std::once_flag>> flags;
  static std::unordered_map<std::string, std::shared_ptr<const State>> kernels;

  const Target& target = host_target();
  const Schedule schedule = s ? *s : default_schedule(a, p, target);
  const std::string key = to_string(a) + "\n" + to_string(p) + "\n" + to_string(schedule) + "\n" + to_string(target);
  std::shared_ptr<std::once_flag> once;
  {
    const std::lock_guard lock(mutex);
    if (const auto it = kernels.find(key); it != kernels.end()) return Kernel(it->second);
    auto& flag = flags[key];
    if (!flag) flag = std::make_shared<std::once_flag>();
    once = flag;
  }
  std::call_once(*once, [&] {   // a build that throws leaves the flag open for the next caller
    const auto start = std::chrono::steady_clock::now();
    Program program = generate(a, p, schedule, target);
    auto state = std::make_shared<State>(std::move(program), elapsed_ms(start));
    const std::lock_guard lock(mutex);
    kernels[key] = std::move(state);
  });
  const std::lock_guard lock(mutex);
  return Kernel(kernels.at(key));
}

const Program& Kernel::program() const { return state_->program; }
const BuildInfo& Kernel::build_info() const { return state_->info; }

void Kernel::run(const Arguments& arguments) const {
  BoundCall bound;
  state_->call.bind(arguments, bound);
  if (!state_->program.packed.empty()) return run_packed(arguments, bound);
  if (state_->program.kernels.front().state_bytes > 0) return run_with_states(bound);
  if (!state_->parts) return state_->launch(0, bound);
  const PartsPlan& parts = *state_->parts;
  bound.sizes.parts = state_->program.schedule.splits;
  const Workspace workspace(parts.bytes(bound.sizes));
  std::pmr::vector<TensorRef> views(2 * parts.count(), TensorRef{}, bound.pool());
  TensorRef* const writes = views.data();
  TensorRef* const reads = writes + parts.count();
  parts.place(bound.sizes, workspace.data(), writes, reads);
  const std::size_t own = bound.tensors.size();
  for (std::size_t i = 0; i < parts.count(); ++i) bound.tensors.push_back(writes + i);
  state_->launch(0, bound);
  for (std::size_t i = 0; i < parts.count(); ++i) bound.tensors[own + i] = reads + i;
  bound.sizes.positions = bound.sizes.parts;   // what the merge streams over
  state_->launch(1, bound);
}

// With order keys_outer: the states of all rows stand in memory between two tiles of the stream.
void Kernel::run_with_states(BoundCall& bound) const {
  const std::int64_t tiles = state_->launches.front().all_row_tiles(bound.sizes);
  const Workspace workspace(static_cast<std::size_t>(state_->program.kernels.front().state_bytes * tiles));
  TensorRef states;
  states.data = workspace.data();
  bound.tensors.push_back(&states);
  state_->launch(0, bound);
}

// Packs K and V for all tasks, unless that would take more memory than packed operands may have: then a twin of this
// kernel packs tile by tile.
void Kernel::run_packed(const Arguments& arguments, BoundCall& bound) const {
  const Program& program = state_->program;
  const Lengths lengths = program.algorithm.lengths;
  CallSizes& sizes = bound.sizes;
  sizes.key_tiles = key_tiles(lengths, sizes.positions, sizes.sequences, program.schedule.tile_keys);
  const std::int64_t tiles = sizes.key_tiles * sizes.kv_heads * (lengths == Lengths::packed ? 1 : sizes.sequences);
  std::int64_t bytes = 0;
  for (const PackedOperand& operand : program.packed) bytes += operand.tile_bytes * tiles;
  if (bytes > packed_bytes_limit) {
    Schedule in_task = program.schedule;
    in_task.pack_ahead = false;
    return get(program.algorithm, program.problem, made_legal(program.algorithm, program.problem, in_task, program.target)).run(arguments);
  }
  const Workspace workspace(static_cast<std::size_t>(bytes));
  std::pmr::vector<TensorRef> operands(program.packed.size(), TensorRef{}, bound.pool());
  std::byte* at = workspace.data();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    operands[i].data = at;
    at += program.packed[i].tile_bytes * tiles;
    bound.tensors.push_back(&operands[i]);
  }
  state_->launch(0, bound);
  state_->launch(1, bound);
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
