// The search's decisions, on a device whose timings, failures, hangs and noise are scripted.
#include "autotune/search.h"

#include "tests/autotune/scripted_device.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

// Seconds grow with the distance from the best point, in steps of two.
double bowl(const Point& p, double rows, double keys) {
  const double x = std::log2(number_at(p, "tile_rows") / rows), y = std::log2(number_at(p, "tile_keys") / keys);
  return 1e-3 * (1 + 0.1 * (x * x + y * y) + (*value_of(p, "form") == "b" ? 0.05 : 0));
}

std::string winner_of(const Space& space, const SearchResult& result) {
  return result.winner ? to_string(space.candidates[*result.winner].point) : "none";
}

}  // namespace

TEST_CASE("the fastest candidate wins where the model is right") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 32); });
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{bowl(p, 64, 32), "", "", 0.5}; };
  const SearchResult result = search(space, device, {});
  CHECK(winner_of(space, result) == to_string(at(64, 32)));
  CHECK(result.complete);
  CHECK(!result.noisy);
  CHECK(device.ready.empty());
  CHECK(result.timed == device.timed.size());
  CHECK(device.proven.size() < space.candidates.size());
}

TEST_CASE("neighbours of the leaders lead to a best candidate that the model ranks late") {
  // The model believes in the opposite corner.
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 16, 128); });
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{bowl(p, 128, 16), "", "", 0.2}; };
  SearchOptions options;
  options.first = 3;
  const SearchResult result = search(space, device, options);
  CHECK(winner_of(space, result) == to_string(at(128, 16)));
  CHECK(result.exhausted);
}

TEST_CASE("candidates that crash, hang, spill, disagree or fail while they are timed never win and are remembered",
          "[C63][C67]") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 64); });
  ScriptedDevice device;
  device.script = [](const Point& p) {
    Script s{bowl(p, 64, 64), "", "", 0.2};
    if (p == at(64, 64)) s.seconds /= 10, s.fault = "wrong: o at [0][0][3][1] is 7, the reference 2";
    if (p == at(32, 64)) s.seconds /= 10, s.fault = "crashed: signal 11";
    if (p == at(64, 32)) s.seconds /= 10, s.fault = "hung: no answer within 10 s";
    if (p == at(128, 64)) s.seconds /= 10, s.timing_fault = "hung: no answer within 10 s";
    return s;
  };
  const SearchResult result = search(space, device, {});
  REQUIRE(result.winner);
  const Point winner = space.candidates[*result.winner].point;
  for (const Point& bad : {at(64, 64), at(32, 64), at(64, 32), at(128, 64)}) {
    CAPTURE(to_string(bad));
    CHECK(winner != bad);
    REQUIRE(result.tried.outcomes.contains(to_string(bad)));
    CHECK(!result.tried.outcomes.at(to_string(bad)).fault.empty());
    CHECK(result.tried.outcomes.at(to_string(bad)).seconds == 0);
  }
  CHECK(device.ready.empty());
  for (const auto& [name, times] : device.proven) CHECK(times == 1);
}

TEST_CASE("one good candidate among bad ones wins, and with none there is no winner and every need is listed",
          "[C63]") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 64); });
  ScriptedDevice device;
  device.script = [](const Point& p) {
    return Script{1e-3, p == at(16, 128, "b") ? "" : "needs 300 KiB of shared memory", "", 0.01};
  };
  SearchOptions endless;
  endless.budget = 0;
  const SearchResult one = search(space, device, endless);
  CHECK(winner_of(space, one) == to_string(at(16, 128, "b")));
  CHECK(one.tried.outcomes.size() == space.candidates.size());
  device = {};
  device.script = [](const Point&) { return Script{1e-3, "needs 300 KiB of shared memory", "", 0.01}; };
  const SearchResult none = search(space, device, endless);
  CHECK(!none.winner);
  CHECK(none.timed == 0);
  CHECK(none.tried.outcomes.size() == space.candidates.size());
}

TEST_CASE("an endless budget tries everything and finds the best one anywhere") {
  const Space space = space_of(plane(), [](const Point&) { return 1.0; });
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{p == at(16, 128, "b") ? 5e-4 : 1e-3, "", "", 0.01}; };
  SearchOptions options;
  options.budget = 0;
  const SearchResult result = search(space, device, options);
  CHECK(winner_of(space, result) == to_string(at(16, 128, "b")));
  CHECK(device.timed.size() == space.candidates.size());
  CHECK(device.most_ready < 16);
}

TEST_CASE("the budget ends the search on the device's clock and what is known by then wins") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 64); });
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{bowl(p, 64, 64), "", "", 6}; };
  SearchOptions options;
  options.budget = 20;
  options.yardstick = at(128, 128);
  const SearchResult result = search(space, device, options);
  CHECK(result.winner);
  CHECK(device.clock < 100 + 20 + 6);
  CHECK(device.timed.size() < 10);
}

TEST_CASE("a stop in the middle keeps what is known, and the next run does not time it again", "[C64]") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 32, 32); });
  const auto script = [](const Point& p) { return Script{bowl(p, 128, 128), "", "", 0.2}; };
  std::atomic<bool> stop = false;
  ScriptedDevice device;
  device.script = script;
  device.on_sample = [&] { stop = device.samples >= 70; };
  SearchOptions options;
  options.stop = &stop;
  const SearchResult first = search(space, device, options);
  CHECK(!first.complete);
  REQUIRE(first.winner);
  ScriptedDevice later;
  later.script = script;
  SearchOptions resumed;
  resumed.known = first.tried;
  const SearchResult second = search(space, later, resumed);
  CHECK(winner_of(space, second) == to_string(at(128, 128)));
  int again = 0;
  for (const auto& [name, times] : later.timed) again += first.tried.outcomes.contains(name);
  CHECK(again <= 3);  // the leaders, as the measure of the others
  CHECK(second.timed == later.timed.size() - static_cast<std::size_t>(again));
}

TEST_CASE("what failed is not tried again, and of a larger space only what is new is timed", "[C63][C64]") {
  std::vector<ScheduleSpace> choices = plane();
  const auto model = [](const Point& p) { return bowl(p, 64, 64); };
  const Space small = space_of(choices, model);
  ScriptedDevice device;
  device.script = [&](const Point& p) {
    return Script{bowl(p, 64, 64), p == at(64, 32) ? "crashed: signal 11" : "", "", 0.2};
  };
  const SearchResult first = search(small, device, {});
  choices[0].choices[0].values.push_back("256");
  choices[0].choices[1].values = {"64"};
  choices[0].choices[2].values = {"a"};
  const Space larger = space_of(choices, model);
  ScriptedDevice later;
  later.script = [&](const Point& p) { return Script{p == at(256, 64) ? 5e-4 : bowl(p, 64, 64), "", "", 0.2}; };
  SearchOptions options;
  options.known = first.tried;
  options.only_new = true;
  const SearchResult second = search(larger, later, options);
  CHECK(second.timed == 1);
  CHECK(later.timed.size() == 2);  // the leader stands beside it
  CHECK(!later.proven.contains(to_string(at(64, 32))));
  CHECK(winner_of(larger, second) == to_string(at(256, 64)));
}

TEST_CASE("candidates within noise are resolved by a fixed order, the default first") {
  const Space space = space_of(plane(), [](const Point&) { return 1.0; });
  for (const int seed : {0, 1, 2, 3}) {
    ScriptedDevice device;
    device.script = [](const Point& p) { return Script{*value_of(p, "form") == "a" ? 1e-3 : 2e-3, "", "", 0.01}; };
    device.disturbance = [&](int i) { return 1 + 0.002 * ((i * 7 + seed * 13) % 5); };
    SearchOptions options;
    options.yardstick = at(128, 64);
    CHECK(winner_of(space, search(space, device, options)) == to_string(at(128, 64)));
  }
}

TEST_CASE("a single disturbed sample does not make a candidate lose") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 32); });
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{bowl(p, 64, 32), "", "", 0.2}; };
  device.disturbance = [](int i) { return i % 6 == 5 ? 4.0 : 1.0; };  // another program's turn
  CHECK(winner_of(space, search(space, device, {})) == to_string(at(64, 32)));
}

TEST_CASE("the default's time is told as it is, though some of its samples were disturbed") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 32); });
  for (const int hit : {0, 1, 2}) {
    ScriptedDevice device;
    device.script = [](const Point& p) { return Script{bowl(p, 64, 32), "", "", 0.2}; };
    device.own_disturbance = [&](const Point& p, int times) { return p == at(64, 64) && times % 3 == hit ? 2.0 : 1.0; };
    SearchOptions options;
    options.yardstick = at(64, 64);
    const SearchResult result = search(space, device, options);
    CHECK(winner_of(space, result) == to_string(at(64, 32)));
    CHECK(result.yardstick_seconds == Approx(bowl(at(64, 64), 64, 32)));
  }
}

TEST_CASE("other work on the device is seen, said and marked") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 32); });
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{bowl(p, 64, 32), "", "", 0.2}; };
  device.probe_time = [](int i) { return i % 2 ? 1.6e-4 : 1e-4; };
  const SearchResult result = search(space, device, {});
  CHECK(result.noisy);
  CHECK_THAT(result.noise, ContainsSubstring("something else uses the device"));
}

TEST_CASE("drift of the machine between two contests does not favour the later one") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 64); });
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{bowl(p, 64, 64), "", "", 0.5}; };
  device.disturbance = [&](int i) { return i < 60 ? 1.0 : 0.7; };  // the clock goes up after the first contest
  CHECK(winner_of(space, search(space, device, {})) == to_string(at(64, 64)));
}

TEST_CASE("known leaders are timed anew when a result is measured again") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 64); });
  SearchOptions options;
  options.again = true;
  options.known.outcomes[to_string(at(64, 64))] = {2e-3, ""};
  options.known.outcomes[to_string(at(32, 64))] = {1e-3, ""};  // measured under noise
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{bowl(p, 64, 64), "", "", 0.5}; };
  const SearchResult result = search(space, device, options);
  CHECK(winner_of(space, result) == to_string(at(64, 64)));
  CHECK(result.timed == 0);
  CHECK(device.timed.size() == 2);
}

TEST_CASE("both states of the cache are measured for the finalists") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 64); });
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{bowl(p, 64, 64), "", "", 0.5}; };
  const SearchResult result = search(space, device, {});
  CHECK(result.measured.front().warm == Approx(1e-3));
  CHECK(result.measured.front().cold == Approx(1.5e-3));
}

TEST_CASE("a made-up field of a made-up target is searched as data") {
  const std::vector<ScheduleSpace> choices = {
      {{{"roles", {"one", "two", "pingpong"}}, {"ring", {"2", "3", "4"}}, {"cluster", {"1", "2"}}}}};
  const auto seconds = [](const Point& p) {
    return 1e-3 * (*value_of(p, "roles") == "pingpong" ? 1 : 1.2) * (1 + 0.05 * std::fabs(number_at(p, "ring") - 3)) *
           (*value_of(p, "cluster") == "2" ? 0.9 : 1);
  };
  const auto reasons = [](const Point& p) {
    std::vector<std::string> out;
    if (*value_of(p, "roles") == "one" && *value_of(p, "cluster") == "2") out.push_back("cluster 2 needs two roles");
    return out;
  };
  const Space space = space_of(choices, {}, reasons);
  CHECK(space.rejected.size() == 3);
  CHECK(grouped(space.rejected).front().count == 3);
  ScriptedDevice device;
  device.script = [&](const Point& p) { return Script{seconds(p), "", "", 0.1}; };
  SearchOptions options;
  options.first = 2;
  const SearchResult result = search(space, device, options);
  CHECK(winner_of(space, result) == "{roles: pingpong, ring: 3, cluster: 2}");
}

TEST_CASE("finalists whose calls with a cold cache do not answer in time keep what was timed") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 64); });
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{bowl(p, 64, 64), "", "", 0.5, "hung: no answer within 15 s"}; };
  const SearchResult result = search(space, device, {});
  CHECK(winner_of(space, result) == to_string(at(64, 64)));
  CHECK(result.tried.outcomes.at(to_string(at(64, 64))).fault.empty());
  CHECK(result.measured.front().cold == 0);
  CHECK(result.complete);
}

TEST_CASE("a search whose first contest ran out of time is not complete") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 64); });
  ScriptedDevice device;
  device.script = [](const Point& p) { return Script{bowl(p, 64, 64), "", "", 6}; };
  SearchOptions options;
  options.budget = 10;
  const SearchResult result = search(space, device, options);
  CHECK(result.winner);
  CHECK(!result.complete);
  options.budget = 100;
  ScriptedDevice in_time;
  in_time.script = device.script;
  CHECK(search(space, in_time, options).complete);
}

TEST_CASE("after a stop no sample is taken and nothing is proven") {
  const Space space = space_of(plane(), [](const Point& p) { return bowl(p, 64, 64); });
  for (const int last : {0, 3, 70}) {
    CAPTURE(last);
    std::atomic<bool> stop = last == 0;
    ScriptedDevice device;
    int proven_before = 0;
    device.script = [](const Point& p) { return Script{bowl(p, 64, 64), "", "", 0.2}; };
    device.on_sample = [&] {
      if (device.samples == last) stop = true, proven_before = static_cast<int>(device.proven.size());
    };
    SearchOptions options;
    options.stop = &stop;
    const SearchResult result = search(space, device, options);
    CHECK(device.samples == last);
    if (last > 0) CHECK(static_cast<int>(device.proven.size()) == proven_before);
    CHECK(result.winner.has_value() == (last > 0));
    CHECK(!result.complete);
    CHECK(device.ready.empty());
  }
}
