#include <future>

#include "runtime/cache.h"
#include "runtime/host_cpu.h"
#include "runtime/kernel_state.h"
#include "runtime/may_build.h"
#include "runtime/orc_compiler.h"

namespace attile {
inline namespace v1 {
namespace {

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

// From the disk where nothing may be built, at once.
CacheEntry entry_of(const CacheKey& key, const EmittedKernel& k, const HostCpu& cpu, bool& hit) {
  const auto cache = kernel_cache();
  if (may_build()) return cache->get_or_build(key, [&] { return compile(k, cpu); }, &hit);
  const std::unique_ptr<CacheEntry> found = cache->find(key);
  if (!found) refuse_to_build(k.name);
  hit = true;
  return std::move(*found);
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
  const CacheEntry entry = entry_of(key, k, cpu, hit);
  info.compile_ms += elapsed_ms(compile_start);
  info.from_disk = info.from_disk && hit;
  const auto load_start = std::chrono::steady_clock::now();
  LoadedKernel loaded;
  loaded.object = compiler.load(bytes_of(entry.files.at("kernel.o")));
  loaded.function = loaded.object.function<LaunchPlan::Function>(k.name);
  info.load_ms += elapsed_ms(load_start);
  return loaded;
}

class CpuKernel : public KernelState {
 public:
  CpuKernel(Program made, double generate_ms) : KernelState(std::move(made), CallPlan::Memory::host) {
    info.generate_ms = generate_ms;
    info.from_disk = true;
    load_all();
  }

  void run(const Arguments& arguments, BoundCall& bound, Device, const RunOptions&) const override {
    if (!program.packed.empty()) return run_packed(arguments, bound);
    if (program.kernels.front().state_bytes > 0) return run_with_states(bound);
    if (!in_parts()) return launch(0, bound);
    bound.sizes.parts = program.schedule.splits;
    const Workspace workspace(parts->bytes(bound.sizes));
    PartsTensors tensors(*parts, bound, workspace.data());
    launch(0, bound);
    tensors.read();
    launch(1, bound);
  }

 private:
  // Every kernel is compiled on a thread of its own: a first call waits for the longest only.
  void load_all() {
    std::vector<BuildInfo> infos(program.kernels.size(), info);
    std::vector<std::future<LoadedKernel>> pending;
    for (std::size_t i = 1; i < program.kernels.size(); ++i)
      pending.push_back(std::async(std::launch::async, [&, i, may = may_build()] {
        const BuildingRight right(may);
        return load(program.kernels[i], infos[i]);
      }));
    kernels_.push_back(load(program.kernels[0], infos[0]));
    for (auto& other : pending) kernels_.push_back(other.get());
    for (const BuildInfo& one : infos) {
      info.from_disk = info.from_disk && one.from_disk;
      info.compile_ms = std::max(info.compile_ms, one.compile_ms);
      info.load_ms = std::max(info.load_ms, one.load_ms);
    }
  }

  // With order keys_outer: the states of all rows stand in memory between two tiles of the stream.
  void run_with_states(BoundCall& bound) const {
    const std::int64_t tiles = launches.front().all_row_tiles(bound.sizes);
    const Workspace workspace(static_cast<std::size_t>(program.kernels.front().state_bytes * tiles));
    TensorRef states;
    states.data = workspace.data();
    bound.tensors.push_back(&states);
    launch(0, bound);
  }

  // Packs K and V for all tasks, unless that would take more memory than packed operands may have: then a twin of this
  // kernel packs tile by tile.
  void run_packed(const Arguments& arguments, BoundCall& bound) const {
    const Lengths lengths = program.algorithm.lengths;
    CallSizes& sizes = bound.sizes;
    sizes.key_tiles = key_tiles(lengths, sizes.positions, sizes.sequences, program.schedule.tile_keys);
    const std::int64_t tiles = sizes.key_tiles * sizes.kv_heads * (lengths == Lengths::packed ? 1 : sizes.sequences);
    std::int64_t bytes = 0;
    for (const PackedOperand& operand : program.packed) bytes += operand.tile_bytes * tiles;
    if (bytes > packed_bytes_limit) {
      Schedule in_task = program.schedule;
      in_task.pack_ahead = false;
      return Kernel::get(program.algorithm, program.problem, made_legal(program.algorithm, program.problem, in_task, program.target)).run(arguments);
    }
    const Workspace workspace(static_cast<std::size_t>(bytes));
    std::pmr::vector<TensorRef> operands(program.packed.size(), TensorRef{}, bound.pool());
    std::byte* at = workspace.data();
    for (std::size_t i = 0; i < operands.size(); ++i) {
      operands[i].data = at;
      at += program.packed[i].tile_bytes * tiles;
      bound.tensors.push_back(&operands[i]);
    }
    launch(0, bound);
    launch(1, bound);
  }

  void launch(std::size_t i, const BoundCall& bound) const { launches[i].launch(kernels_[i].function, bound.sizes, bound.tensors, bound.numbers); }

  std::vector<LoadedKernel> kernels_;
};

}  // namespace

std::shared_ptr<const KernelState> make_cpu_kernel(Program program, double generate_ms) {
  return std::make_shared<CpuKernel>(std::move(program), generate_ms);
}

}  // namespace v1
}  // namespace attile
