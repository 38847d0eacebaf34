// Programs on a GPU: compiled by NVRTC for the exact chip, loaded once per context, launched on the caller's stream.
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <shared_mutex>

#include "dsl/error.h"
#include "runtime/cuda_build.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_module.h"
#include "runtime/cuda_parts.h"
#include "runtime/cuda_workspace.h"
#include "runtime/kernel_state.h"
#include "runtime/may_build.h"
#include "runtime/nvrtc_compiler.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr int programmatic_release = 12030;  // from here on a graph takes a launch that follows early

class CudaProgram : public KernelState {
 public:
  CudaProgram(Program made, double generate_ms) : KernelState(std::move(made), CallPlan::Memory::device) {
    info.generate_ms = generate_ms;
    info.from_disk = true;
    build_all();
    for (const std::string& name : program.kernels.front().positive) positive_.push_back(call.number(name));
    for (const NearRows& rows : program.kernels.front().near_rows) near_.push_back(call.tensor(rows.tensor));
  }

  void run(const Arguments& arguments, BoundCall& bound, Device device, const RunOptions& options) const override {
    if (const bool folds = all_positive(bound), near = all_near(bound); !folds || !near) return run_twin(arguments, device, options, folds, near);
    check_sizes(bound);
    const auto stream = static_cast<cu::Stream>(options.stream);
    const CurrentContext current(context_for(device.index, stream));
    const Loaded& loaded = loaded_in(current.context(), stream);
    if (!in_parts()) return launch(0, loaded, bound, stream);
    bound.sizes.parts = parts_of(bound.sizes, loaded, device);
    const CudaWorkspace workspace(parts->bytes(bound.sizes), device.index, stream, options.workspace, options.workspace_bytes);
    PartsTensors tensors(*parts, bound, workspace.data());
    launch(0, loaded, bound, stream);
    tensors.read();
    launch(1, loaded, bound, stream);
  }

  std::size_t workspace_bytes(const BoundCall& bound, Device device) const override {
    if (!in_parts()) return 0;
    const CurrentContext current(device.index);
    CallSizes sizes = bound.sizes;
    sizes.parts = parts_of(sizes, loaded_in(current.context(), nullptr), device);
    return parts->bytes(sizes);
  }

 private:
  struct Loaded {
    cu::Context context;
    std::vector<CudaKernel> kernels;
    int blocks_per_sm = 1;  // of the first
  };

  // What the text takes for granted of a call.
  bool all_positive(const BoundCall& bound) const {
    return std::all_of(positive_.begin(), positive_.end(), [&](int number) { return bound.numbers[static_cast<std::size_t>(number)]->real > 0; });
  }
  bool all_near(const BoundCall& bound) const {
    for (std::size_t i = 0; i < near_.size(); ++i) {
      const NearRows& rows = program.kernels.front().near_rows[i];
      const TensorRef& t = *bound.tensors[static_cast<std::size_t>(near_[i])];
      const auto dim = static_cast<std::size_t>(rows.dim);
      if (!is_aligned(t, rows.bytes) || (t.shape[dim] > 1 && std::abs(t.strides[dim]) >= rows.longest)) return false;
    }
    return true;
  }
  // The same kernel for a call of which it is not so.
  void run_twin(const Arguments& arguments, Device device, const RunOptions& options, bool folds, bool near) const {
    Problem problem = program.problem;
    problem.scattered = problem.scattered || !near;
    Schedule schedule = program.schedule;
    schedule.fold_scale = schedule.fold_scale && folds;
    Kernel::get(program.algorithm, problem, made_legal(program.algorithm, problem, schedule, program.target), device).run(arguments, options);
  }

  // Every kernel is compiled on a thread of its own: a first call waits for the longest only.
  void build_all() {
    images_.resize(program.kernels.size());
    std::vector<BuildInfo> infos(program.kernels.size(), info);
    std::vector<std::future<void>> pending;
    for (std::size_t i = 1; i < program.kernels.size(); ++i)
      pending.push_back(std::async(std::launch::async, [&, i, may = may_build()] {
        const BuildingRight right(may);
        build(i, infos[i]);
      }));
    build(0, infos[0]);
    for (auto& other : pending) other.get();
    for (const BuildInfo& one : infos) {
      info.from_disk = info.from_disk && one.from_disk;
      info.compile_ms = std::max(info.compile_ms, one.compile_ms);
    }
  }
  void build(std::size_t i, BuildInfo& times) {
    const auto start = std::chrono::steady_clock::now();
    CudaBuild built = built_or_found(program.kernels[i]);
    images_[i] = std::move(built.image);
    times.compile_ms = elapsed_ms(start);
    times.from_disk = built.from_disk;
  }

  CudaBuild built_or_found(const EmittedKernel& k) const {
    if (may_build()) return build_cuda(k, program.target.arch);
    std::optional<CudaBuild> found = find_cuda_build(k, program.target.arch);
    if (!found) refuse_to_build(k.name);
    return std::move(*found);
  }

  const Loaded& loaded_in(cu::Context context, cu::Stream stream) const {
    {
      const std::shared_lock lock(mutex_);
      for (const auto& one : loaded_)
        if (one->context == context) return *one;
    }
    refuse_in_capture(stream);
    const std::unique_lock lock(mutex_);
    for (const auto& one : loaded_)
      if (one->context == context) return *one;
    loaded_.push_back(load(context));
    return *loaded_.back();
  }
  std::unique_ptr<const Loaded> load(cu::Context context) const {
    auto made = std::make_unique<Loaded>();
    made->context = context;
    for (std::size_t i = 0; i < program.kernels.size(); ++i) {
      const EmittedKernel& k = program.kernels[i];
      const CudaModule module(images_[i], fmt::format("'{}', compiled for {} by {}", k.name, program.target.arch, cuda_compiler_text()));
      made->kernels.push_back(module.kernel(k.name, static_cast<std::size_t>(k.shared_bytes)));
    }
    made->blocks_per_sm = std::max(made->kernels.front().blocks_per_sm(program.kernels.front().threads), 1);
    return made;
  }
  void refuse_in_capture(cu::Stream stream) const {
    cu::CaptureStatus status{};
    if (cuda_driver().stream_is_capturing(stream, &status) != cu::Result::success || status == cu::CaptureStatus::none) return;
    throw Error(ErrorKind::environment, program.algorithm.name, "the kernel has not run on this device yet, and nothing is loaded while a graph is captured",
                "run it once before the capture");
  }

  std::int64_t parts_of(const CallSizes& sizes, const Loaded& loaded, Device device) const {
    if (program.schedule.splits > 0) return program.schedule.splits;
    CallSizes whole = sizes;
    whole.parts = 1;
    whole.row_tiles = launches[0].row_tiles(sizes);
    const std::int64_t tiles = (sizes.positions + program.schedule.tile_keys - 1) / program.schedule.tile_keys;
    return cuda_parts(launches[0].task_count(whole), tiles, std::int64_t{cuda_device(device.index).sms} * loaded.blocks_per_sm);
  }

  // What kernels count in 32 bits.
  void check_sizes(const BoundCall& bound) const {
    constexpr std::int64_t most = std::int64_t{1} << 30;
    const CallSizes& s = bound.sizes;
    if (s.rows * program.problem.group >= most || s.positions >= most)
      throw Error(ErrorKind::unsupported, program.algorithm.name, fmt::format("{} rows and {} positions: a GPU kernel has fewer than 2^30 of each", s.rows, s.positions));
  }

  void launch(std::size_t i, const Loaded& loaded, const BoundCall& bound, cu::Stream stream) const {
    CallSizes sizes = bound.sizes;
    sizes.row_tiles = launches[i].row_tiles(sizes);
    const std::int64_t tasks = launches[i].task_count(sizes);
    if (tasks == 0) return;
    if (tasks >= std::int64_t{1} << 31)
      throw Error(ErrorKind::unsupported, program.algorithm.name, fmt::format("{} tasks: a launch has at most 2147483647 blocks", tasks));
    std::array<std::byte, 2048> memory;
    std::pmr::monotonic_buffer_resource pool(memory.data(), memory.size());
    LaunchPlan::Block block(&pool);
    launches[i].fill(block, sizes, bound.tensors, bound.numbers);
    CudaLaunch how;
    how.grid_x = static_cast<unsigned>(tasks);
    how.threads = static_cast<unsigned>(program.kernels[i].threads);
    how.stream = stream;
    how.programmatic = program.kernels[i].follows_early && cuda_driver().version >= programmatic_release;
    loaded.kernels[i].launch(how, block.data(), block.size() * sizeof(std::uint64_t));
  }

  std::vector<std::string> images_;
  std::vector<int> positive_, near_;  // numbers of scalars and tensors of the call
  mutable std::shared_mutex mutex_;
  mutable std::vector<std::unique_ptr<const Loaded>> loaded_;
};

}  // namespace

std::shared_ptr<const KernelState> make_cuda_kernel(Program program, double generate_ms) {
  return std::make_shared<CudaProgram>(std::move(program), generate_ms);
}

}  // namespace v1
}  // namespace attile
