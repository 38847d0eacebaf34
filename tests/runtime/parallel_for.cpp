#include "runtime/parallel_for.h"

#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "dsl/error.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

struct Workers {
  explicit Workers(int count) { set_worker_count(count); }
  ~Workers() { set_worker_count(0); }
};

// Sum of all indices, and whether each came once.
bool covers(std::int64_t tasks) {
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(tasks));
  parallel_for(tasks, [&](std::int64_t i, int) { seen[static_cast<std::size_t>(i)].fetch_add(1); });
  return std::all_of(seen.begin(), seen.end(), [](const std::atomic<int>& n) { return n == 1; });
}

}  // namespace

TEST_CASE("every task runs once, whatever the number of threads") {
  Workers workers(GENERATE(1, 2, 3, 8));
  for (std::int64_t tasks : {0, 1, 2, 3, 7, 100, 40000}) CHECK(covers(tasks));
}

TEST_CASE("calls without tasks do nothing") {
  parallel_for(0, [](std::int64_t, int) { throw 1; });
  parallel_for(-5, [](std::int64_t, int) { throw 1; });
}

TEST_CASE("worker numbers are below the count and never used twice at a time") {
  Workers workers(4);
  std::array<std::atomic<int>, 4> busy{};
  std::atomic<bool> wrong{false};
  parallel_for(5000, [&](std::int64_t, int worker) {
    if (worker < 0 || worker >= 4) return wrong.store(true);
    if (busy[static_cast<std::size_t>(worker)].fetch_add(1) != 0) wrong = true;
    busy[static_cast<std::size_t>(worker)].fetch_sub(1);
  });
  CHECK_FALSE(wrong);
}

TEST_CASE("the number of workers can change between calls") {
  for (int count : {8, 1, 3, 2, 6}) {
    Workers workers(count);
    CHECK(worker_count() == count);
    std::atomic<bool> wrong{false};
    parallel_for(500, [&](std::int64_t, int worker) {
      if (worker >= count) wrong = true;
    });
    CHECK_FALSE(wrong);
  }
  CHECK_THROWS_AS(set_worker_count(-1), Error);
  CHECK_THROWS_AS(set_worker_count(5000), Error);
}

TEST_CASE("an exception of a task reaches the caller and ends the call early") {
  Workers workers(4);
  std::atomic<int> begun{0};
  auto call = [&] {
    parallel_for(std::int64_t{1} << 40, [&](std::int64_t i, int) {
      ++begun;
      if (i == 100) throw Error(ErrorKind::resource, "task", "hundred", "");
    });
  };
  CHECK_THROWS_WITH(call(), ContainsSubstring("hundred"));
  CHECK(covers(1000));
}

TEST_CASE("a call inside a task runs inline") {
  Workers workers(4);
  std::atomic<std::int64_t> sum{0};
  std::atomic<bool> wrong{false};
  parallel_for(16, [&](std::int64_t, int) {
    auto thread = std::this_thread::get_id();
    parallel_for(100, [&](std::int64_t i, int) {
      if (std::this_thread::get_id() != thread) wrong = true;
      sum += i;
    });
  });
  CHECK(sum == 16 * 4950);
  CHECK_FALSE(wrong);
}

TEST_CASE("several threads may call at once") {
  Workers workers(3);
  std::atomic<int> good{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t)
    callers.emplace_back([&] {
      bool all = true;
      for (int round = 0; round < 200; ++round) {
        std::atomic<std::int64_t> sum{0};
        parallel_for(50, [&](std::int64_t i, int) { sum += i; });
        all &= sum == 1225;
      }
      good += all;
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(good == 8);
}

TEST_CASE("scratch memory is page aligned, private to a task and reused") {
  Workers workers(4);
  std::atomic<bool> wrong{false};
  parallel_for(400, [&](std::int64_t i, int) {
    auto* mine = worker_scratch(100'000);
    if (reinterpret_cast<std::uintptr_t>(mine) % 4096 != 0) wrong = true;
    std::fill(mine, mine + 100'000, std::byte(i));
    parallel_for(3, [&](std::int64_t, int) {
      auto* inner = worker_scratch(5000);
      std::fill(inner, inner + 5000, std::byte(255));
    });
    if (!std::all_of(mine, mine + 100'000, [&](std::byte b) { return b == std::byte(i); })) wrong = true;
    if (worker_scratch(50'000) != mine) wrong = true;
  });
  CHECK_FALSE(wrong);
  CHECK(worker_scratch(0) != nullptr);
  CHECK_THROWS_AS(worker_scratch(std::size_t{1} << 62), Error);
}

TEST_CASE("tasks keep denormals and round to nearest although the caller does not") {
  Workers workers(3);
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040 | 0x6000);  // flush, denormals are zero, towards zero
  std::atomic<int> wrong{0};
  parallel_for(64, [&](std::int64_t, int) { wrong += (_mm_getcsr() & 0xffc0) != 0x1f80; });
  unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(wrong == 0);
  CHECK((after & 0xffc0) == ((before | 0x8040 | 0x6000) & 0xffc0));
}

TEST_CASE("the application can put its own threads in place") {
  struct Backwards : ParallelFor {
    int workers() const override { return 5; }
    void run(std::int64_t tasks, TaskFunction task, void* context) override {
      ++calls;
      for (std::int64_t i = tasks; i-- > 0;) std::thread([&] { task(context, i, 4); }).join();
    }
    int calls = 0;
  };
  auto own = std::make_shared<Backwards>();
  set_parallel_for(own);
  CHECK(worker_count() == 5);
  CHECK(covers(20));
  CHECK_THROWS_AS(parallel_for(3, [](std::int64_t, int) { throw Error(ErrorKind::argument, "", "x", ""); }), Error);
  set_parallel_for(nullptr);
  CHECK(own->calls == 2);
  CHECK(covers(20));
  CHECK(own->calls == 2);
}

TEST_CASE("a child process after a fork has a pool of its own") {
  Workers workers(4);
  CHECK(covers(100));
  CHECK(run_in_child([] { expect(covers(1000), "all tasks in the child"); }) == 0);
}

TEST_CASE("a process may exit while the pool sleeps and while it works") {
  Workers workers(4);
  bool busy = GENERATE(false, true);
  for (int round = 0; round < 10; ++round) {
    pid_t child = fork();
    if (child == 0) {
      parallel_for(100, [](std::int64_t, int) {});
      if (busy)
        std::thread([] {
          for (;;) parallel_for(64, [](std::int64_t, int) { std::this_thread::yield(); });
        }).detach();
      std::this_thread::sleep_for(std::chrono::milliseconds(round % 3));
      std::exit(0);  // with destructors, unlike _exit
    }
    CHECK(wait_for(child) == 0);
  }
}
