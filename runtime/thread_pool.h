// The default pool behind parallel_for. Threads start at the first run, spin shortly and then sleep between runs.
// The object is never destroyed: its threads may be asleep or at work while the process exits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "runtime/parallel_for.h"

namespace attile {
inline namespace v1 {

class ThreadPool {
 public:
  // The pool of this process; after a fork the child gets a new one.
  static ThreadPool& instance();

  // As ParallelFor::run, with at most `workers` threads including the caller; once `stop` is set no more are begun.
  void run(std::int64_t tasks, int workers, TaskFunction task, void* context, const std::atomic<bool>& stop);

 private:
  struct Job {
    TaskFunction task;
    void* context;
    std::int64_t tasks, run_length;
    int helpers_allowed;
    const std::atomic<bool>& stop;
    std::atomic<std::int64_t> next{0};
    std::atomic<int> helpers{0};  // changed under mutex_ only; read by the spinning caller
    bool caller_sleeps = false;
    Job* following = nullptr;
  };

  static void work(Job& job, int worker);
  void start_threads(int wanted);
  void serve(int thread);
  Job* choose(int thread);
  void help(std::unique_lock<std::mutex>& lock, Job& job, int thread);
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  void add(Job& job);
  void remove_and_wait(Job& job);

  std::mutex mutex_;
  std::condition_variable work_, done_;
  Job* jobs_ = nullptr;  // running calls, on their callers' stacks
  int threads_ = 0, sleeping_ = 0;
  std::atomic<std::uint64_t> epoch_{0};  // raised with every job, so that idle threads can spin without the mutex
};

}  // namespace v1
}  // namespace attile
