// Calls with results in the store: the bucket's winner, the nearest one's, what does not fit, imported files, tuning at
// the first call.
#include "autotune/stored_choice.h"

#include "autotune/exchange.h"
#include "autotune/tuner.h"
#include "dsl/error.h"
#include "runtime/attention.h"
#include "schedules/registry.h"
#include "tests/runtime/scratch_place.h"
#include "tests/runtime/small_call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

class WithStore {
 public:
  WithStore() : facts(facts_of(Device{})), store(place.str(), facts.machine) {
    set_chooser(stored_choice(place.str(), 3));
    forget_chosen_kernels();
    algorithm = attention(attention_options(small.call));
    problem = problem_of(algorithm, attention_arguments(small.call));
  }
  ~WithStore() {
    set_chooser(nullptr);
    forget_chosen_kernels();
  }
  void keep(const Point& winner, int rows_log2 = 2, const std::vector<Point>& next = {}) {
    TuneResult r;
    r.bucket = bucket_of(algorithm, problem, shape_of(small.call), facts.machine.units);
    r.bucket.rows_log2 = rows_log2;
    r.machine = facts.machine.text(), r.versions = facts.machine.versions();
    r.match = match_of(algorithm, problem);
    r.winner = winner, r.next = next, r.seconds = 1e-3, r.complete = true;
    REQUIRE(store.put(r, {}).empty());
    forget_chosen_kernels();
  }
  std::string chosen() { return to_string(point_of(attention_kernel(small.call).program().schedule)); }
  std::string shipped() { return to_string(point_of(default_schedule(algorithm, problem, facts.target))); }

  ScratchPlace place;
  DeviceFacts facts;
  ResultStore store;
  SmallCall small;
  Algorithm algorithm;
  Problem problem;
};

const Point small_tiles{{"tile_rows", "16"}, {"tile_keys", "40"}, {"panel_vectors", "1"}, {"block", "4"}};

}  // namespace

TEST_CASE("a call without results has the shipped schedule, and one with a result its winner") {
  WithStore s;
  CHECK(s.chosen() == s.shipped());
  s.keep(small_tiles);
  CHECK(s.chosen() == to_string(small_tiles));
  s.small.call.tuning = Tuning::never;
  CHECK(s.chosen() == s.shipped());
}

TEST_CASE("an unknown problem has the nearest bucket's winner, and one far away the shipped schedule") {
  WithStore s;
  s.keep(small_tiles, 4);
  CHECK(s.chosen() == to_string(small_tiles));
  s.store.forget([](const TuneResult&) { return true; });
  s.keep(small_tiles, 9);
  CHECK(s.chosen() == s.shipped());
}

TEST_CASE("a winner that is not legal or not known to this version gives way to the next of its bucket") {
  WithStore s;
  s.keep({{"tile_rows", "7"}}, 2, {small_tiles});
  CHECK(s.chosen() == to_string(small_tiles));
  Warnings warnings;
  s.keep({{"roles", "two"}}, 2, {small_tiles});
  CHECK(s.chosen() == to_string(small_tiles));
  CHECK(warnings.count() == 1);
}

TEST_CASE("a damaged store costs a call nothing but one warning") {
  WithStore s;
  s.keep(small_tiles);
  std::string text = read_text(s.store.path());
  text[text.size() - 40] ^= 1;
  write_text(s.store.path(), text);
  forget_chosen_kernels();
  Warnings warnings;
  CHECK(s.chosen() == s.shipped());
  run_attention(s.small.call);
  CHECK(warnings.count() == 1);
}

TEST_CASE("imported schedules are preferred to the shipped ones and results to both") {
  WithStore s;
  ScheduleFile file = schedule_file(s.facts.target);
  file.best.insert(file.best.begin(), {"mine", {}, schedule_of(small_tiles), 0, ""});
  write_text(s.place / "mine.yaml", to_yaml(file));
  import_file((s.place / "mine.yaml").string(), s.place.str(), s.facts.machine);
  set_chooser(stored_choice(s.place.str()));
  forget_chosen_kernels();
  CHECK(s.chosen() == to_string(small_tiles));
  Point other = small_tiles;
  other[1].second = "48";
  s.keep(other);
  CHECK(s.chosen() == to_string(other));
}

TEST_CASE("tuning at the first call leaves the data alone, and later calls give the same bits", "[C67]") {
  WithStore s;
  s.small.call.tuning = Tuning::now;
  s.small.with_sink();
  const std::vector<float> q = s.small.q, k = s.small.k, v = s.small.v, sink = s.small.sink;
  run_attention(s.small.call);
  const std::vector<float> first = s.small.o;
  CHECK(s.store.all().size() == 1);
  s.small.fill_outputs();
  s.small.call.tuning = Tuning::cached;
  run_attention(s.small.call);
  CHECK(s.small.o == first);
  CHECK(s.small.q == q);
  CHECK(s.small.k == k);
  CHECK(s.small.v == v);
  CHECK(s.small.sink == sink);
}

TEST_CASE("a warm-up with tuning is for calls too that were made before") {
  WithStore s;
  CHECK(s.chosen() == s.shipped());
  TuneResult r;
  r.bucket = bucket_of(s.algorithm, s.problem, shape_of(s.small.call), s.facts.machine.units);
  r.machine = s.facts.machine.text(), r.versions = s.facts.machine.versions();
  r.match = match_of(s.algorithm, s.problem);
  r.winner = small_tiles, r.seconds = 1e-3, r.complete = true;
  REQUIRE(s.store.put(r, {}).empty());
  warm_up(std::span(&s.small.call, 1), Tuning::now);
  CHECK(s.chosen() == to_string(small_tiles));
}

TEST_CASE("what a call takes first is told with where it came from") {
  WithStore s;
  const auto explained = [&] {
    return explained_choice(s.place.str(), s.algorithm, s.problem, s.facts.target, s.small.call);
  };
  CHECK(!explained());
  s.keep(small_tiles);
  REQUIRE(explained());
  CHECK(explained()->schedule == schedule_of(small_tiles));
  CHECK_THAT(explained()->from, ContainsSubstring("attile tune") && ContainsSubstring(s.store.path()));
}

TEST_CASE("a call says itself as words of the command") {
  SmallCall small;
  small.call.causal = true;
  small.call.window_left = 3;
  small.with_lse();
  std::string words;
  for (const std::string& word : tune_words(small.call)) words += word + " ";
  const std::size_t at = words.find("--threads "), end = words.find(' ', at + 10);
  REQUIRE(at != std::string::npos);
  CHECK(words.erase(at, end + 1 - at) ==
        "--device cpu --dtype float32 --out-dtype float32 --batch 2 --heads 4 --kv-heads 2 --seqlen-q 3 --seqlen-k 5 "
        "--head-dim 16 --value-dim 8 --causal --lse --window=3,-1 ");
  small.packed();
  CHECK(tune_words(small.call).empty());
}

TEST_CASE("the visible share of a call follows its masks") {
  SmallCall small;
  CHECK(shape_of(small.call).visible == 1);
  small.call.causal = true;
  CHECK(shape_of(small.call).visible == Approx((3 + 4 + 5) / 15.0));
  small.call.window_left = 0;
  CHECK(shape_of(small.call).visible == Approx(3 / 15.0));
}
