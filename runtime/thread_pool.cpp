#include "runtime/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>

namespace attile {
inline namespace v1 {
namespace {

// Kernel calls of a decode loop follow each other within this time; a thread that sleeps costs about 50 us to wake.
constexpr std::chrono::microseconds spin_time{30};

template <typename Condition>
bool spin_until(Condition condition) {
  auto end = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 16; ++i) {
      if (condition()) return true;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

std::atomic<ThreadPool*>& current() {
  static std::atomic<ThreadPool*> pool{nullptr};
  return pool;
}

// Signals meant for the application must not run their handlers on a pool thread; faults of the thread itself must.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

ThreadPool& ThreadPool::instance() {
  // The child of a fork has none of the threads; the old pool is left as it is.
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { current().store(nullptr, std::memory_order_relaxed); });
  ThreadPool* pool = current().load(std::memory_order_acquire);
  if (pool) return *pool;
  auto* fresh = new ThreadPool();
  if (current().compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *pool;
}

void ThreadPool::run(std::int64_t tasks, int workers, TaskFunction task, void* context, const std::atomic<bool>& stop) {
  int helpers = static_cast<int>(std::min<std::int64_t>(workers - 1, tasks - 1));
  // Handing out runs only where single tasks would make the counter the bottleneck.
  std::int64_t run_length = std::clamp<std::int64_t>(tasks / (std::int64_t{workers} * 4096), 1, 1 << 16);
  Job job{task, context, tasks, run_length, helpers, stop};
  add(job);
  work(job, 0);
  remove_and_wait(job);
}

void ThreadPool::work(Job& job, int worker) {
  while (!job.stop.load(std::memory_order_relaxed)) {
    std::int64_t first = job.next.fetch_add(job.run_length, std::memory_order_relaxed);
    if (first >= job.tasks) return;
    std::int64_t last = std::min(job.tasks - first, job.run_length) + first;
    for (std::int64_t i = first; i < last; ++i) job.task(job.context, i, worker);
  }
}

void ThreadPool::add(Job& job) {
  std::unique_lock lock(mutex_);
  if (threads_ < job.helpers_allowed) start_threads(job.helpers_allowed);
  job.following = jobs_;
  jobs_ = &job;
  epoch_.fetch_add(1, std::memory_order_release);
  // A thread whose number is above the limit may not help, and which one wakes is not ours to say: then wake all.
  bool all = job.helpers_allowed < threads_ || sleeping_ <= job.helpers_allowed;
  int wake = std::min(sleeping_, job.helpers_allowed);
  lock.unlock();
  if (wake == 0) return;
  if (all)
    work_.notify_all();
  else
    for (int i = 0; i < wake; ++i) work_.notify_one();
}

void ThreadPool::remove_and_wait(Job& job) {
  {
    std::lock_guard lock(mutex_);
    Job** link = &jobs_;
    while (*link != &job) link = &(*link)->following;
    *link = job.following;
  }
  if (spin_until([&] { return job.helpers.load(std::memory_order_acquire) == 0; })) return;
  std::unique_lock lock(mutex_);
  job.caller_sleeps = true;
  done_.wait(lock, [&] { return job.helpers.load(std::memory_order_relaxed) == 0; });
}

// Called with the mutex. A system that refuses more threads leaves the pool smaller; the work is done all the same.
void ThreadPool::start_threads(int wanted) {
  SignalsBlocked blocked;
  while (threads_ < wanted) {
    try {
      std::thread thread([this, number = threads_] { serve(number); });
      pthread_setname_np(thread.native_handle(), ("attile-" + std::to_string(threads_ + 1)).c_str());
      thread.detach();
    } catch (const std::system_error&) {
      return;
    }
    ++threads_;
  }
}

// The running call with the fewest helpers that still has tasks and may use this thread.
ThreadPool::Job* ThreadPool::choose(int thread) {
  Job* best = nullptr;
  for (Job* job = jobs_; job; job = job->following) {
    if (thread >= job->helpers_allowed || job->stop.load(std::memory_order_relaxed) ||
        job->next.load(std::memory_order_relaxed) >= job->tasks)
      continue;
    if (!best || job->helpers.load(std::memory_order_relaxed) < best->helpers.load(std::memory_order_relaxed))
      best = job;
  }
  return best;
}

void ThreadPool::serve(int thread) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (Job* job = choose(thread))
      help(lock, *job, thread);
    else
      wait_for_work(lock);
  }
}

void ThreadPool::help(std::unique_lock<std::mutex>& lock, Job& job, int thread) {
  job.helpers.fetch_add(1, std::memory_order_relaxed);
  lock.unlock();
  work(job, thread + 1);
  lock.lock();
  // The job lives on the caller's stack and may be gone once the count is down.
  bool caller_sleeps = job.caller_sleeps;
  if (job.helpers.fetch_sub(1, std::memory_order_release) == 1 && caller_sleeps) done_.notify_all();
}

void ThreadPool::wait_for_work(std::unique_lock<std::mutex>& lock) {
  std::uint64_t seen = epoch_.load(std::memory_order_relaxed);
  lock.unlock();
  bool woken = spin_until([&] { return epoch_.load(std::memory_order_acquire) != seen; });
  lock.lock();
  if (woken || epoch_.load(std::memory_order_relaxed) != seen) return;
  ++sleeping_;
  work_.wait(lock, [&] { return epoch_.load(std::memory_order_relaxed) != seen; });
  --sleeping_;
}

}  // namespace v1
}  // namespace attile
