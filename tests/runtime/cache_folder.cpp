// Folders that cannot be had, read, written or trusted: everything works without them, with one warning.
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "tests/runtime/cache_support.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

void expect_works_with_one_warning(KernelCache& cache, const std::string& part_of_warning) {
  Warnings warnings;
  expect(ask(cache, "x").right && ask(cache, "y").right, "kernels are built");
  expect(warnings.count() == 1, "one warning, not " + std::to_string(warnings.count()));
  expect(warnings.texts()[0].find(part_of_warning) != std::string::npos, "warning: " + warnings.texts()[0]);
}

void unset_places() {
  for (const char* name : {"HOME", "XDG_CACHE_HOME", "ATTILE_CACHE_DIR", "ATTILE_CACHE"}) unsetenv(name);
}

// A place as it comes from the environment, asked for as a user without rights.
int with_home(const std::string& home, const std::string& part_of_warning) {
  return run_in_child([&] {
    unset_places();
    setenv("HOME", home.c_str(), 1);
    become_nobody();
    KernelCache cache({});
    expect_works_with_one_warning(cache, part_of_warning);
  });
}

// A tiny file system of our own; false where the system does not allow it.
bool mount_tiny(const std::string& folder) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return mount("none", folder.c_str(), "tmpfs", 0, "size=64k,mode=700") == 0;
}

}  // namespace

TEST_CASE("the default folder is in XDG_CACHE_HOME, else in HOME") {
  ScratchPlace place;
  CHECK(run_in_child([&] {
          unset_places();
          setenv("HOME", place.str().c_str(), 1);
          KernelCache home({});
          expect(ask(home, "a").right && home.folder() == place.str() + "/.cache/attile", home.folder());
          setenv("XDG_CACHE_HOME", (place / "xdg").c_str(), 1);
          KernelCache xdg({});
          expect(xdg.folder() == place.str() + "/xdg/attile", xdg.folder());
          setenv("XDG_CACHE_HOME", "relative", 1);
          KernelCache ignored({});
          expect(ignored.folder() == place.str() + "/.cache/attile", ignored.folder());
        }) == 0);
}

TEST_CASE("a relative folder is meant from where the process was at first use") {
  ScratchPlace place;
  CHECK(run_in_child([&] {
          expect(chdir(place.str().c_str()) == 0, "chdir");
          KernelCache cache(in_folder("mine/"));
          expect(cache.folder() == place.str() + "/mine", cache.folder());
          expect(chdir("/") == 0, "chdir");
          expect(ask(cache, "a").right && fs::exists(entry_path(place.str() + "/mine", "a")), "entry");
        }) == 0);
}

TEST_CASE("without HOME kernels are built and one warning says so") {
  CHECK(run_in_child([] {
          unset_places();
          KernelCache cache({});
          expect_works_with_one_warning(cache, "HOME is not set");
          expect(!cache.fault().empty() && cache.list().empty() && cache.clear() == 0, "nothing to list");
        }) == 0);
}

TEST_CASE("a HOME that is not there or may not be written is worked around") {
  if (geteuid() != 0) WARN("run as a user: the folders of root stand for a home without rights");
  ScratchPlace place;
  fs::permissions(place.str(), fs::perms(0555));
  CHECK(with_home("/nonexistent", "cannot be created") == 0);
  CHECK(with_home(place.str(), geteuid() == 0 ? "cannot be created" : "cannot") == 0);
  fs::permissions(place.str(), fs::perms::owner_all);
}

TEST_CASE("a cache path that is a file is worked around") {
  ScratchPlace place;
  write_text(place / "file", "x");
  std::string path = place / GENERATE("file", "file/below");
  CHECK(run_in_child([&] {
          KernelCache cache(in_folder(path));
          expect_works_with_one_warning(cache, "file");
        }) == 0);
}

TEST_CASE("entries of a folder that may not be written are used") {
  if (geteuid() != 0) ATTILE_SKIP("needs root to become another user");
  ScratchPlace place;
  {
    KernelCache cache(in_folder(place.str()));
    ask(cache, "a");
  }
  fs::permissions(place.str(), fs::perms(0755));
  for (const auto& found : fs::recursive_directory_iterator(place.str()))
    fs::permissions(found.path(), found.is_directory() ? fs::perms(0755) : fs::perms(0644));
  CHECK(run_in_child([&] {
          become_nobody();
          KernelCache cache(in_folder(place.str()));
          expect_works_with_one_warning(cache, "are not kept");
          Asked asked = ask(cache, "a");
          expect(asked.right && asked.hit, "the entry is used");
          CacheOptions ordered = in_folder(place.str());
          ordered.mode = CacheMode::readonly;
          Warnings warnings;
          KernelCache quiet(ordered);
          expect(ask(quiet, "a").hit && ask(quiet, "z").right && warnings.count() == 0, "no warning when ordered");
        }) == 0);
  CHECK(names_in(place.str()).size() == 1);
}

TEST_CASE("a folder that others may fill is not trusted") {
  ScratchPlace place;
  {
    KernelCache cache(in_folder(place.str()));
    ask(cache, "a");
  }
  SECTION("every user may write") {
    fs::permissions(place.str(), fs::perms(01777));
    Warnings warnings;
    KernelCache cache(in_folder(place.str()));
    CHECK_FALSE(ask(cache, "a").hit);
    CHECK(warnings.count() == 1);
    CHECK_THAT(cache.fault(), ContainsSubstring("every user"));
  }
  SECTION("another user owns it") {
    if (geteuid() != 0) ATTILE_SKIP("needs root to become another user");
    REQUIRE(chown(place.str().c_str(), 12345, 12345) == 0);
    Warnings warnings;
    KernelCache cache(in_folder(place.str()));
    CHECK_FALSE(ask(cache, "a").hit);
    CHECK(warnings.count() == 1);
    CHECK_THAT(cache.fault(), ContainsSubstring("12345"));
  }
}

TEST_CASE("a full disk costs the entry and nothing else") {
  ScratchPlace place;
  SharedValue<std::atomic<bool>> mounted;
  int code = run_in_child([&] {
    if (!mount_tiny(place.str())) return;
    *mounted = true;
    KernelCache cache(in_folder(place.str()));
    Warnings warnings;
    for (int i = 0; i < 30; ++i) expect(ask(cache, std::to_string(i)).right, "built");
    expect(cache.stats().unwritten > 0, "the disk was full");
    expect(warnings.count() == 1 && warnings.texts()[0].find("No space") != std::string::npos, "one warning");
    for (const std::string& name : names_in(place.str())) expect(name[0] != '.', "left over: " + name);
    KernelCache next(in_folder(place.str()));
    for (const CacheListing& entry : next.list()) expect(entry.fault.empty(), entry.fault);
    expect(ask(next, "0").hit, "what fitted is used");
    expect(next.clear() > 0 && !ask(next, "0").hit && ask(next, "0").hit, "room again");
  });
  CHECK(code == 0);
  if (!*mounted) ATTILE_SKIP("no right to mount a small file system");
}

TEST_CASE("a limit on the size of files costs the entry and nothing else") {
  ScratchPlace place;
  CHECK(run_in_child([&] {
          rlimit limit{2000, 2000};
          expect(setrlimit(RLIMIT_FSIZE, &limit) == 0, "limit");
          KernelCache cache(in_folder(place.str()));
          expect_works_with_one_warning(cache, "too large");
          expect(names_in(place.str()).empty(), "nothing is left");
        }) == 0);
}

TEST_CASE("a folder that is removed while the process runs is made again") {
  ScratchPlace place;
  KernelCache cache(in_folder(place / "cache"));
  ask(cache, "a");
  fs::remove_all(place / "cache");
  Warnings warnings;
  CHECK_FALSE(ask(cache, "a").hit);
  CHECK(ask(cache, "a").hit);
  CHECK(warnings.count() == 0);
}

TEST_CASE("leftovers of dead processes go at the next start and those of living ones stay") {
  ScratchPlace place;
  std::string dead = ".tmp-attention-0-1", living = ".tmp-attention-0-2", lock = ".lock-attention-0";
  fs::create_directories(place / dead / "x");
  fs::create_directory(place / living);
  write_text(place / lock, "");
  write_text(place / (lock + "2"), "");
  int held = open((place / living).c_str(), O_RDONLY | O_DIRECTORY), held_lock = open((place / lock).c_str(), O_RDWR);
  REQUIRE(flock(held, LOCK_EX) == 0);
  REQUIRE(flock(held_lock, LOCK_EX) == 0);
  KernelCache cache(in_folder(place.str()));
  cache.folder();
  CHECK(names_in(place.str()) == std::vector<std::string>{lock, living});
  close(held);
  close(held_lock);
  KernelCache next(in_folder(place.str()));
  next.folder();
  CHECK(names_in(place.str()).empty());
}
