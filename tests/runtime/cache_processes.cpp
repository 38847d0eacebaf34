// Many processes on one cache folder, some of which die.
#include <sys/file.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/runtime/cache_support.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

struct Counters {
  std::atomic<int> ready{0}, builds{0}, right{0};
};

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

void meet(Counters& counters, int processes) {
  for (++counters.ready; counters.ready < processes;) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

bool all_end_well(const std::vector<pid_t>& children) {
  bool well = true;
  for (pid_t child : children) well &= wait_for(child) == 0;
  return well;
}

bool has_leftovers(const std::string& folder) {
  auto names = names_in(folder);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return name[0] == '.'; });
}

}  // namespace

TEST_CASE("sixteen processes that want one kernel build it once") {
  for (int round = 0; round < 20; ++round) {
    ScratchPlace place;
    SharedValue<Counters> counters;
    std::vector<pid_t> children;
    for (int p = 0; p < 16; ++p)
      children.push_back(start_child([&] {
        KernelCache cache(in_folder(place.str()));
        meet(*counters, 16);
        Asked asked = ask(cache, "a", [&] {
          ++counters->builds;
          sleep_ms(5);
        });
        counters->right += asked.right;
      }));
    CHECK(all_end_well(children));
    CHECK(counters->builds == 1);
    CHECK(counters->right == 16);
    CHECK(names_in(place.str()).size() == 1);
  }
}

TEST_CASE("sixteen processes with sixteen kernels build each once") {
  ScratchPlace place;
  SharedValue<Counters> counters;
  std::vector<pid_t> children;
  for (int p = 0; p < 16; ++p)
    children.push_back(start_child([&, p] {
      KernelCache cache(in_folder(place.str()));
      meet(*counters, 16);
      for (int i = 0; i < 16; ++i)
        counters->right += ask(cache, std::to_string((p + i) % 16), [&] { ++counters->builds; }).right;
    }));
  CHECK(all_end_well(children));
  CHECK(counters->builds == 16);
  CHECK(counters->right == 256);
  CHECK(names_in(place.str()).size() == 16);
}

TEST_CASE("a full cache shared by processes loses nothing but entries") {
  ScratchPlace place;
  SharedValue<Counters> counters;
  std::vector<pid_t> children;
  for (int p = 0; p < 8; ++p)
    children.push_back(start_child([&, p] {
      CacheOptions options = in_folder(place.str());
      options.max_bytes = 20'000;
      KernelCache cache(options);
      Warnings warnings;
      for (int i = 0; i < 100; ++i) counters->right += ask(cache, std::to_string((p * 7 + i) % 12)).right;
      expect(warnings.count() == 0, warnings.count() ? warnings.texts()[0] : "");
    }));
  CHECK(all_end_well(children));
  CHECK(counters->right == 800);
  CHECK_FALSE(has_leftovers(place.str()));
}

TEST_CASE("a process killed at any moment leaves nothing that harms the next") {
  ScratchPlace place;
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    pid_t child = start_child([&] {
      for (int i = 0;; ++i) {
        KernelCache cache(in_folder(place.str()));
        if (i % 10 == 9) cache.clear();
        ask(cache, std::to_string(i % 10), [] { sleep_ms(1); });
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 20000));
    kill(child, SIGKILL);
    CHECK(wait_for(child) == -SIGKILL);
    Warnings warnings;
    KernelCache cache(in_folder(place.str()));
    bool right = true;
    for (int i = 0; i < 10; ++i) right &= ask(cache, std::to_string(i)).right;
    CHECK(right);
    CHECK(warnings.count() == 0);
    CHECK_FALSE(has_leftovers(place.str()));
  }
}

TEST_CASE("processes that wait for one that is killed build the kernel themselves, once") {
  ScratchPlace place;
  SharedValue<Counters> counters;
  pid_t victim = start_child([&] {
    KernelCache cache(in_folder(place.str()));
    ask(cache, "a", [&] {
      ++counters->ready;
      sleep_ms(100'000);
    });
  });
  while (counters->ready == 0) sleep_ms(1);
  std::vector<pid_t> children;
  for (int p = 0; p < 8; ++p)
    children.push_back(start_child([&] {
      KernelCache cache(in_folder(place.str()));
      ++counters->ready;
      counters->right += ask(cache, "a", [&] { ++counters->builds; }).right;
    }));
  while (counters->ready < 9) sleep_ms(1);
  sleep_ms(20);
  kill(victim, SIGKILL);
  wait_for(victim);
  CHECK(all_end_well(children));
  CHECK(counters->builds == 1);
  CHECK(counters->right == 8);
  CHECK_FALSE(has_leftovers(place.str()));
}

TEST_CASE("a process that never finishes a kernel does not hold up the others for ever") {
  ScratchPlace place;
  SharedValue<Counters> counters;
  pid_t stuck = start_child([&] {
    KernelCache cache(in_folder(place.str()));
    ask(cache, "a", [&] {
      ++counters->ready;
      sleep_ms(100'000);
    });
  });
  while (counters->ready == 0) sleep_ms(1);
  CacheOptions options = in_folder(place.str());
  options.patience = std::chrono::milliseconds(50);
  KernelCache cache(options);
  CHECK(ask(cache, "a").right);
  CHECK(ask(cache, "a").hit);
  kill(stuck, SIGKILL);
  wait_for(stuck);
}

TEST_CASE("a child forked during a build neither waits for its parent's thread nor keeps its lock") {
  ScratchPlace place;
  KernelCache cache(in_folder(place.str()));
  SharedValue<Counters> counters;
  SharedValue<std::atomic<bool>> may_end;
  pid_t child = 0;
  CHECK(ask(cache, "a", [&] {
          child = start_child([&] {
            counters->right += ask(cache, "a").right;  // waits for the file lock, not for the thread
            while (!*may_end) sleep_ms(1);
          });
          sleep_ms(30);
        }).right);
  while (counters->right == 0) sleep_ms(1);
  fs::remove_all(entry_path(place.str(), "a"));
  CacheOptions options = in_folder(place.str());
  options.patience = std::chrono::hours(1);
  KernelCache other(options);
  CHECK(ask(other, "a").right);  // would wait an hour for a lock that the child still has
  *may_end = true;
  CHECK(wait_for(child) == 0);
}
