// Entries that were cut short, altered or put together wrongly: noticed, told once, built again, good afterwards.
#include <sys/resource.h>

#include "tests/runtime/cache_support.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

using Damage = std::function<void(const fs::path& file)>;

const std::vector<std::pair<std::string, Damage>>& damages() {
  static const std::vector<std::pair<std::string, Damage>> all{
      {"cut to nothing", [](const fs::path& f) { write_text(f, ""); }},
      {"cut to one byte", [](const fs::path& f) { write_text(f, read_text(f).substr(0, 1)); }},
      {"cut in half", [](const fs::path& f) { write_text(f, read_text(f).substr(0, read_text(f).size() / 2)); }},
      {"one byte more", [](const fs::path& f) { write_text(f, read_text(f) + "x"); }},
      {"first byte flipped",
       [](const fs::path& f) {
         std::string t = read_text(f);
         t[0] ^= 1;
         write_text(f, t);
       }},
      {"last byte flipped",
       [](const fs::path& f) {
         std::string t = read_text(f);
         t.back() ^= 64;
         write_text(f, t);
       }},
      {"removed", [](const fs::path& f) { fs::remove(f); }},
      {"a folder instead",
       [](const fs::path& f) {
         fs::remove(f);
         fs::create_directories(f / "x");
       }},
      {"a link instead",
       [](const fs::path& f) {
         fs::rename(f, f.string() + "2");
         fs::create_symlink(f.string() + "2", f);
       }},
      {"a pipe instead",
       [](const fs::path& f) {
         fs::remove(f);
         mkfifo(f.c_str(), 0600);
       }},
  };
  return all;
}

// One warning, one build, and a clean hit at the next start.
void check_healed(const std::string& folder) {
  Warnings warnings;
  KernelCache first(in_folder(folder)), second(in_folder(folder));
  Asked repaired = ask(first, "a"), again = ask(second, "a");
  CHECK((repaired.right && !repaired.hit));
  CHECK((again.right && again.hit));
  REQUIRE(warnings.count() == 1);
  CHECK_THAT(warnings.texts()[0], ContainsSubstring("damaged"));
  CHECK(names_in(folder) == std::vector<std::string>{key_of("a").folder_name()});
}

void fill(const std::string& folder, const std::string& text) {
  KernelCache cache(in_folder(folder));
  ask(cache, text);
}

}  // namespace

TEST_CASE("any damage to any file of an entry is noticed and repaired") {
  for (const std::string file : {"kernel.ll", "kernel.ir", "kernel.o", "compile.log", "meta.yaml"})
    for (const auto& [name, damage] : damages()) {
      bool empty = file == "compile.log";  // which has nothing to lose
      if (empty && (name.find("cut") == 0 || name.find("flipped") != std::string::npos)) continue;
      INFO(file << ": " << name);
      ScratchPlace place;
      fill(place.str(), "a");
      damage(entry_path(place.str(), "a") / file);
      check_healed(place.str());
    }
}

TEST_CASE("metadata or files of another entry are noticed") {
  ScratchPlace place;
  fill(place.str(), "a");
  fill(place.str(), "b");
  fs::path a = entry_path(place.str(), "a"), b = entry_path(place.str(), "b");
  SECTION("metadata") { fs::copy_file(b / "meta.yaml", a / "meta.yaml", fs::copy_options::overwrite_existing); }
  SECTION("a file") { fs::copy_file(b / "kernel.o", a / "kernel.o", fs::copy_options::overwrite_existing); }
  SECTION("the whole entry") {
    fs::remove_all(a);
    fs::copy(b, a);
  }
  fs::remove_all(b);
  check_healed(place.str());
}

TEST_CASE("something else at the place of an entry is replaced") {
  ScratchPlace place;
  fs::path path = entry_path(place.str(), "a");
  SECTION("a file") { write_text(path, "x"); }
  SECTION("an empty folder") { fs::create_directory(path); }
  SECTION("a folder of other things") {
    fs::create_directories(path / "deep/er");
    write_text(path / "x", "y");
  }
  SECTION("a link to a good entry elsewhere") {
    ScratchPlace other;
    fill(other.str(), "a");
    fs::rename(entry_path(other.str(), "a"), place / "elsewhere");
    fs::create_symlink(place / "elsewhere", path);
    KernelCache cache(in_folder(place.str()));
    CHECK_FALSE(ask(cache, "a").hit);
    CHECK(fs::exists(place / "elsewhere/kernel.o"));
    fs::remove_all(place / "elsewhere");
    fs::remove_all(path);
    fs::create_directory(path);
  }
  check_healed(place.str());
}

TEST_CASE("metadata that is signed but nonsense is refused") {
  ScratchPlace place;
  fill(place.str(), "a");
  write_text(entry_path(place.str(), "a") / "meta.yaml", "# xxh3 \n");
  check_healed(place.str());
}

TEST_CASE("damage in a folder that may not be written is told and worked around") {
  ScratchPlace place;
  fill(place.str(), "a");
  write_text(entry_path(place.str(), "a") / "kernel.o", "");
  Warnings warnings;
  CacheOptions options = in_folder(place.str());
  options.mode = CacheMode::readonly;
  KernelCache cache(options);
  CHECK(ask(cache, "a").right);
  CHECK(ask(cache, "a").right);
  CHECK(warnings.count() == 1);
  CHECK(read_text(entry_path(place.str(), "a") / "kernel.o").empty());
}

TEST_CASE("a process out of file descriptors does not take good entries for damaged") {
  ScratchPlace place;
  fill(place.str(), "a");
  CHECK(run_in_child([&] {
          KernelCache cache(in_folder(place.str()));
          cache.folder();
          rlimit limit{3, 3};
          expect(setrlimit(RLIMIT_NOFILE, &limit) == 0, "limit");
          expect(ask(cache, "a").right, "built without the disk");
          expect(cache.stats().damaged == 0, "nothing was damaged");
        }) == 0);
  KernelCache cache(in_folder(place.str()));
  CHECK(ask(cache, "a").hit);
}
