// Runs numbered tasks on several threads: a small pool of our own, started at the first call that can use it, or
// whatever the application puts in its place. Any number of threads may call at once; a call inside a task runs its
// tasks inline. Tasks see the default floating-point mode, so equal inputs give equal bits on every thread.
// A process may fork at any time outside a call (the child starts a pool of its own) and exit at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

// `worker` is in [0, worker_count()); no two tasks of one call run at the same moment with the same one.
using TaskFunction = void (*)(void* context, std::int64_t task, int worker);

// What an application implements to use its own threads. `run` calls task(context, i, worker) once for every i in
// [0, tasks), from any threads, and returns when all are done. The task given to it never throws.
class ATTILE_API ParallelFor {
 public:
  virtual ~ParallelFor();
  virtual int workers() const = 0;
  virtual void run(std::int64_t tasks, TaskFunction task, void* context) = 0;
};

// Null restores the pool. Calls already running keep the one they started with.
ATTILE_API void set_parallel_for(std::shared_ptr<ParallelFor> replacement);

// Threads a call uses, the caller included: the API's number, else ATTILE_THREADS, else usable_cores().
// Throws Error(argument) while ATTILE_THREADS is bad.
ATTILE_API int worker_count();
// 0 returns to the default. Throws Error(argument) outside [0, 4096]. Running calls keep their number.
ATTILE_API void set_worker_count(int workers);

// Returns when all tasks are done. Tasks start in index order and are handed out one by one (in runs when there are
// very many). The first exception of a task is rethrown here, after which no further task is begun.
ATTILE_API void parallel_for(std::int64_t tasks, TaskFunction task, void* context);

template <typename F>
requires std::is_invocable_v<F&, std::int64_t, int>
void parallel_for(std::int64_t tasks, F&& task) {
  using Task = std::remove_reference_t<F>;
  parallel_for(
      tasks, [](void* f, std::int64_t i, int worker) { (*static_cast<Task*>(f))(i, worker); },
      const_cast<std::remove_const_t<Task>*>(&task));
}

// Memory of the calling thread for the task it runs: at least `bytes`, page aligned, contents unspecified, valid until
// the task ends or asks again. Kept for the next task of this thread. Throws Error(resource).
ATTILE_API std::byte* worker_scratch(std::size_t bytes);

}  // namespace v1
}  // namespace attile
