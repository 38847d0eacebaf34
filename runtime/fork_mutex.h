// A mutex that no child of a fork finds held: a fork takes all of them first. For short work on memory that is never
// destroyed, and none is taken while another one is held.
#pragma once

#include <pthread.h>

#include <mutex>
#include <vector>

namespace attile {
inline namespace v1 {

class ForkMutex {
 public:
  ForkMutex() {
    [[maybe_unused]] static const int registered = pthread_atfork(lock_all, unlock_all, unlock_all);
    const std::lock_guard lock(all().mutex);
    all().members.push_back(this);
  }
  ~ForkMutex() {
    const std::lock_guard lock(all().mutex);
    std::erase(all().members, this);
  }
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct All {
    std::mutex mutex;
    std::vector<ForkMutex*> members;
  };
  static All& all() {
    static auto* a = new All();
    return *a;
  }
  static void lock_all() {
    all().mutex.lock();
    for (ForkMutex* m : all().members) m->lock();
  }
  static void unlock_all() {
    for (ForkMutex* m : all().members) m->unlock();
    all().mutex.unlock();
  }
  std::mutex mutex_;
};

}  // namespace v1
}  // namespace attile
