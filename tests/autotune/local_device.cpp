// Candidates in processes of their own: crashes, hangs, wrong numbers and unwritten outputs stay there; the same with
// real kernels on the CPU.
#include "autotune/local_device.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "autotune/serve.h"
#include "autotune/tuner.h"
#include "dsl/error.h"
#include "dsl/library.h"
#include "runtime/attention.h"
#include "tests/runtime/scratch_place.h"
#include "tests/runtime/small_call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Point kind(const char* what) { return {{"kind", what}}; }

void behave(WorkerLine& line, const Point& point) {
  const std::string what = point.front().second;
  if (what == "crash") raise(SIGSEGV);
  if (what == "abort") std::abort();
  if (what == "throw") throw std::runtime_error("x");
  if (what == "exit") _exit(3);
  if (what == "hang") std::this_thread::sleep_for(std::chrono::seconds(60));
  if (what == "refuse") return line.write("fault needs 300 KiB");
  if (what == "babble") return line.write("hello");
  line.write("built");
  if (line.read() != "check") return;
  if (what == "hang-later") std::this_thread::sleep_for(std::chrono::seconds(60));
  const auto is_slow = what.starts_with("slow");
  if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(700));
  line.write("good");
  while (const auto word = line.read()) {
    if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    if (what == "crash-timing") raise(SIGBUS);
    if (what == "hang-timing") std::this_thread::sleep_for(std::chrono::seconds(60));
    line.write(*word == "cold" ? "0.5" : "0.25");
  }
}

LocalDevice scripted() { return LocalDevice(3, {0.5, 0.5}, behave); }

// A problem whose tensors live as long as it does.
struct Problem10 {
  SmallCall small;
  TuneProblem problem;
  CallShape shape;
  Problem10() {
    small.with_lse();
    problem.algorithm = attention(attention_options(small.call));
    problem.arguments = attention_arguments(small.call);
    problem.problem = problem_of(problem.algorithm, problem.arguments);
    shape = {SmallCall::B, SmallCall::H, SmallCall::Hk, SmallCall::N, SmallCall::M, 1};
  }
};

}  // namespace

TEST_CASE("crashes, hangs, errors and nonsense of a candidate are its fault in words and reach nobody else", "[C63]") {
  LocalDevice device = scripted();
  const std::vector<Point> points{kind("good"), kind("crash"),      kind("abort"),  kind("throw"),  kind("exit"),
                                  kind("hang"), kind("hang-later"), kind("refuse"), kind("babble"), kind("good-too")};
  const std::vector<Proof> proofs = device.prove(points, seconds_now() + 60);
  const std::vector<std::string> faults{"",
                                        "crashed: signal 11",
                                        "crashed: signal 6",
                                        "ended: code 70",
                                        "ended: code 3",
                                        "hung: no answer within 0.5 s",
                                        "hung: no answer within 0.5 s",
                                        "needs 300 KiB",
                                        "answered 'hello'",
                                        ""};
  for (std::size_t i = 0; i < points.size(); ++i) {
    CAPTURE(to_string(points[i]));
    CHECK(proofs[i].begun);
    if (faults[i].empty())
      CHECK(proofs[i].fault.empty());
    else
      CHECK_THAT(proofs[i].fault, ContainsSubstring(faults[i]));
  }
  CHECK(device.time(kind("good"), CacheState::warm).seconds == 0.25);
  CHECK(device.time(kind("good-too"), CacheState::cold).seconds == 0.5);
}

TEST_CASE("a candidate that crashes or hangs while it is timed fails in time, and the others go on", "[C63]") {
  LocalDevice device = scripted();
  const std::vector<Point> points{kind("good"), kind("crash-timing"), kind("hang-timing")};
  for (const Proof& proof : device.prove(points, seconds_now() + 60)) CHECK(proof.fault.empty());
  CHECK_THAT(device.time(kind("crash-timing"), CacheState::warm).fault, ContainsSubstring("crashed: signal 7"));
  const double start = seconds_now();
  CHECK_THAT(device.time(kind("hang-timing"), CacheState::warm).fault, ContainsSubstring("hung"));
  CHECK(seconds_now() - start < 5);
  CHECK(device.time(kind("good"), CacheState::warm).fault.empty());
}

TEST_CASE("where the first call takes long, the others may too") {
  LocalDevice device(3, {0.5, 0.3, 5}, behave);
  const std::vector<Point> points{kind("slow"), kind("slow-too"), kind("hang-later")};
  const std::vector<Proof> proofs = device.prove(points, seconds_now() + 60);
  CHECK(proofs[0].fault.empty());
  CHECK(proofs[1].fault.empty());
  CHECK_THAT(proofs[2].fault, ContainsSubstring("hung"));
  for (const CacheState cache : {CacheState::warm, CacheState::cold})
    CHECK(device.time(points[1], cache).fault.empty());
}

TEST_CASE("a first candidate that hangs has the long patience once") {
  LocalDevice device(3, {0.5, 0.2, 1}, behave);
  const double start = seconds_now();
  const std::vector<Point> points{kind("hang-later"), kind("hang-later"), kind("hang-later"), kind("good")};
  const std::vector<Proof> proofs = device.prove(points, seconds_now() + 60);
  CHECK_THAT(proofs[0].fault, ContainsSubstring("no answer within 1 s"));
  CHECK_THAT(proofs[2].fault, ContainsSubstring("no answer within 0.2 s"));
  CHECK(proofs[3].fault.empty());
  CHECK(seconds_now() - start < 4);
}

TEST_CASE("a stop ends what is under way: candidates being built, checked and timed") {
  std::atomic<bool> stop = false;
  LocalDevice device(3, {60, 60, 60}, behave);
  device.stop = &stop;
  const auto stopped_soon = [&](const auto& work) {
    stop = false;
    std::thread later([&] { std::this_thread::sleep_for(std::chrono::milliseconds(200)), stop = true; });
    const double start = seconds_now();
    work();
    later.join();
    CHECK(seconds_now() - start < 2);
  };
  REQUIRE(device.prove(std::vector{kind("good"), kind("hang-timing")}, seconds_now() + 60)[1].fault.empty());
  stopped_soon([&] {
    for (const Proof& proof :
         device.prove(std::vector{kind("hang"), kind("hang-later"), kind("good-too")}, seconds_now() + 60)) {
      CHECK(proof.fault.empty());
      CHECK((!proof.begun || proof.fault.empty()));
    }
  });
  stopped_soon([&] {
    const Timing timing = device.time(kind("hang-timing"), CacheState::warm);
    CHECK(timing.seconds == 0);
    CHECK(timing.fault.empty());
  });
}

TEST_CASE("nothing is begun after the time is over, and no child is left behind") {
  {
    LocalDevice device = scripted();
    const std::vector<Point> points{kind("good"), kind("hang")};
    for (const Proof& proof : device.prove(points, seconds_now() - 1)) CHECK(!proof.begun);
    device.prove(points, seconds_now() + 60);
  }
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("outputs that are wrong, unwritten or unlike those proven before are refused", "[C67]") {
  const Problem10 p;
  const Reference reference(p.problem.algorithm, p.problem.problem, p.problem.arguments);
  CHECK(reference.rows() == SmallCall::B * SmallCall::H * SmallCall::N);
  const auto outputs = [&](std::vector<std::unique_ptr<std::byte[]>>& memory) {
    return reference.fresh_outputs(memory);
  };
  const auto tensor = [](Arguments& a, const char* name) -> TensorRef& {
    for (auto& t : a.tensors)
      if (t.name == name) return t.tensor;
    throw std::logic_error(name);
  };
  std::vector<std::unique_ptr<std::byte[]>> memory;
  Arguments nothing = outputs(memory);
  CHECK(std::isnan(static_cast<float*>(tensor(nothing, "o").data)[5]));
  CHECK_THAT(reference.check(nothing),
             ContainsSubstring("o at [0][0][0][0] is ") && ContainsSubstring("nan, the reference"));
  const Kernel kernel = Kernel::get(p.problem.algorithm, p.problem.problem);
  Arguments right = outputs(memory), off = outputs(memory), hole = outputs(memory);
  for (const Arguments* a : {&right, &off, &hole}) kernel.run(*a);
  static_cast<float*>(tensor(off, "lse").data)[7] += 0.01f;
  CHECK_THAT(reference.check(off), ContainsSubstring("lse at "));
  static_cast<float*>(tensor(hole, "o").data)[100] = std::nanf("");
  CHECK(!reference.check(hole).empty());
  CHECK(reference.check(right).empty());
  CHECK(p.small.outputs_untouched());
}

TEST_CASE(
    "a whole problem is tuned on the CPU, inputs and outputs of the caller untouched, and the second time looked up",
    "[C64][C67]") {
  const ScratchPlace place;
  const Problem10 p;
  const std::vector<float> q = p.small.q, k = p.small.k, v = p.small.v;
  const DeviceFacts facts = facts_of(Device{});
  TuneOptions options;
  options.budget = 6;
  options.folder = place.str();
  const TuneReport first = tune(p.problem, p.shape, facts, options);
  REQUIRE(first.result);
  CHECK(!first.known);
  CHECK(first.found.timed >= 2);
  CHECK(first.unkept.empty());
  CHECK(legality(p.problem.algorithm, p.problem.problem, schedule_of(first.result->winner), facts.target).empty());
  const TuneReport second = tune(p.problem, p.shape, facts, options);
  CHECK(second.known);
  CHECK(second.found.timed == 0);
  CHECK(second.result->winner == first.result->winner);
  options.again = true;
  options.budget = 2;
  CHECK(tune(p.problem, p.shape, facts, options).found.timed >= 1);
  CHECK(p.small.q == q);
  CHECK(p.small.k == k);
  CHECK(p.small.v == v);
  CHECK(p.small.outputs_untouched());
}

TEST_CASE("a candidate that is no legal schedule fails in its own process with the reasons") {
  const Problem10 p;
  const DeviceFacts facts = facts_of(Device{});
  const Reference reference(p.problem.algorithm, p.problem.problem, p.problem.arguments);
  LocalDevice device(p.problem, reference, facts);
  const std::vector<Point> points{point_of(default_schedule(p.problem.algorithm, p.problem.problem, facts.target)),
                                  {{"tile_rows", "3"}, {"tile_keys", "7"}},
                                  {{"roles", "2"}}};
  const std::vector<Proof> proofs = device.prove(points, seconds_now() + 60);
  CHECK(proofs[0].fault.empty());
  CHECK_THAT(proofs[1].fault, ContainsSubstring("tile_rows 3 is no multiple"));
  CHECK_THAT(proofs[2].fault, ContainsSubstring("a schedule has no 'roles'"));
  for (const CacheState cache : {CacheState::warm, CacheState::cold}) {
    const Timing timing = device.time(points[0], cache);
    CHECK(timing.fault.empty());
    CHECK(timing.seconds > 0);
  }
}
