// Which schedule a call gets, and what it may wait for: choosers, building never and in the background, schedules that
// give way.
#include "runtime/chooser.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "dsl/error.h"
#include "runtime/attention.h"
#include "runtime/attention_kernels.h"
#include "runtime/cache.h"
#include "tests/runtime/scratch_place.h"
#include "tests/runtime/small_call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

class Fixed : public Chooser {
 public:
  std::vector<Schedule> answer;
  std::vector<Schedule> tuned;  // once it was asked to tune
  std::atomic<int> asked = 0;
  std::atomic<Tuning> last = Tuning::never;
  std::atomic<bool> had_tensors = false;
  std::vector<Schedule> choices(const Algorithm&, const Problem&, const Target&, const AttentionCall& call,
                                Tuning tuning) override {
    ++asked, last = tuning, had_tensors = call.q.data != nullptr;
    return tuning == Tuning::now && !tuned.empty() ? tuned : answer;
  }
};

// A cache folder and a chooser of the test's own; the process's are back afterwards.
class Fresh {
 public:
  Fresh() : chooser(std::make_shared<Fixed>()) {
    CacheOptions options;
    options.folder = place.str();
    set_kernel_cache(options);
    set_chooser(chooser);
    forget_chosen_kernels();
  }
  ~Fresh() {
    set_chooser(nullptr);
    set_tuning(Tuning::cached), set_building(Building::on_demand);
    set_kernel_cache(CacheOptions::from_environment());
    forget_chosen_kernels();
  }
  ScratchPlace place;
  std::shared_ptr<Fixed> chooser;
};

Schedule tiles(int rows, int keys) {
  Schedule s;
  s.tile_rows = rows, s.tile_keys = keys, s.panel_vectors = 1, s.block = 4;
  return s;
}

}  // namespace

TEST_CASE("the chooser's first legal schedule is taken, and what is not legal is passed over") {
  Fresh fresh;
  SmallCall small;
  fresh.chooser->answer = {tiles(7, 5), tiles(32, 48), tiles(64, 64)};
  CHECK(attention_kernel(small.call).program().schedule == tiles(32, 48));
  CHECK(fresh.chooser->last == Tuning::cached);
  fresh.chooser->answer = {tiles(7, 5)};
  forget_chosen_kernels();
  const Schedule shipped = default_schedule(attention_kernel(small.call).program().algorithm,
                                            attention_kernel(small.call).program().problem, host_target());
  CHECK(attention_kernel(small.call).program().schedule == shipped);
}

TEST_CASE("tuning is a matter of the call, then of the process") {
  Fresh fresh;
  SmallCall small;
  fresh.chooser->answer = {tiles(32, 56)};
  small.call.tuning = Tuning::never;
  CHECK(attention_kernel(small.call).program().schedule != tiles(32, 56));
  CHECK(fresh.chooser->asked == 0);
  set_tuning(Tuning::never);
  small.call.tuning.reset();
  CHECK(attention_kernel(small.call).program().schedule != tiles(32, 56));
  small.call.tuning = Tuning::now;
  CHECK(attention_kernel(small.call).program().schedule == tiles(32, 56));
  CHECK(fresh.chooser->last == Tuning::now);
  small.call.schedule = tiles(64, 32);
  CHECK(attention_kernel(small.call).program().schedule == tiles(64, 32));
  CHECK(fresh.chooser->asked == 1);
}

TEST_CASE("the chooser is asked once for lengths within a power of two, and a warm call does not ask") {
  Fresh fresh;
  SmallCall small;
  for (int i = 0; i < 100; ++i) run_attention(small.call);
  CHECK(fresh.chooser->asked == 1);
  small.call.k.shape[2] = small.call.v.shape[2] = 4;
  run_attention(small.call);
  CHECK(fresh.chooser->asked == 2);
}

TEST_CASE("where nothing may be built a kernel that is not there is an error at once, and one on disk serves",
          "[C69]") {
  Fresh fresh;
  SmallCall small;
  small.with_sink();
  small.call.softcap = 11;  // no other test has built that
  fresh.chooser->answer = {tiles(48, 72)};
  small.call.building = Building::never;
  small.fill_outputs();
  try {
    run_attention(small.call);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::environment);
    CHECK_THAT(error.what(), ContainsSubstring("not built yet") && ContainsSubstring("warm_up"));
  }
  CHECK(small.outputs_untouched());
  CHECK(kernel_cache()->stats().builds == 0);
  warm_up(std::span(&small.call, 1));
  const std::uint64_t built = kernel_cache()->stats().builds;
  CHECK(built > 0);
  run_attention(small.call);
  CHECK(!small.outputs_untouched());
  CHECK(kernel_cache()->stats().builds == built);
  // Of the chosen one and the shipped one only the latter is there: it serves until someone may build.
  fresh.chooser->answer = {};
  SmallCall other;
  forget_chosen_kernels();
  other.with_sink();
  other.call.causal = true, other.call.softcap = 11;
  warm_up(std::span(&other.call, 1));
  fresh.chooser->answer = {tiles(48, 24)};
  forget_chosen_kernels();
  other.call.building = Building::never;
  CHECK(attention_kernel(other.call).program().schedule != tiles(48, 24));
  other.call.building = Building::on_demand;
  CHECK(attention_kernel(other.call).program().schedule == tiles(48, 24));
}

TEST_CASE("building in the background answers with what is there and then with the chosen kernel", "[C69]") {
  Fresh fresh;
  SmallCall small;
  small.call.softcap = 3;
  small.call.building = Building::background;
  fresh.chooser->answer = {tiles(16, 88)};
  CHECK_THROWS_AS(run_attention(small.call), Error);  // nothing is there: at once, and the build goes on behind
  const auto wait_for_schedule = [&](const Schedule& s) {
    for (int i = 0; i < 600; ++i) {
      try {
        if (attention_kernel(small.call).program().schedule == s) return true;
      } catch (const Error&) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  };
  CHECK(wait_for_schedule(tiles(16, 88)));
  // With the shipped kernel there, the call never fails.
  fresh.chooser->answer = {};
  forget_chosen_kernels();
  small.call.building = Building::on_demand;
  const Schedule shipped = attention_kernel(small.call).program().schedule;
  fresh.chooser->answer = {tiles(16, 104)};
  forget_chosen_kernels();
  small.call.building = Building::background;
  const Schedule at_once = attention_kernel(small.call).program().schedule;
  CHECK((at_once == shipped || at_once == tiles(16, 104)));   // the build behind may have ended already
  run_attention(small.call);
  CHECK(wait_for_schedule(tiles(16, 104)));
}

TEST_CASE("where nothing may be built or all is built behind no call waits for tuning", "[C69]") {
  Fresh fresh;
  SmallCall small;
  small.call.softcap = 7;
  fresh.chooser->answer = {tiles(32, 88)}, fresh.chooser->tuned = {tiles(32, 104)};
  warm_up(std::span(&small.call, 1));
  small.call.tuning = Tuning::now;
  small.call.building = Building::never;
  CHECK(attention_kernel(small.call).program().schedule == tiles(32, 88));
  CHECK(fresh.chooser->last == Tuning::cached);
  small.call.building = Building::background;
  CHECK_NOTHROW(attention_kernel(small.call));
  for (int i = 0; i < 600 && attention_kernel(small.call).program().schedule != tiles(32, 104); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(attention_kernel(small.call).program().schedule == tiles(32, 104));
  CHECK(fresh.chooser->last == Tuning::now);
  CHECK(!fresh.chooser->had_tensors);  // the caller's may be gone by then
  small.call.building = Building::on_demand;
  CHECK(attention_kernel(small.call).program().schedule == tiles(32, 104));
}

TEST_CASE("a build in the background that ends after its choice was forgotten changes nothing", "[C69]") {
  Fresh fresh;
  SmallCall small;
  small.with_slopes(), small.call.softcap = 5;  // no other test has built that
  small.call.building = Building::background;
  fresh.chooser->answer = {tiles(16, 96)};
  const std::uint64_t built = kernel_cache()->stats().builds;
  for (int i = 0; i < 3; ++i) CHECK_THROWS_AS(run_attention(small.call), Error);
  fresh.chooser->answer = {};
  forget_chosen_kernels();
  small.call.building = Building::on_demand;
  const Schedule shipped = attention_kernel(small.call).program().schedule;
  CHECK(shipped != tiles(16, 96));
  for (int i = 0; i < 600 && kernel_cache()->stats().builds < built + 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(kernel_cache()->stats().builds == built + 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // from a built kernel to a choice
  CHECK(attention_kernel(small.call).program().schedule == shipped);
}

TEST_CASE("a child forked during a build in the background builds for itself", "[C69]") {
  Fresh fresh;
  SmallCall small;
  small.with_slopes(), small.with_sink(), small.call.softcap = 6;  // no other test has built that
  small.call.building = Building::background;
  fresh.chooser->answer = {tiles(16, 80)};
  CHECK_THROWS_AS(run_attention(small.call), Error);
  const ScratchPlace of_the_child;
  CHECK(run_in_child([&] {
          CacheOptions options;
          options.folder = of_the_child.str();
          set_kernel_cache(options);
          for (int i = 0; i < 600; ++i) {
            try {
              return run_attention(small.call);
            } catch (const Error&) {
              std::this_thread::sleep_for(std::chrono::milliseconds(50));
            }
          }
          expect(false, "no kernel after 30 s");
        }) == 0);
}

TEST_CASE("a thousand calls after a warm-up build nothing and never wait, whatever their lengths", "[C69]") {
  Fresh fresh;
  constexpr std::int64_t most = 256, width = 16;
  std::vector<float> q(4 * most * width), k = q, v = q, o = q;
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = k[i] = v[i] = std::sin(static_cast<float>(i));
  const auto call_of = [&](std::int64_t batch, std::int64_t length) {
    AttentionCall call;
    call.q = contiguous(q.data(), DType::float32, {batch, 1, length, width});
    call.k = contiguous(k.data(), DType::float32, {batch, 1, length, width});
    call.v = contiguous(v.data(), DType::float32, {batch, 1, length, width});
    call.o = contiguous(o.data(), DType::float32, {batch, 1, length, width});
    return call;
  };
  std::vector<AttentionCall> list;
  for (const std::int64_t length : {std::int64_t{1}, most}) list.push_back(call_of(1, length));
  warm_up(list);
  const std::uint64_t built = kernel_cache()->stats().builds;
  double longest = 0;
  for (int i = 0; i < 1000; ++i) {
    AttentionCall call = call_of(1 + i % 4, 1 + (i * 37) % most);
    call.building = Building::never;
    const auto start = std::chrono::steady_clock::now();
    CHECK_NOTHROW(attention_kernel(call));
    longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  CHECK(kernel_cache()->stats().builds == built);
  CHECK(longest < 0.1);  // on a machine with other work; most take microseconds
}

TEST_CASE("a schedule that fails to launch gives way to the next, and other errors do not") {
  Fresh fresh;
  SmallCall small;
  fresh.chooser->answer = {tiles(32, 40), tiles(64, 40)};
  CallKey key{};
  key.head_dim = 16, key.value_dim = 8, key.group = 2, key.tuning = Tuning::cached;
  const auto describe = [&] {
    CallAlgorithm a{attention(attention_options(small.call)), {}};
    a.problem = problem_of(a.algorithm, attention_arguments(small.call));
    return a;
  };
  const auto chosen = [&] { return kernel_choice(key, Building::on_demand, describe, small.call); };
  CHECK(chosen().kernel.program().schedule == tiles(32, 40));
  CHECK(!give_way(key, chosen(), Error(ErrorKind::argument, "q", "is wrong")));
  Warnings warnings;
  CHECK(give_way(key, chosen(), Error(ErrorKind::resource, "launch", "too many resources")));
  CHECK(warnings.count() == 1);
  CHECK(chosen().kernel.program().schedule == tiles(64, 40));
  CHECK(give_way(key, chosen(), Error(ErrorKind::resource, "launch", "too many resources again")));
  CHECK(chosen().last);
  CHECK(!give_way(key, chosen(), Error(ErrorKind::resource, "launch", "and again")));
}
