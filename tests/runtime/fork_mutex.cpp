// fork() in one thread while another holds what the library's calls share.
#include "runtime/fork_mutex.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "runtime/attention.h"
#include "runtime/chooser.h"
#include "runtime/kernel.h"
#include "runtime/options.h"
#include "tests/runtime/small_call.h"
#include "tests/support/catch_compat.h"

using namespace attile;

namespace {

// The exit status of a child that does this and hangs no longer than its alarm.
int status_of_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a child finds every shared mutex free, whoever held it in the parent") {
  for (int i = 0; i < static_cast<int>(Guarded::count); ++i)
    for (const bool shared : {false, true}) {
      std::shared_mutex& mutex = mutex_of(static_cast<Guarded>(i));
      std::atomic<bool> held = false;
      std::thread holder([&] {
        shared ? mutex.lock_shared() : mutex.lock();
        held = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        shared ? mutex.unlock_shared() : mutex.unlock();
      });
      while (!held) std::this_thread::yield();
      const int status = status_of_child([&] {
        const bool free = mutex.try_lock();
        if (free) mutex.unlock();
        return free;
      });
      holder.join();
      CHECK(status == 0);
      CHECK(mutex.try_lock());  // and so does the parent
      mutex.unlock();
    }
}

TEST_CASE("children forked amid calls of other threads can call") {
  test::SmallCall first;
  run_attention(first.call);
  set_text_sink([](std::string_view) {});
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      test::SmallCall mine;
      while (!over) {
        forget_chosen_kernels();
        run_attention(mine.call);
        chooser();
      }
    });
  int bad = 0;
  for (int i = 0; i < 60; ++i) bad += status_of_child([&] {
    forget_chosen_kernels();
    warn("said by a child");
    run_attention(first.call);
    return true;
  }) != 0;
  over = true;
  for (std::thread& t : threads) t.join();
  set_text_sink(nullptr);
  CHECK(bad == 0);
}
