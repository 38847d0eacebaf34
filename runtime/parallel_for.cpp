#include "runtime/parallel_for.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "dsl/error.h"
#include "runtime/fork_mutex.h"
#include "runtime/host_cpu.h"
#include "runtime/options.h"
#include "runtime/thread_pool.h"

namespace attile {
inline namespace v1 {
namespace {

thread_local int task_depth = 0;  // > 0 while this thread runs a task

std::atomic<int> workers_by_api{0};

struct Replacement {
  std::atomic<bool> present{false};
  std::shared_mutex& mutex = mutex_of(Guarded::parallel_for);
  std::shared_ptr<ParallelFor> value;
};
Replacement& replacement() {
  static auto* r = new Replacement();
  return *r;
}

std::shared_ptr<ParallelFor> replaced() {
  Replacement& r = replacement();
  if (!r.present.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(r.mutex);
  return r.value;
}

// Marks the thread as inside a task, with rounding to nearest, denormals kept and no traps.
class TaskScope {
 public:
  TaskScope() : mode_(_mm_getcsr()) {
    ++task_depth;
    if (mode_ != default_mode) _mm_setcsr(default_mode);
  }
  ~TaskScope() {
    _mm_setcsr(mode_);
    --task_depth;
  }

 private:
  static constexpr unsigned default_mode = 0x1f80;
  unsigned mode_;
};

// Keeps exceptions away from threads that are not ours.
struct Call {
  TaskFunction task;
  void* context;
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // written by the one that sets `failed`, read after all tasks are done

  static void run_one(void* self, std::int64_t i, int worker) noexcept {
    auto& call = *static_cast<Call*>(self);
    if (call.failed.load(std::memory_order_relaxed)) return;
    TaskScope scope;
    try {
      call.task(call.context, i, worker);
    } catch (...) {
      if (!call.failed.exchange(true)) call.error = std::current_exception();
    }
  }
};

void run_inline(std::int64_t tasks, TaskFunction task, void* context) {
  TaskScope scope;
  for (std::int64_t i = 0; i < tasks; ++i) task(context, i, 0);
}

class Scratch {
 public:
  Scratch() = default;
  Scratch(Scratch&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ~Scratch() { std::free(data_); }

  std::byte* at_least(std::size_t bytes) {
    if (bytes <= size_ && data_) return data_;
    std::free(std::exchange(data_, nullptr));
    size_ = 0;
    std::size_t page = bytes >= huge_page ? huge_page : 4096;
    void* memory = nullptr;
    if (bytes <= address_space) {
      bytes = std::max<std::size_t>((bytes + page - 1) / page * page, page);
      memory = std::aligned_alloc(page, bytes);
    }
    if (!memory) throw Error(ErrorKind::resource, "work space", fmt::format("no memory for {} bytes", bytes), "");
    if (page == huge_page) madvise(memory, bytes, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(memory);
    size_ = bytes;
    return data_;
  }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20, address_space = std::size_t{1} << 47;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace

ParallelFor::~ParallelFor() = default;

void set_parallel_for(std::shared_ptr<ParallelFor> value) {
  Replacement& r = replacement();
  std::lock_guard lock(r.mutex);
  r.value.swap(value);  // the one before ends after the lock
  r.present.store(r.value != nullptr, std::memory_order_release);
}

int worker_count() {
  if (auto other = replaced()) return other->workers();
  if (int workers = workers_by_api.load(std::memory_order_relaxed)) return workers;
  static const int by_default = options().threads ? options().threads : usable_cores();
  return by_default;
}

void set_worker_count(int workers) {
  if (workers < 0 || workers > 4096)
    throw Error(ErrorKind::argument, "set_worker_count", fmt::format("{} threads", workers), "allowed: 0 to 4096");
  workers_by_api.store(workers, std::memory_order_relaxed);
}

void parallel_for(std::int64_t tasks, TaskFunction task, void* context) {
  if (tasks <= 0) return;
  if (tasks == 1 || task_depth > 0) return run_inline(tasks, task, context);
  auto other = replaced();
  int workers = other ? 0 : worker_count();
  if (workers == 1) return run_inline(tasks, task, context);
  Call call{task, context, {}, {}};
  if (other)
    other->run(tasks, &Call::run_one, &call);
  else
    ThreadPool::instance().run(tasks, workers, &Call::run_one, &call, call.failed);
  if (call.error) std::rethrow_exception(call.error);
}

std::byte* worker_scratch(std::size_t bytes) {
  // One block per depth: a call inside a task must not take the memory of the task around it.
  static thread_local std::vector<Scratch> blocks;
  std::size_t depth = static_cast<std::size_t>(task_depth);
  if (blocks.size() <= depth) blocks.resize(depth + 1);
  return blocks[depth].at_least(bytes);
}

}  // namespace v1
}  // namespace attile
