// Tuning as a whole on a scripted device: look-ups, new candidates, noise, turns, errors that list the needs.
#include "autotune/tuner.h"

#include <signal.h>
#include <atomic>
#include "autotune/exchange.h"
#include "autotune/point.h"
#include "dsl/error.h"
#include "dsl/library.h"
#include "runtime/file_lock.h"
#include "schedules/registry.h"
#include "tests/autotune/scripted_device.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

struct Named {
  TuneProblem problem;
  CallShape shape{4, 16, 16, 4096, 4096, 1};
  DeviceFacts facts;
  explicit Named(const std::string& target, std::int64_t head_dim = 128, DType type = DType::bfloat16) {
    problem.algorithm = attention({});
    for (const char* name : {"q", "k", "v", "o"}) problem.problem.dtypes[name] = type;
    problem.problem.extents = {{"head_dim", head_dim}, {"value_dim", head_dim}};
    facts.target = target_from_name(target);
    facts.machine = {target, "Named " + target, 132, 700, "13.0", "NVRTC 13.0", "0.1.0"};
  }
};

// The model's opinion with a hidden preference for one field value.
Script measured(const Named& n, const Constants& c, const Point& point) {
  Script s;
  s.seconds = predict(n.problem.algorithm, n.problem.problem, n.shape, schedule_of(point), n.facts.target, c).seconds();
  if (const std::string* late = value_of(point, "late_copies"); late && *late == "true") s.seconds *= 0.7;
  s.build_seconds = 0.3;
  return s;
}

struct Run {
  ScriptedDevice device;
  TuneReport report;
  Run(const Named& n, const TuneOptions& options) {
    const Constants c = shipped_constants(n.facts.target);
    device.script = [&](const Point& point) { return measured(n, c, point); };
    report = tune(n.problem, n.shape, n.facts, options, &device);
  }
};

// How a child ends that is killed at its 80th sample.
int killed_while_tuning(const Named& n, const TuneOptions& options) {
  const Constants c = shipped_constants(n.facts.target);
  return run_in_child([&] {
    ScriptedDevice device;
    device.script = [&](const Point& point) { return measured(n, c, point); };
    device.on_sample = [&] {
      if (device.samples == 80) raise(SIGKILL);
    };
    tune(n.problem, n.shape, n.facts, options, &device);
  });
}

}  // namespace

TEST_CASE("a second tune of a known problem times nothing, another process's result included", "[C64]") {
  const ScratchPlace place;
  const Named n("sm_90");
  TuneOptions options;
  options.folder = place.str();
  REQUIRE(keep_constants(shipped_constants(n.facts.target), n.facts, place.str()).empty());  // so that none is measured
  CHECK(run_in_child([&] { expect(Run(n, options).report.found.timed > 4, "timed"); }) == 0);
  const Run second(n, options);
  CHECK(second.report.known);
  CHECK(second.device.samples == 0);
  CHECK(second.report.result->winner.size() > 1);
  TuneOptions resume = options;
  resume.resume = true;
  const Run third(n, resume);
  CHECK(!third.report.known);
  CHECK(third.report.result->seconds <= second.report.result->seconds * 1.01);
  TuneOptions again = options;
  again.again = true;
  CHECK(Run(n, again).report.found.timed > 4);
}

TEST_CASE("only constants that are not the shipped ones are kept, so that later shipped ones count") {
  const ScratchPlace place;
  const Named n("sm_90");
  const Constants shipped = shipped_constants(n.facts.target);
  Constants c = shipped;
  c.values["read_gbs"] = 4321.5;
  REQUIRE(keep_constants(c, n.facts, place.str()).empty());
  const Constants kept = parse_constants(read_text(place / (n.facts.machine.file_name() + ".model.yaml")), "kept");
  CHECK(kept.values == std::map<std::string, double>{{"read_gbs", 4321.5}});
  CHECK(kept.effects.empty());
  CHECK(device_constants(n.facts, place.str()).values == c.values);
  c.effects = {{"rows stages: 1", 1.25}};
  REQUIRE(keep_constants(c, n.facts, place.str()).empty());
  CHECK(device_constants(n.facts, place.str()).effects == c.effects);
  REQUIRE(keep_constants(shipped, n.facts, place.str()).empty());
  CHECK(device_constants(n.facts, place.str()).values == shipped.values);
  CHECK(device_constants(n.facts, place.str()).effects == shipped.effects);
}

TEST_CASE("the hidden preference of a device is found though the model does not know it") {
  const ScratchPlace place;
  const Named n("sm_90");
  TuneOptions options;
  options.folder = place.str();
  REQUIRE(keep_constants(shipped_constants(n.facts.target), n.facts, place.str()).empty());  // so that none is measured
  const Run run(n, options);
  REQUIRE(run.report.result);
  CHECK(*value_of(run.report.result->winner, "late_copies") == "true");
  CHECK(run.report.result->default_seconds >= run.report.result->seconds);
  CHECK(run.report.result->next.size() >= 2);
}

TEST_CASE("a result under noise is marked and measured again later, not at once") {
  const ScratchPlace place;
  const Named n("sm_90");
  TuneOptions options;
  options.folder = place.str();
  REQUIRE(keep_constants(shipped_constants(n.facts.target), n.facts, place.str()).empty());  // so that none is measured
  Run(n, options);
  ResultStore store(place.str(), n.facts.machine);
  const Bucket bucket = bucket_of(n.problem.algorithm, n.problem.problem, n.shape, n.facts.machine.units);
  TuneResult r = *store.find(bucket);
  r.noisy = true;
  REQUIRE(store.put(r, store.tried(bucket)).empty());
  CHECK(Run(n, options).report.known);
  r.when -= 3600;
  REQUIRE(store.put(r, store.tried(bucket)).empty());
  const Run again(n, options);
  CHECK(!again.report.known);
  CHECK(again.report.found.timed == 0);
  CHECK(again.device.timed.size() <= 4);
  CHECK(!again.report.result->noisy);
}

TEST_CASE("a head dim that nobody shipped and an unequal pair have a space on every target") {
  for (const std::string& name : target_names())
    for (const auto& [d, dv] : {std::pair{100, 100}, {192, 128}, {64, 512}, {33, 7}}) {
      Named n(name, d, DType::float32);
      n.problem.problem.extents["value_dim"] = dv;
      const Space space = tuning_space(n.problem, n.shape, n.facts, shipped_constants(n.facts.target));
      CAPTURE(name, d, dv);
      CHECK(!space.candidates.empty());
      for (const Candidate& c : space.candidates) {
        CHECK(std::isfinite(c.predicted));
        CHECK(c.predicted > 0);
      }
      for (const Rejection& r : space.rejected) CHECK(!r.reasons.empty());
    }
}

TEST_CASE("less shared memory refuses what does not fit, with the reason, and leaves what does", "[C63]") {
  Named n("sm_90", 256, DType::bfloat16);
  const Space whole = tuning_space(n.problem, n.shape, n.facts, shipped_constants(n.facts.target));
  n.facts.target.shared_bytes = 48 << 10;
  const Space small = tuning_space(n.problem, n.shape, n.facts, shipped_constants(n.facts.target));
  CHECK(!small.candidates.empty());
  CHECK(small.candidates.size() < whole.candidates.size());
  bool said = false;
  for (const RejectionGroup& g : grouped(small.rejected))
    said = said || g.reason.find("KiB of shared memory") != std::string::npos;
  CHECK(said);
}

TEST_CASE("candidates that all fail are an error that lists their needs", "[C63]") {
  const Named n("sm_90");
  ScriptedDevice device;
  device.script = [](const Point& point) {
    return Script{1e-3,
                  *value_of(point, "lanes") == "fragments" ? "spills 400 bytes of registers" : "crashed: signal 11", "",
                  0.01};
  };
  TuneOptions options;
  options.budget = 0;
  try {
    tune(n.problem, n.shape, n.facts, options, &device);
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::unsupported);
    CHECK_THAT(e.what(), ContainsSubstring("no candidate works") && ContainsSubstring("spills 400 bytes") &&
                             ContainsSubstring("crashed: signal 11"));
  }
}

TEST_CASE("who waits for its turn finds the result of who was first", "[C64]") {
  const ScratchPlace place;
  const Named n("sm_90");
  REQUIRE(keep_constants(shipped_constants(n.facts.target), n.facts, place.str()).empty());  // so that none is measured
  TuneOptions options;
  options.folder = place.str();
  SharedValue<std::atomic<int>> timed;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i)
    children.push_back(start_child([&] {
      const Run run(n, options);
      expect(run.report.result.has_value(), "result");
      *timed += run.device.samples > 0;
    }));
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  CHECK(*timed == 1);
  for (const std::string& name : names_in(place.str())) CHECK_THAT(name, !ContainsSubstring(".tmp"));
}

TEST_CASE("a process that is killed in the middle of tuning leaves what it knew, and the next one goes on", "[C64]") {
  const ScratchPlace place;
  const Named n("sm_90");
  REQUIRE(keep_constants(shipped_constants(n.facts.target), n.facts, place.str()).empty());  // so that none is measured
  TuneOptions options;
  options.folder = place.str();
  REQUIRE(killed_while_tuning(n, options) == -SIGKILL);
  const ResultStore store(place.str(), n.facts.machine);
  const Bucket bucket = bucket_of(n.problem.algorithm, n.problem.problem, n.shape, n.facts.machine.units);
  REQUIRE(store.find(bucket));
  CHECK(!store.find(bucket)->complete);
  const TriedList known = store.tried(bucket);
  CHECK(known.outcomes.size() >= 8);
  const Run next(n, options);
  CHECK(!next.report.known);
  std::size_t repeated = 0;
  for (const auto& [name, times] : next.device.timed) repeated += known.outcomes.contains(name);
  CHECK(repeated <= 3);
  CHECK(next.report.result->complete);
}

TEST_CASE("a folder that cannot be written costs the result's keeping only") {
  const Named n("sm_90");
  TuneOptions options;
  options.folder = "/proc/no-such-folder";
  const Constants c = shipped_constants(n.facts.target);
  ScriptedDevice device;
  device.script = [&](const Point& point) { return measured(n, c, point); };
  const Warnings warnings;
  const TuneReport report = tune(n.problem, n.shape, n.facts, options, &device);
  CHECK(report.result);
  CHECK_THAT(report.unkept, ContainsSubstring("cannot be created"));
}

TEST_CASE("who waits for another process ends with a stop or with its patience, and never times beside the other") {
  const ScratchPlace place;
  const Named n("sm_90");
  REQUIRE(keep_constants(shipped_constants(n.facts.target), n.facts, place.str()).empty());  // so that none is measured
  const FileLock other(ResultStore(place.str(), n.facts.machine).timing_lock_path(), std::chrono::milliseconds(0), {});
  REQUIRE(other.held());
  std::atomic<bool> stop = false;
  TuneOptions options;
  options.folder = place.str();
  options.stop = &stop;
  options.note = [&](const std::string&) { stop = true; };
  const Run stopped(n, options);
  CHECK(!stopped.report.result);
  CHECK(stopped.device.samples == 0);
  options.note = {}, options.stop = nullptr;
  options.budget = 0.01, options.patience = 0.05;
  try {
    Run(n, options);
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::resource);
    CHECK_THAT(e.what(), ContainsSubstring("another process tunes on this device"));
  }
}

TEST_CASE("a complete result stays until a better or a complete one is there, killed processes included", "[C64]") {
  const ScratchPlace place;
  const Named n("sm_90");
  REQUIRE(keep_constants(shipped_constants(n.facts.target), n.facts, place.str()).empty());  // so that none is measured
  TuneOptions options;
  options.folder = place.str();
  const TuneResult whole = *Run(n, options).report.result;
  REQUIRE(whole.complete);
  const ResultStore store(place.str(), n.facts.machine);
  options.again = true;
  TuneOptions tiny = options;
  tiny.budget = 1;
  const TuneReport report = Run(n, tiny).report;
  CHECK(!report.result->complete);
  CHECK_THAT(report.unkept, ContainsSubstring("not complete"));
  CHECK(result_line(*store.find(whole.bucket)) == result_line(whole));
  REQUIRE(killed_while_tuning(n, options) == -SIGKILL);
  CHECK(result_line(*store.find(whole.bucket)) == result_line(whole));
  options.again = false;
  CHECK(Run(n, options).report.known);
  options.again = true;
  CHECK(Run(n, options).report.unkept.empty());
}

TEST_CASE("a budget that is over before anything was timed is said so") {
  const Named n("sm_90");
  ScriptedDevice device;
  device.script = [](const Point&) { return Script{}; };
  TuneOptions options;
  options.budget = 1;
  options.progress = [&](const SearchProgress&) { device.clock += 2; };
  try {
    tune(n.problem, n.shape, n.facts, options, &device);
    FAIL("no error");
  } catch (const Error& e) {
    CHECK_THAT(e.what(), ContainsSubstring("ended before a candidate was timed") && !ContainsSubstring("such as {}"));
  }
}

TEST_CASE("a stored winner that this version has no words for is passed over with one line that names the file") {
  const ScratchPlace place;
  const Named n("sm_90");
  REQUIRE(keep_constants(shipped_constants(n.facts.target), n.facts, place.str()).empty());  // so that none is measured
  TuneOptions options;
  options.folder = place.str();
  TuneResult r = *Run(n, options).report.result;
  ResultStore store(place.str(), n.facts.machine);
  r.winner = {{"roles", "two"}};
  REQUIRE(store.put(r, {}).empty());
  Warnings warnings;
  CHECK_NOTHROW(exported(store.all(), store, schedule_file(n.facts.target)));
  CHECK(!Run(n, options).report.known);
  REQUIRE(warnings.count() == 1);
  CHECK_THAT(warnings.texts()[0], ContainsSubstring(store.path()) && ContainsSubstring("roles"));
  CHECK(Run(n, options).report.known);
}

TEST_CASE("constants that no machine has are refused") {
  for (const char* value : {"0", "-1", "1e-320", "1e308", ".inf", ".nan"})
    CHECK_THROWS_AS(parse_constants(std::string("values:\n  read_gbs: ") + value + "\n", "x"), Error);
  CHECK(parse_constants("values:\n  read_gbs: 4800\n", "x").at("read_gbs") == 4800);
}
