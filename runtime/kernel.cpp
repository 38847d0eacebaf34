#include "runtime/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <unordered_map>

#include "dsl/derive.h"
#include "dsl/error.h"
#include "runtime/bind.h"
#include "runtime/cache.h"
#include "runtime/host_cpu.h"
#include "runtime/orc_compiler.h"
#include "runtime/parallel_for.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

using KernelFunction = void(const std::uint64_t* args, std::int64_t task, void* scratch);

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
  KernelFunction* function = nullptr;
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
  loaded.function = loaded.object.function<KernelFunction>(k.name);
  info.load_ms += elapsed_ms(load_start);
  return loaded;
}

}  // namespace

struct Kernel::State {
  Program program;
  std::optional<SplitAlgorithm> parts;   // with splits: what the two kernels compute
  std::vector<LoadedKernel> kernels;
  BuildInfo info;

  void launch(std::size_t number, const Algorithm& a, const CallSizes& sizes, const Arguments& arguments) const {
    const EmittedKernel& k = program.kernels[number];
    KernelFunction* function = kernels[number].function;
    const std::vector<std::uint64_t> block = argument_block(k, a, program.problem, sizes, arguments);
    const std::int64_t tasks = task_count(k, a, program.problem, sizes);
    parallel_for(tasks, [&](std::int64_t task, int) {
      function(block.data(), task, worker_scratch(static_cast<std::size_t>(k.scratch_bytes)));
    });
  }
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
    auto state = std::make_shared<State>();
    state->program = generate(a, p, schedule, target);
    if (schedule.splits > 1) state->parts = split(a);
    state->info.generate_ms = elapsed_ms(start);
    state->info.from_disk = true;
    for (const EmittedKernel& k : state->program.kernels) state->kernels.push_back(load(k, state->info));
    const std::lock_guard lock(mutex);
    kernels[key] = std::move(state);
  });
  const std::lock_guard lock(mutex);
  return Kernel(kernels.at(key));
}

const Program& Kernel::program() const { return state_->program; }
const BuildInfo& Kernel::build_info() const { return state_->info; }

namespace {

// Tensors of the partial results: [batch][head][row][x][part]-like, with `part` as the last stride for the writer and
// as a dim of its own for the merge.
struct Parts {
  std::vector<std::vector<float>> memory;
  Arguments writes, reads;
};

std::int64_t extent_of(const Dim& d, const Algorithm& a, const Problem& p, const CallSizes& sizes) {
  if (d == batch) return a.lengths == Lengths::packed ? 1 : sizes.sequences;
  if (d == head) return sizes.heads;
  if (d == a.parallel) return sizes.rows;
  if (d == part) return sizes.parts;
  return p.extents.at(d.name);
}

// Feature dims innermost, then `part`, then the rest in order.
std::vector<std::int64_t> part_strides(const Dims& dims, const std::vector<std::int64_t>& extents, const Problem& p) {
  std::vector<std::int64_t> strides(dims.size(), 0);
  std::int64_t next = 1;
  const auto place = [&](auto&& wanted) {
    for (std::size_t i = dims.size(); i-- > 0;)
      if (wanted(dims[i])) {
        strides[i] = next;
        next *= extents[i];
      }
  };
  const auto is_feature = [&](const Dim& d) { return p.extents.contains(d.name); };
  place(is_feature);
  place([&](const Dim& d) { return d == part; });
  place([&](const Dim& d) { return d != part && !is_feature(d); });
  return strides;
}

Parts make_parts(const SplitAlgorithm& split, const Problem& p, const CallSizes& sizes) {
  Parts out;
  for (const OutputDecl& o : split.partial.outputs) {
    const Dims& merge_dims = split.merge.find_input(o.name)->dims;
    std::vector<std::int64_t> extents;
    std::size_t count = 1;
    for (const Dim& d : merge_dims) {
      extents.push_back(extent_of(d, split.partial, p, sizes));
      count *= static_cast<std::size_t>(extents.back());
    }
    const std::vector<std::int64_t> strides = part_strides(merge_dims, extents, p);
    out.memory.emplace_back(count);
    out.reads.tensor(o.name, strided(out.memory.back().data(), DType::float32, extents, strides));
    // The writer sees its own dims, with the stride of `part` after the last of them.
    TensorRef writer;
    writer.data = out.memory.back().data();
    for (const Dim& d : o.value->dims)
      for (std::size_t i = 0; i < merge_dims.size(); ++i)
        if (merge_dims[i] == d) {
          writer.shape[static_cast<std::size_t>(writer.rank)] = extents[i];
          writer.strides[static_cast<std::size_t>(writer.rank++)] = strides[i];
        }
    for (std::size_t i = 0; i < merge_dims.size(); ++i)
      if (merge_dims[i] == part) {
        writer.shape[static_cast<std::size_t>(writer.rank)] = extents[i];
        writer.strides[static_cast<std::size_t>(writer.rank++)] = strides[i];
      }
    out.writes.tensor(o.name, writer);
  }
  return out;
}

// Those of `from` that `a` declares as inputs or outputs.
void add_declared(Arguments& to, const Algorithm& a, const Arguments& from) {
  for (const auto& t : from.tensors) {
    const bool output = std::any_of(a.outputs.begin(), a.outputs.end(), [&](const OutputDecl& o) { return o.name == t.name; });
    if (output || a.find_input(t.name)) to.tensors.push_back(t);
  }
  for (const auto& n : from.numbers) to.numbers.push_back(n);
}

}  // namespace

void Kernel::run(const Arguments& arguments) const {
  const Program& program = state_->program;
  CallSizes sizes = check_call(program.algorithm, program.problem, arguments);
  if (!state_->parts) return state_->launch(0, program.algorithm, sizes, arguments);
  sizes.parts = program.schedule.splits;
  Parts parts = make_parts(*state_->parts, program.problem, sizes);
  add_declared(parts.writes, state_->parts->partial, arguments);
  add_declared(parts.reads, state_->parts->merge, arguments);
  state_->launch(0, state_->parts->partial, sizes, parts.writes);
  sizes.positions = sizes.parts;   // the merge streams over the parts
  sizes.parts = 1;
  state_->launch(1, state_->parts->merge, sizes, parts.reads);
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
  for (const OutputDecl& output : a.outputs) look(output.name, output.value->dims);
  for (const Dim& d : compiled_dims(a))
    if (const auto it = seen.find(d.name); it != seen.end()) p.extents[d.name] = it->second;
  const auto heads = seen.find(head.name), kv_heads = seen.find(kv_head.name);
  if (heads != seen.end() && kv_heads != seen.end() && kv_heads->second > 0) {
    if (heads->second % kv_heads->second != 0)
      throw Error(ErrorKind::argument, a.name, fmt::format("{} query heads are no multiple of {} kv heads", heads->second, kv_heads->second));
    p.group = std::max<std::int64_t>(heads->second / kv_heads->second, 1);
  }
  const auto rows = seen.find(a.parallel.name);
  p.few_rows = a.lengths != Lengths::packed && rows != seen.end() && rows->second * p.group <= 8;
  return p;
}

}  // namespace v1
}  // namespace attile
