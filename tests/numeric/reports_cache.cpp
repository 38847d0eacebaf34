// Reported faults of the disk cache, with real kernels in fresh processes. The cache's own tests are in tests/runtime.
#include <cstdlib>
#include <iostream>
#include <thread>

#include "runtime/cache.h"
#include "runtime/host_cpu.h"
#include "tests/numeric/call.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"
#include "tests/support/self.h"

using namespace attile;
using namespace attile::test;

namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

constexpr const char* the_two = "two kernels give right results in either order";
constexpr const char* order_variable = "ATTILE_TEST_ORDER";

struct Ran {
  bool right = false;
  int builds = -1, hits = -1;
  std::string output;
};

// Runs the two kernels in a fresh process.
Ran run_two(Environment environment, const std::string& folder, const std::string& order = "ab") {
  environment.insert(environment.begin(), {{"ATTILE_CACHE_DIR", folder}, {order_variable, order}, {"ATTILE_CPU", ""}});
  Ran ran;
  const SelfRun run = run_self(the_two, environment, 120);
  ran.right = run.exit_code == 0;
  ran.output = run.output;
  const auto number = [&](const std::string& label) {
    const auto at = run.output.find(label);
    return at == std::string::npos ? -1 : std::atoi(run.output.c_str() + at + label.size());
  };
  ran.builds = number("kernels built: "), ran.hits = number("kernels read: ");
  return ran;
}

void run_one(char name) {
  AttentionOptions options = with([&](AttentionOptions& o) { o.lse = true, o.softcap = name == 'a', o.alibi = name == 'b'; });
  Call call(options, {.heads = 2, .rows = 20, .keys = 33, .head_dim = 16});
  call.number("softcap", 3);
  if (name == 'b') call.put("alibi_slopes", DType::float32, {1, 2}, {0.5, 0.25});
  call.run();
  CHECK(call.mismatch() == "");
}

}  // namespace

TEST_CASE(the_two) {
  const char* order = std::getenv(order_variable);
  for (const char name : std::string(order ? order : "aba")) run_one(name);
  const CacheStats stats = kernel_cache()->stats();
  if (in_self_run()) std::cout << "kernels built: " << stats.builds << "\nkernels read: " << stats.hits << std::endl;
}

TEST_CASE("a second process builds nothing, whatever the order, the folders, the user and the locale", "[C48]") {
  const ScratchPlace place, elsewhere;
  const Ran first = run_two({}, place.str());
  INFO(first.output);
  CHECK(first.right);
  REQUIRE(first.builds >= 2);
  const Environment others[] = {{},
                                {{"TMPDIR", elsewhere.str()}, {"HOME", elsewhere.str()}, {"USER", "somebody"}},
                                {{"PATH", "/usr/games:/bin:/usr/bin"}, {"LC_ALL", "C.utf8"}, {"LANG", "de_DE.UTF-8"}},
                                {{"ATTILE_THREADS", "3"}}};
  for (const Environment& other : others)
    for (const char* order : {"ab", "ba"}) {
      const Ran again = run_two(other, place.str(), order);
      INFO(again.output);
      CHECK(again.right);
      CHECK(again.builds == 0);
      CHECK(again.hits == first.builds + first.hits);   // a packing kernel may serve both
    }
}

TEST_CASE("a kernel for other CPU features is an entry of its own", "[C46]") {
  const ScratchPlace place;
  const int kernels = run_two({}, place.str()).builds;
  REQUIRE(kernels >= 2);
  const std::size_t entries = names_in(place / "").size();
  const Ran narrow = run_two({{"ATTILE_CPU", "x86-64-v3"}}, place.str());
  INFO(narrow.output);
  CHECK(narrow.right);
  if (detect_host_cpu().vector_bytes == 64) {
    CHECK(narrow.builds >= 2);
    CHECK(names_in(place / "").size() > entries);
  }
  CHECK(run_two({{"ATTILE_CPU", "x86-64-v3"}}, place.str()).builds == 0);
  CHECK(run_two({}, place.str()).builds == 0);
}

TEST_CASE("a cache that cannot be written costs only the time to build", "[C49]") {
  const ScratchPlace place;
  write_text(place / "a file", "x");
  const Environment faults[] = {{{"ATTILE_CACHE_DIR", (place / "a file").string()}},
                                {{"ATTILE_CACHE_DIR", "/proc/no/such/folder"}},
                                {{"ATTILE_CACHE_DIR", ""}, {"HOME", ""}, {"XDG_CACHE_HOME", ""}},
                                {{"ATTILE_CACHE_DIR", ""}, {"HOME", "/proc/no/home"}, {"XDG_CACHE_HOME", ""}},
                                {{"ATTILE_CACHE", "off"}}};
  for (const Environment& fault : faults) {
    const Ran ran = run_two(fault, (place / "unused").string());
    INFO(ran.output);
    CHECK(ran.right);
    CHECK(ran.builds >= 2);
  }
  CHECK_FALSE(fs::exists(place / "unused"));
}

TEST_CASE("a cache that is only read is used", "[C49]") {
  const ScratchPlace place;
  REQUIRE(run_two({}, place.str()).builds >= 2);
  const Ran ran = run_two({{"ATTILE_CACHE", "readonly"}}, place.str());
  CHECK(ran.right);
  CHECK(ran.builds == 0);
}

TEST_CASE("cache folders with any letters work, cold and warm", "[C51]") {
  const ScratchPlace place;
  for (const std::string& name : {std::string("a b"), std::string("größe"), std::string("数据"), std::string("it's \"q\""), std::string("$HOME"),
                                  std::string("new\nline"), std::string(200, 'l')}) {
    const std::string folder = (place / name).string();
    INFO(name);
    CHECK(run_two({}, folder).builds >= 2);
    const Ran warm = run_two({}, folder);
    CHECK(warm.right);
    CHECK(warm.builds == 0);
  }
}

TEST_CASE("processes that start together build each kernel once", "[C42]") {
  const ScratchPlace quiet;
  const int alone = run_two({}, quiet.str()).builds;
  for (int round = 0; round < 3; ++round) {
    const ScratchPlace place;
    std::vector<Ran> ran(4);
    std::vector<std::thread> threads;
    for (Ran& one : ran) threads.emplace_back([&] { one = run_two({}, place.str()); });
    for (std::thread& t : threads) t.join();
    int builds = 0;
    for (const Ran& one : ran) {
      INFO(one.output);
      CHECK(one.right);
      builds += one.builds;
    }
    CHECK(builds == alone);
  }
}

TEST_CASE("kernels whose files were cut or changed are rebuilt, with right results", "[C43]") {
  const ScratchPlace place;
  const int kernels = run_two({}, place.str()).builds;
  REQUIRE(kernels >= 2);
  for (const std::string& part : {std::string("kernel.o"), std::string("meta.yaml")})
    for (const bool cut : {true, false}) {
      for (const std::string& entry : names_in(place / "")) {
        const fs::path file = place / entry / part;
        if (!fs::exists(file)) continue;
        std::string bytes = read_text(file);
        if (cut) bytes.resize(bytes.size() / 2);
        else bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x40);
        write_text(file, bytes);
      }
      const Ran repaired = run_two({}, place.str());
      INFO(part << "\n" << repaired.output);
      CHECK(repaired.right);
      CHECK(repaired.builds == kernels);
      CHECK(run_two({}, place.str()).builds == 0);
    }
}
