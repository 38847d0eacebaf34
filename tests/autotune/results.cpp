// The store of results: kept, found, shared by processes, damaged, of other machines and versions, bounded.
#include "autotune/results.h"

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "autotune/exchange.h"
#include "dsl/error.h"
#include "dsl/library.h"
#include "runtime/file_lock.h"
#include "schedules/registry.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

Machine machine() { return {"sm_90", "Some GPU / 80 \"GB\"", 132, 700, "13.0", "NVRTC 13.0", "0.1.0"}; }

TuneResult result_at(int rows_log2, double seconds = 1e-3) {
  TuneResult r;
  r.bucket = {"attention 0123", "D64 Dv64 group 1 q:float32", rows_log2, rows_log2, 3};
  r.shape = {2, 8, 4, std::int64_t{1} << rows_log2, std::int64_t{1} << rows_log2, 0.5};
  r.machine = machine().text(), r.versions = machine().versions();
  r.match = {{"dtype", "bfloat16"}, {"head_dim", "64"}, {"rows", "many"}, {"masked", "true"}, {"grouped", "false"}};
  r.winner = {{"tile_rows", "128"}, {"tile_keys", "64"}, {"lanes", "fragments"}};
  r.next = {{{"tile_rows", "64"}, {"lanes", "fragments"}}};
  r.seconds = seconds, r.default_seconds = 1.1e-3, r.spread = 0.01, r.gflops = 123, r.complete = true, r.when = 1234567;
  return r;
}

TriedList tried_list() {
  TriedList t;
  t.outcomes["{tile_rows: 128, tile_keys: 64}"] = {1e-3, ""};
  t.outcomes["{tile_rows: 256}"] = {0, "crashed: signal 11 | \"x\"; \\ \n y"};
  t.seen = {1, 0xffffffffffffffffu};
  return t;
}

}  // namespace

TEST_CASE("a result survives its line, and a changed letter does not pass") {
  const TuneResult r = result_at(10);
  const std::string line = result_line(r);
  CHECK(result_line(parse_result_line(line, "x")) == line);
  for (std::size_t i = 0; i < line.size(); i += 7) {
    std::string broken = line;
    broken[i] = broken[i] == 'x' ? 'y' : 'x';
    CAPTURE(broken);
    CHECK_THROWS_AS(parse_result_line(broken, "x"), Error);
  }
  CHECK_THROWS_AS(parse_result_line(line.substr(0, line.size() / 2), "x"), Error);
}

TEST_CASE("what is put is found by another object, with all that was tried") {
  const ScratchPlace place;
  CHECK(ResultStore(place.str() + "/new/folder", machine()).put(result_at(10), tried_list()).empty());
  const ResultStore store(place.str() + "/new/folder", machine());
  const auto found = store.find(result_at(10).bucket);
  REQUIRE(found);
  CHECK(result_line(*found) == result_line(result_at(10)));
  const TriedList tried = store.tried(result_at(10).bucket);
  CHECK(tried.seen == tried_list().seen);
  REQUIRE(tried.outcomes.size() == 2);
  CHECK(tried.outcomes.at("{tile_rows: 128, tile_keys: 64}").seconds == 1e-3);
  CHECK_THAT(tried.outcomes.at("{tile_rows: 256}").fault, ContainsSubstring("crashed: signal 11"));
  CHECK(names_in(place / "new/folder").size() == 2);
  // The whole file is YAML for any reader of it.
  CHECK_THAT(read_text(store.path()), ContainsSubstring("results:\n- {algorithm: \"attention 0123\""));
}

TEST_CASE("unknown problems get the nearest bucket of their kind, not one far away and not one of another kind") {
  const ScratchPlace place;
  ResultStore store(place.str(), machine());
  for (const int log2 : {8, 12}) REQUIRE(store.put(result_at(log2, log2 * 1e-3), {}).empty());
  Bucket asked = result_at(11).bucket;
  auto near = store.nearest(asked);
  REQUIRE(near.size() == 2);
  CHECK(near[0].bucket.rows_log2 == 12);
  CHECK(near[1].bucket.rows_log2 == 8);
  CHECK(!store.find(asked));
  asked.rows_log2 = asked.keys_log2 = 15;
  near = store.nearest(asked);
  REQUIRE(near.size() == 1);
  CHECK(near[0].bucket.rows_log2 == 12);
  asked.rows_log2 = asked.keys_log2 = 20;
  CHECK(store.nearest(asked).empty());
  asked = result_at(12).bucket;
  asked.problem = "D64 Dv64 group 1 q:float16";
  CHECK(store.nearest(asked).empty());
}

TEST_CASE("results of another device or version are passed over with one line and replaced") {
  const ScratchPlace place;
  Machine older = machine(), weaker = machine();
  older.library = "0.0.9";
  weaker.power_limit_w = 350;
  TuneResult r = result_at(10);
  for (const Machine& m : {older, weaker}) {
    r.machine = m.text(), r.versions = m.versions();
    REQUIRE(ResultStore(place.str(), m).put(r, tried_list()).empty());
    Warnings warnings;
    ResultStore store(place.str(), machine());
    CHECK(!store.find(r.bucket));
    CHECK(store.tried(r.bucket).outcomes.empty());
    CHECK(!store.find(r.bucket));
    REQUIRE(warnings.count() == 1);
    CHECK_THAT(warnings.texts()[0], ContainsSubstring(m.text()) && ContainsSubstring("passed over"));
  }
  ResultStore store(place.str(), machine());
  REQUIRE(store.put(result_at(10), {}).empty());
  CHECK(store.all().size() == 1);
  CHECK(store.find(r.bucket));
}

TEST_CASE("damaged lines are passed over with one line, the others stay, and the next result replaces them") {
  const ScratchPlace place;
  ResultStore store(place.str(), machine());
  for (const int log2 : {8, 9, 10}) REQUIRE(store.put(result_at(log2), {}).empty());
  std::string text = read_text(store.path());
  const std::size_t at = text.find("bucket: [9");
  text[at + 20] = '~';
  for (const std::string& damaged :
       {text, text + "- {algorithm: \"attention 0123\", problem: \"D64 Dv64 group 1 q:float32\", bu",
        text + std::string(300, '\0')}) {
    write_text(store.path(), damaged);
    Warnings warnings;
    CHECK(store.find(result_at(8).bucket));
    CHECK(!store.find(result_at(9).bucket));
    CHECK(warnings.count() >= 1);
    CHECK(warnings.count() <= 2);
    REQUIRE(store.put(result_at(11), {}).empty());
    std::vector<std::string> faults;
    CHECK(store.all(&faults).size() == 3);
    CHECK(faults.empty());
    CHECK(store.find(result_at(10).bucket));
    REQUIRE(store.forget([](const TuneResult& r) { return r.bucket.rows_log2 == 11; }) == 1);
  }
}

TEST_CASE("a file that is no text, a folder in its place or no folder at all is no error of the caller's") {
  const ScratchPlace place;
  const ResultStore store(place.str(), machine());
  write_text(store.path(), std::string("\x7f\x45LF\0\0\1", 7));
  CHECK(store.nearest(result_at(10).bucket).empty());
  std::filesystem::remove(store.path());
  std::filesystem::create_directory(store.path());
  CHECK(store.nearest(result_at(10).bucket).empty());
  CHECK(!ResultStore(store).put(result_at(10), {}).empty());
  CHECK(!ResultStore("", machine()).put(result_at(10), {}).empty());
  CHECK(ResultStore("", machine()).nearest(result_at(10).bucket).empty());
}

TEST_CASE("eight processes that put at once lose nothing, one that is killed in the middle included", "[C64]") {
  const ScratchPlace place;
  std::vector<pid_t> children;
  for (int child = 0; child < 8; ++child)
    children.push_back(start_child([&] {
      ResultStore store(place.str(), machine());
      for (int i = 0; i < 10; ++i) {
        TuneResult r = result_at(10);
        r.bucket.fill_log2 = 100 * child + i;
        expect(store.put(r, tried_list()).empty(), "put");
      }
    }));
  const pid_t victim = start_child([&] {
    ResultStore store(place.str(), machine());
    for (;;) store.put(result_at(9), tried_list()), usleep(500);
  });
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  kill(victim, SIGKILL);
  CHECK(wait_for(victim) == -SIGKILL);
  ResultStore store(place.str(), machine());
  std::vector<std::string> faults;
  std::size_t own = 0;
  for (const TuneResult& r : store.all(&faults)) own += r.bucket.rows_log2 == 10;
  CHECK(own == 80);
  CHECK(faults.empty());
  REQUIRE(store.put(result_at(9), {}).empty());  // sweeps what the killed one left
  for (const std::string& name : names_in(place.str())) CHECK_THAT(name, !ContainsSubstring(".tmp"));
}

TEST_CASE("a full disk leaves the old results whole and is told") {
  const ScratchPlace place;
  ResultStore store(place.str(), machine());
  REQUIRE(store.put(result_at(10), {}).empty());
  const int code = run_in_child([&] {
    const rlimit limit{256, 256};  // bytes of any file
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string fault = ResultStore(place.str(), machine()).put(result_at(12), tried_list());
    expect(fault.find("cannot be written") != std::string::npos, "the fault is '" + fault + "'");
  });
  CHECK(code == 0);
  CHECK(store.all().size() == 1);
  CHECK(store.find(result_at(10).bucket));
}

TEST_CASE("a folder without the right to write is told and read") {
  const ScratchPlace place;
  REQUIRE(ResultStore(place.str(), machine()).put(result_at(10), {}).empty());
  std::filesystem::permissions(place.str(), std::filesystem::perms(0555));
  std::filesystem::permissions(ResultStore(place.str(), machine()).path(), std::filesystem::perms(0444));
  const int code = run_in_child([&] {
    become_nobody();
    ResultStore store(place.str(), machine());
    expect(store.find(result_at(10).bucket).has_value(), "found");
    expect(!store.put(result_at(11), {}).empty(), "not written");
  });
  CHECK(code == 0);
}

TEST_CASE("a store is bounded, the oldest results go first, and a look-up in a full one takes few milliseconds") {
  const ScratchPlace place;
  ResultStore store(place.str(), machine());
  std::string text = "results:\n";
  TuneResult r = result_at(10);
  for (int i = 0; i < 3000; ++i) {
    r.bucket.fill_log2 = i;
    text += result_line(r) + "\n";
  }
  std::filesystem::create_directories(place.str());
  write_text(store.path(), text);
  REQUIRE(store.put(result_at(9), {}).empty());
  const std::vector<TuneResult> all = store.all();
  CHECK(all.size() == most_results);
  CHECK(all.back().bucket.rows_log2 == 9);
  CHECK(all.front().bucket.fill_log2 == 3000 - static_cast<int>(most_results) + 1);
  CHECK(std::filesystem::file_size(store.path()) <= most_result_bytes);
  Bucket other = result_at(10).bucket;
  other.problem = "D80 Dv80 group 1 q:float32";
  const auto start = std::chrono::steady_clock::now();
  CHECK(store.nearest(other).empty());
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(20));
}

TEST_CASE(
    "what is exported is a schedule file that imports, with a head dim for each result and the work as its measure") {
  const ScratchPlace place;
  ResultStore store(place.str(), machine());
  const auto put = [&](const TuneResult& r, const TriedList& tried = {}) { REQUIRE(store.put(r, tried).empty()); };
  put(result_at(10)), put(result_at(11));
  TuneResult most_work = result_at(12), wider = result_at(10), old = result_at(9);
  most_work.winner = {{"tile_rows", "64"}, {"lanes", "fragments"}};
  put(most_work);
  wider.bucket.problem = "D128 Dv128 group 1 q:float32", wider.match[1].second = "128";
  put(wider);
  old.versions = "attile 0.0.1";
  put(old);
  const ScheduleFile shipped = schedule_file(target_from_name("sm_90"));
  const ScheduleFile file = exported(store.all(), store, shipped);
  REQUIRE(file.best.size() == shipped.best.size() + 2);
  CHECK(file.best[0].match.head_dim_to == 64);
  CHECK(file.best[0].schedule.tile_rows == 64);
  CHECK(file.best[1].match.head_dim_from == 65);
  CHECK(file.best[1].match.head_dim_to == 128);
  CHECK(parse_schedule_file(to_yaml(file), "exported") == file);
  CHECK(exported(store.all(), store, file) == file);  // once more changes nothing
  write_text(place / "exported.yaml", to_yaml(file));
  CHECK(import_file((place / "exported.yaml").string(), place.str(), machine()) == file.best.size());
  const std::optional<ScheduleFile> back = imported(place.str(), machine());
  REQUIRE(back);
  CHECK(*back == file);
  Machine other = machine();
  other.target = "sm_80";
  CHECK_THROWS_AS(import_file((place / "exported.yaml").string(), place.str(), other), Error);
}

TEST_CASE("an exported schedule leaves the number of parts to the call where that was tried") {
  const ScratchPlace place;
  ResultStore store(place.str(), machine());
  TuneResult decode = result_at(2);
  decode.match[2].second = "few";
  decode.winner = {{"tile_rows", "16"}, {"lanes", "fragments"}, {"splits", "4"}};
  const Point open{{"tile_rows", "16"}, {"lanes", "fragments"}, {"splits", "0"}};
  const auto exported_with = [&](const std::vector<std::pair<Point, Outcome>>& outcomes) {
    TriedList tried;
    for (const auto& [point, outcome] : outcomes) tried.outcomes[to_string(point)] = outcome;
    REQUIRE(store.put(decode, tried).empty());
    return exported(store.all(), store, schedule_file(target_from_name("sm_90"))).best.front();
  };
  KnownSchedule k = exported_with({{decode.winner, {1e-3, ""}}, {open, {1.25e-3, ""}}});
  CHECK(k.schedule == schedule_of(open));
  CHECK(k.gflops == Approx(0.8 * decode.gflops));  // what that schedule reached
  k = exported_with({{decode.winner, {1e-3, ""}}, {open, {0, "crashed"}}});
  CHECK(k.schedule == schedule_of(decode.winner));
  CHECK(k.gflops == decode.gflops);
  decode.winner.pop_back();  // one part
  CHECK(exported_with({{decode.winner, {1e-3, ""}}, {open, {1e-3, ""}}}).schedule == schedule_of(open));
  decode.match[2].second = "many";
  CHECK(exported_with({{decode.winner, {1e-3, ""}}, {open, {1e-3, ""}}}).schedule == schedule_of(decode.winner));
}

TEST_CASE("results for several thread counts stand side by side, without a word") {
  const ScratchPlace place;
  Machine few = machine(), many = machine();
  few.units = 4, many.units = 16;
  const auto of = [](const Machine& m, double seconds) {
    TuneResult r = result_at(10, seconds);
    r.machine = m.text();
    return r;
  };
  REQUIRE(ResultStore(place.str(), few).put(of(few, 4e-3), tried_list()).empty());
  REQUIRE(ResultStore(place.str(), many).put(of(many, 1e-3), tried_list()).empty());
  Warnings warnings;
  ResultStore store(place.str(), few);
  REQUIRE(store.find(result_at(10).bucket));
  CHECK(store.find(result_at(10).bucket)->seconds == 4e-3);
  CHECK(ResultStore(place.str(), many).find(result_at(10).bucket)->seconds == 1e-3);
  CHECK(!store.tried(result_at(10).bucket).outcomes.empty());
  CHECK(warnings.count() == 0);
  REQUIRE(store.put(of(few, 3e-3), {}).empty());
  CHECK(store.all().size() == 2);
  CHECK(store.forget([](const TuneResult&) { return true; }) == 2);
  CHECK(store.all_tried().empty());
}

TEST_CASE("numbers that no measurement has are damage") {
  const auto refused = [](const auto& change) {
    TuneResult r = result_at(10);
    change(r);
    CHECK_THROWS_AS(parse_result_line(result_line(r), "x"), Error);
  };
  for (const double seconds : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    refused([&](TuneResult& r) { r.seconds = seconds; });
  refused([](TuneResult& r) { r.gflops = -1; });
  refused([](TuneResult& r) { r.default_seconds = std::nan(""); });
  refused([](TuneResult& r) { r.match = {}; });
  refused([](TuneResult& r) { r.match[1].second = "-5"; });
}

TEST_CASE("nothing is removed from a folder that is not there, and a file that cannot be written is named") {
  const ScratchPlace place;
  CHECK(ResultStore(place.str() + "/fresh", machine()).forget([](const TuneResult&) { return true; }) == 0);
  CHECK(!fs::exists(place / "fresh"));
  ResultStore store(place.str(), machine());
  fs::create_directories(store.tried_path() + "/x");
  CHECK_THAT(store.put(result_at(10), tried_list()), ContainsSubstring(store.tried_path()));
}

TEST_CASE("schedules are imported through links, and a folder is called one") {
  const ScratchPlace place;
  write_text(place / "real.yaml", to_yaml(schedule_file(target_from_name("sm_90"))));
  fs::create_symlink(place / "real.yaml", place / "link.yaml");
  CHECK(import_file((place / "link.yaml").string(), place.str(), machine()) > 0);
  try {
    import_file(place.str(), place.str(), machine());
    FAIL("no error");
  } catch (const Error& e) {
    CHECK_THAT(e.what(), ContainsSubstring("it is a folder"));
  }
}
