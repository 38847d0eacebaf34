#include "runtime/cache.h"

#include <chrono>
#include <set>
#include <thread>

#include "dsl/error.h"
#include "tests/runtime/cache_support.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

void set_age(const fs::path& path, int seconds) {
  timespec times[2]{};
  times[0].tv_sec = times[1].tv_sec = time(nullptr) - seconds;
  utimensat(AT_FDCWD, path.c_str(), times, 0);
}

}  // namespace

TEST_CASE("a kernel is built once and then read from disk") {
  ScratchPlace place;
  Warnings warnings;
  {
    KernelCache cache(in_folder(place.str()));
    Asked first = ask(cache, "a"), second = ask(cache, "a");
    CHECK((first.right && !first.hit));
    CHECK((second.right && second.hit));
    CHECK(cache.stats().builds == 1);
    CHECK(cache.stats().hits == 1);
  }
  KernelCache another(in_folder(place.str()));
  Asked third = ask(another, "a");
  CHECK((third.right && third.hit));
  CHECK(another.find(key_of("a")));
  CHECK_FALSE(another.find(key_of("b")));
  CHECK(warnings.count() == 0);
}

TEST_CASE("an entry is one readable folder and nothing else is left") {
  ScratchPlace place;
  KernelCache cache(in_folder(place.str()));
  ask(cache, "some text");
  CHECK(names_in(place.str()) == std::vector<std::string>{key_of("some text").folder_name()});
  fs::path entry = entry_path(place.str(), "some text");
  CHECK(names_in(entry) == std::vector<std::string>{"compile.log", "kernel.ir", "kernel.ll", "kernel.o", "meta.yaml"});
  CHECK(read_text(entry / "kernel.ll") == "; some text\n");
  CHECK_THAT(read_text(entry / "meta.yaml"), ContainsSubstring("[\"compiler\", \"LLVM 19.1.7\"]"));
  CHECK((fs::status(entry).permissions() & fs::perms::mask) == fs::perms::owner_all);
}

TEST_CASE("a new cache folder is private") {
  ScratchPlace place;
  KernelCache cache(in_folder(place / "new/deep"));
  CHECK(ask(cache, "a").right);
  CHECK((fs::status(place / "new").permissions() & fs::perms::mask) == fs::perms::owner_all);
  CHECK((fs::status(place / "new/deep").permissions() & fs::perms::mask) == fs::perms::owner_all);
}

TEST_CASE("every part of the key, its name and its order give another entry") {
  CacheKey key = key_of("a");
  std::set<std::string> all{key.hex()};
  for (std::size_t i = 0; i < key.parts.size(); ++i) {
    CacheKey value = key, name = key, shifted = key;
    value.parts[i].second += " ";
    name.parts[i].first += " ";
    shifted.parts[i] = {shifted.parts[i].first + shifted.parts[i].second, ""};
    all.insert({value.hex(), name.hex(), shifted.hex()});
  }
  CacheKey swapped = key, renamed = key;
  std::swap(swapped.parts[0], swapped.parts[1]);
  renamed.name = "other";
  all.insert({swapped.hex(), renamed.hex()});
  CHECK(all.size() == 1 + 3 * key.parts.size() + 2);
}

TEST_CASE("the key of a kernel is the same on every machine and in every run") {
  CHECK(key_of("a").folder_name() == "attention-9bef418f3a44c298c059a4cdf7ea271b");
}

TEST_CASE("a kernel name becomes a plain file name") {
  CacheKey key = key_of("a");
  key.name = "../größe\n'$x";
  CHECK_THAT(key.folder_name(), ContainsSubstring("-" + key.hex()));
  CHECK(key.folder_name().find_first_of("/.\n'$") == std::string::npos);
  key.name = std::string(300, 'x');
  CHECK(key.folder_name().size() < 120);
}

TEST_CASE("an exception of the build reaches the caller and is not remembered") {
  ScratchPlace place;
  KernelCache cache(in_folder(place.str()));
  auto fail = [&] {
    cache.get_or_build(key_of("a"), []() -> CacheEntry { throw Error(ErrorKind::internal, "x", "no luck", ""); });
  };
  CHECK_THROWS_WITH(fail(), ContainsSubstring("no luck"));
  CHECK(names_in(place.str()).empty());
  CHECK(ask(cache, "a").right);
}

TEST_CASE("sixteen threads that want one kernel build it once") {
  bool on_disk = GENERATE(true, false);
  for (int round = 0; round < 20; ++round) {
    ScratchPlace place;
    CacheOptions options = in_folder(place.str());
    options.mode = on_disk ? CacheMode::on : CacheMode::off;
    KernelCache cache(options);
    std::atomic<int> builds{0}, right{0}, ready{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t)
      threads.emplace_back([&] {
        for (++ready; ready < 16;) std::this_thread::yield();
        right += ask(cache, "a", [&] {
                   ++builds;
                   std::this_thread::sleep_for(std::chrono::milliseconds(on_disk ? 3 : 60));
                 }).right;
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(builds == 1);
    CHECK(right == 16);
    CHECK(names_in(place.str()).size() == (on_disk ? 1 : 0));
  }
}

TEST_CASE("sixteen threads with sixteen kernels build each once") {
  ScratchPlace place;
  KernelCache cache(in_folder(place.str()));
  std::atomic<int> builds{0}, right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 16; ++i) right += ask(cache, std::to_string((t + i) % 16), [&] { ++builds; }).right;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(builds == 16);
  CHECK(right == 256);
  CHECK(names_in(place.str()).size() == 16);
}

TEST_CASE("two caches of one process on one folder build a kernel once") {
  ScratchPlace place;
  KernelCache one(in_folder(place.str())), two(in_folder(place.str()));
  std::atomic<int> builds{0}, right{0};
  auto slow = [&] {
    ++builds;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  };
  std::thread a([&] { right += ask(one, "a", slow).right; }), b([&] { right += ask(two, "a", slow).right; });
  a.join();
  b.join();
  CHECK(builds == 1);
  CHECK(right == 2);
}

TEST_CASE("an exception of the build reaches every thread that waits for it") {
  ScratchPlace place;
  KernelCache cache(in_folder(place.str()));
  std::atomic<int> caught{0}, builds{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      try {
        cache.get_or_build(key_of("a"), [&]() -> CacheEntry {
          ++builds;
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          throw Error(ErrorKind::internal, "x", "no luck", "");
        });
      } catch (const Error&) {
        ++caught;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(caught == 8);
  CHECK(builds < 8);
}

TEST_CASE("a full cache gives up the kernels not used for longest") {
  ScratchPlace place;
  for (int i = 0; i < 8; ++i) {
    KernelCache cache(in_folder(place.str()));
    ask(cache, std::to_string(i));
    set_age(entry_path(place.str(), std::to_string(i)), 1000 - i);
  }
  CacheOptions options = in_folder(place.str());
  options.max_bytes = 20'000;
  KernelCache cache(options);
  CHECK(ask(cache, "0").hit);  // used now, so it stays
  CHECK_FALSE(ask(cache, "new").hit);
  CHECK(cache.stats().evicted >= 3);
  std::uint64_t bytes = 0;
  for (const CacheListing& entry : cache.list()) bytes += entry.bytes;
  CHECK(bytes <= options.max_bytes);
  CHECK(cache.find(key_of("0")));
  CHECK(cache.find(key_of("7")));
  CHECK(cache.find(key_of("new")));
  CHECK_FALSE(cache.find(key_of("1")));
  for (int i = 100; i < 140; ++i) ask(cache, std::to_string(i));
  bytes = 0;
  for (const CacheListing& entry : cache.list()) bytes += entry.bytes;
  CHECK(bytes <= options.max_bytes + 5000);
}

TEST_CASE("the cache lists, verifies and clears its entries and leaves other files alone") {
  ScratchPlace place;
  KernelCache cache(in_folder(place.str()));
  ask(cache, "a");
  ask(cache, std::string(500, 'b'));
  write_text(place / "README", "mine");
  fs::create_directory(place / "my-folder");
  auto listing = cache.list();
  REQUIRE(listing.size() == 2);
  CHECK(listing[0].key.name == "attention");
  CHECK(listing[0].key.parts[1] == std::pair<std::string, std::string>{"target", "x86-64-v3"});
  CHECK_THAT(listing[1].key.parts[0].second, ContainsSubstring("500 bytes"));
  CHECK(listing[0].bytes > 3000);
  CHECK(listing[0].fault.empty());
  CHECK(cache.verify().empty());
  write_text(entry_path(place.str(), "a") / "kernel.o", "other");
  auto bad = cache.verify();
  REQUIRE(bad.size() == 1);
  CHECK_THAT(bad[0].fault, ContainsSubstring("kernel.o"));
  CHECK(cache.list().size() == 1);
  CHECK(cache.clear() == 1);
  CHECK(names_in(place.str()) == std::vector<std::string>{"README", "my-folder"});
}

TEST_CASE("folders with any letters work") {
  std::string name = GENERATE(as<std::string>{}, "a b", "größe", "数据", "a'b\"c", "$HOME `ls` ;x", "line\nbreak",
                              std::string(200, 'l'));
  ScratchPlace place(name);
  Warnings warnings;
  KernelCache cold(in_folder(place.str())), warm(in_folder(place.str()));
  CHECK_FALSE(ask(cold, "a").hit);
  CHECK(ask(warm, "a").hit);
  CHECK(names_in(place.str()).size() == 1);
  CHECK(warnings.count() == 0);
}

TEST_CASE("a cache folder may be copied elsewhere") {
  ScratchPlace place, other;
  KernelCache cache(in_folder(place.str()));
  ask(cache, "a");
  fs::copy(place.str(), other / "copy", fs::copy_options::recursive);
  fs::permissions(other / "copy", fs::perms::owner_all);
  KernelCache moved(in_folder(other / "copy"));
  CHECK(ask(moved, "a").hit);
}

TEST_CASE("a cache that is off writes nothing and a read-only one only reads") {
  ScratchPlace place;
  Warnings warnings;
  CacheOptions options = in_folder(place.str());
  options.mode = CacheMode::off;
  KernelCache off(options);
  CHECK(ask(off, "a").right);
  CHECK(names_in(place.str()).empty());
  KernelCache on(in_folder(place.str()));
  ask(on, "a");
  options.mode = CacheMode::readonly;
  KernelCache readonly(options);
  CHECK(ask(readonly, "a").hit);
  CHECK_FALSE(ask(readonly, "b").hit);
  CHECK(readonly.clear() == 0);
  CHECK(names_in(place.str()).size() == 1);
  options.folder = place / "absent";
  KernelCache absent(options);
  CHECK(ask(absent, "a").right);
  CHECK_FALSE(fs::exists(place / "absent"));
  CHECK(warnings.count() == 0);
}

TEST_CASE("the process's cache can be set to another folder") {
  ScratchPlace place;
  set_kernel_cache(in_folder(place.str()));
  CHECK(kernel_cache()->folder() == place.str());
  CHECK(ask(*kernel_cache(), "a").right);
  CHECK(names_in(place.str()).size() == 1);
}
