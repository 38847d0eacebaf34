#include "runtime/fork_mutex.h"

#include <pthread.h>

#include <cstddef>
#include <memory>

namespace attile {
inline namespace v1 {
namespace {

constexpr auto mutex_count = static_cast<std::size_t>(Guarded::count);

// Never destroyed: a call may still run while the process exits.
std::shared_mutex* mutexes() {
  static auto* all = new std::shared_mutex[mutex_count];
  return all;
}

void lock_all() {
  for (std::size_t i = 0; i < mutex_count; ++i) mutexes()[i].lock();
}
void unlock_all() {
  for (std::size_t i = mutex_count; i-- > 0;) mutexes()[i].unlock();
}
// Made anew: a lock remembers the thread that took it, which has another number in the child.
void renew_all() {
  for (std::size_t i = 0; i < mutex_count; ++i) std::construct_at(&mutexes()[i]);
}

// As the library is loaded, before there are threads that call it.
[[maybe_unused]] const int registered = (mutexes(), pthread_atfork(lock_all, unlock_all, renew_all));

}  // namespace

std::shared_mutex& mutex_of(Guarded what) { return mutexes()[static_cast<std::size_t>(what)]; }

}  // namespace v1
}  // namespace attile
