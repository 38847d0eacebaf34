#include "autotune/serve.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "dsl/error.h"
#include "runtime/cuda_build.h"
#include "runtime/cuda_peaks.h"
#include "runtime/cuda_tensors.h"
#include "runtime/cuda_timer.h"
#include "runtime/kernel.h"
#include "runtime/parallel_for.h"

namespace attile {
inline namespace v1 {
namespace {

// Seconds that a sample takes on a GPU, whose work is timed as a whole; on a CPU calls are timed one by one and the
// best counts, since another program's turn falls into some calls and not into others.
constexpr double least_sample = 1e-3, least_cpu_sample = 4e-3, few_calls_from = 0.05;
constexpr int least_calls = 3;
constexpr std::int64_t most_flush = std::int64_t{128} << 20, most_copy_bytes = std::int64_t{1} << 30;

// Of a call on the CPU. With one thread it is the time that the thread had, in which no other program's turn counts.
class CallClock {
 public:
  CallClock() : id_(worker_count() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC), start_(now()) {}
  double seconds() const { return std::max(now() - start_, 1e-9); }

 private:
  double now() const {
    timespec t{};
    ::clock_gettime(id_, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  clockid_t id_;
  double start_;
};

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, 400);
}

// Runs and times one kernel where its tensors lie.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual void run() = 0;  // once; the outputs are in host memory afterwards
  virtual double sample(CacheState cache) = 0;
};

class CpuSubject : public Subject {
 public:
  CpuSubject(const Kernel& kernel, const Arguments& arguments, std::int64_t last_cache)
      : kernel_(kernel),
        arguments_(arguments),
        flush_bytes_(std::clamp<std::int64_t>(2 * last_cache, 32 << 20, most_flush)) {}

  void run() override { kernel_.run(arguments_); }
  double sample(CacheState cache) override {
    if (cache == CacheState::cold) return cold();
    double best = 1e300, all = 0;
    for (int i = 0; all < least_cpu_sample || (i < least_calls && best < few_calls_from); ++i) {
      const CallClock clock;
      kernel_.run(arguments_);
      best = std::min(best, clock.seconds()), all += clock.seconds();
    }
    return best;
  }

 private:
  // The caches are full of something else before each call.
  double cold() {
    if (flush_.empty()) flush_.resize(static_cast<std::size_t>(flush_bytes_));
    double best = 1e300;
    for (int i = 0; i < least_calls && (i == 0 || best < few_calls_from); ++i) {
      std::memset(flush_.data(), ++turn_, flush_.size());
      const CallClock clock;
      kernel_.run(arguments_);
      best = std::min(best, clock.seconds());
    }
    return best;
  }
  Kernel kernel_;
  const Arguments& arguments_;
  std::int64_t flush_bytes_;
  std::vector<unsigned char> flush_;
  unsigned char turn_ = 0;
};

// Copies of the tensors are taken in turn where the cache is to be cold.
class CudaSubject : public Subject {
 public:
  CudaSubject(const Kernel& kernel, const Arguments& arguments, const DeviceFacts& facts, std::size_t bytes)
      : kernel_(kernel),
        host_(arguments),
        facts_(facts),
        timer_(facts.device.index),
        bytes_(std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 1)) {
    add_copy();
  }

  void run() override {
    kernel_.run(tensors_.front()->arguments());
    tensors_.front()->copy_back();
  }
  double sample(CacheState cache) override {
    if (cache == CacheState::warm) return measured(1);
    const auto wanted = std::clamp<std::int64_t>(2 * facts_.last_cache_bytes / bytes_ + 1, 2,
                                                 std::max<std::int64_t>(most_copy_bytes / bytes_, 2));
    while (static_cast<std::int64_t>(tensors_.size()) < std::min<std::int64_t>(wanted, 64)) add_copy();
    return measured(tensors_.size());
  }

 private:
  void add_copy() {
    tensors_.push_back(std::make_unique<CudaTensors>(kernel_.program().algorithm, host_, facts_.device));
  }
  double measured(std::size_t copies) {
    RunOptions options;
    options.stream = timer_.stream();
    const double seconds =
        timer_.seconds(calls_, [&] { kernel_.run(tensors_[next_++ % copies]->arguments(), options); });
    calls_ = std::clamp(static_cast<int>(least_sample / std::max(seconds, 1e-7)), 1, CudaTimer::most_pieces);
    return seconds;
  }
  Kernel kernel_;
  const Arguments& host_;
  const DeviceFacts& facts_;
  CudaTimer timer_;
  std::int64_t bytes_;
  std::vector<std::unique_ptr<CudaTensors>> tensors_;
  std::size_t next_ = 0;
  int calls_ = 1;
};

// Spills and products that ptxas made wait for one another cost more than any tile saves.
std::string build_fault(const Program& program) {
  for (const EmittedKernel& k : program.kernels) {
    const std::optional<CudaBuild> build = find_cuda_build(k, program.target.arch);
    if (!build || !build->resources_known) continue;
    if (const auto bytes = std::max(build->resources.spill_store_bytes, build->resources.spill_load_bytes);
        bytes > most_spilled)
      return fmt::format("spills {} bytes of registers ({} at most)", bytes, most_spilled);
    for (const std::string& warning : build->warnings)
      if (warning.find("C75") != std::string::npos) return "ptxas serialises its products: " + warning;
  }
  return "";
}

std::unique_ptr<Subject> subject_of(const Kernel& kernel, const Arguments& arguments, const DeviceFacts& facts,
                                    std::size_t bytes) {
  if (facts.device.kind == Device::Kind::cuda) return std::make_unique<CudaSubject>(kernel, arguments, facts, bytes);
  return std::make_unique<CpuSubject>(kernel, arguments, facts.last_cache_bytes);
}

void serve(WorkerLine& line, const Point& point, const TuneProblem& problem, const Reference& reference,
           const DeviceFacts& facts) {
  const Kernel kernel = Kernel::get(problem.algorithm, problem.problem, schedule_of(point), facts.device);
  if (facts.device.kind == Device::Kind::cuda)
    if (const std::string fault = build_fault(kernel.program()); !fault.empty())
      return line.write("fault " + one_line(fault));
  line.write("built");
  if (!line.read()) return;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  const Arguments arguments = reference.fresh_outputs(memory);
  const std::unique_ptr<Subject> subject = subject_of(kernel, arguments, facts, reference.bytes());
  subject->run();
  if (const std::string fault = reference.check(arguments); !fault.empty())
    return line.write("fault wrong: " + one_line(fault));
  subject->sample(CacheState::warm);  // how many calls a sample needs
  line.write("good");
  while (const auto word = line.read())
    line.write(fmt::format("{}", subject->sample(*word == "cold" ? CacheState::cold : CacheState::warm)));
}

}  // namespace

void serve_candidate(WorkerLine& line, const Point& point, const TuneProblem& problem, const Reference& reference,
                     const DeviceFacts& facts) {
  try {
    serve(line, point, problem, reference, facts);
  } catch (const Error& e) {
    line.write("fault " + one_line(fmt::format("failed: {}", e.what())));
  } catch (const std::bad_alloc&) {
    line.write("fault failed: out of memory");
  }
}

void serve_probes(WorkerLine& line, Device device) {
  while (line.read()) {
    double seconds = 0;
    try {
      seconds = 1e3 / measure_cuda_fma_gflops(device.index);
    } catch (const Error&) {  // the search goes on without
    }
    line.write(fmt::format("{}", seconds));
  }
}

}  // namespace v1
}  // namespace attile
