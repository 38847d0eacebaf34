// Reported faults of hangs, races and repeatability: ragged batches under a time limit, equal bits on every run and number
// of threads, many threads that make the first call together.
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <thread>

#include "runtime/cache.h"
#include "runtime/parallel_for.h"
#include "tests/numeric/test_device.h"
#include "tests/numeric/call.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

class Workers {
 public:
  explicit Workers(int count) { set_worker_count(count); }
  ~Workers() { set_worker_count(0); }
};

// A batch of sequences with lengths drawn from `seed`, half of them causal with equal lengths.
Call ragged_batch(std::uint64_t seed) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  const auto draw = [&](std::int64_t most) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(most + 1));
  };
  Values q{0}, k{0};
  for (std::int64_t n = 1 + draw(5); n > 0; --n) {
    const std::int64_t rows = draw(3) ? draw(90) : draw(1);
    q.push_back(q.back() + static_cast<double>(rows));
    k.push_back(k.back() + static_cast<double>(draw(1) ? rows : draw(120)));
  }
  const auto sequences = static_cast<std::int64_t>(q.size());
  Call call(with([](AttentionOptions& o) { o.lengths = Lengths::packed, o.causal = o.lse = true; }),
            {.heads = 2, .rows = static_cast<std::int64_t>(q.back()), .keys = static_cast<std::int64_t>(k.back()), .head_dim = 16});
  call.put("cu_seqlens_q", DType::int32, {sequences}, q).put("cu_seqlens_k", DType::int32, {sequences}, k);
  return call;
}

// An algorithm that no other test has, so that its kernel is in no memory.
Algorithm unheard_of(double number) {
  return attention(with([&](AttentionOptions& o) { o.score_mod = [number](const Expr& s) { return s + number; }; }));
}

// The functions that a call's kernel consists of, each compiled for itself.
std::size_t parts_of(const Call& call) { return Kernel::get(call.algorithm(), call.problem()).program().kernels.size(); }

}  // namespace

TEST_CASE("1473 ragged causal batches each return in time and agree with the reference", "[C37]") {
  CHECK(run_in_child([] {
          for (std::uint64_t seed = 0; seed < 1473; ++seed) {
            alarm(30);   // ends the child at a batch that never returns
            Call call = ragged_batch(seed);
            call.run();
            const std::string found = call.mismatch();
            expect(found.empty(), "batch " + std::to_string(seed) + ": " + found);
          }
        }) == 0);
}

TEST_CASE("the ragged batches agree with the reference under every tiling", "[C37]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    INFO(seed);
    Call call = ragged_batch(seed);
    CHECK(run_all(call) == "");
  }
}

TEST_CASE("thirty runs over 1, 2, 3 and 8 threads give the same bits", "[C39]") {
  Call call(with([](AttentionOptions& o) { o.causal = o.lse = true; }), {.batches = 2, .heads = 8, .rows = 1024, .keys = 1024, .head_dim = 128}, DType::bfloat16);
  const Values first = call.output("o"), lse = call.values("lse");
  int run = 0;
  for (const int workers : {1, 2, 3, 8}) {
    const Workers use(workers);
    for (int round = 0; round < (workers == 1 ? 6 : 8); ++round, ++run) {
      CHECK(same_bits(call.output("o"), first));
      CHECK(same_bits(call.values("lse"), lse));
    }
  }
  CHECK(run == 30);
  EvaluateInputs in = call.evaluate_inputs();
  in.rows = {{0, 0, 0}, {1, 7, 1023}, {1, 3, 500}};
  const auto expected = evaluate(call.algorithm(), in).at("o");
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t e = 0; e < 128; ++e) {
      const std::size_t row = static_cast<std::size_t>((in.rows[r].sequence * 8 + in.rows[r].head) * 1024 + in.rows[r].row);
      CHECK(std::fabs(first[row * 128 + e] - expected.values[r * 128 + e]) < 2e-2);
    }
}

TEST_CASE("thirty decode steps in parts give the same bits on 1, 2, 3 and 8 threads", "[C39]") {
  for (const DType type : {DType::float32, DType::bfloat16}) {
    Call call(with([](AttentionOptions& o) { o.lse = true; }), {.batches = 2, .heads = 8, .kv_heads = 2, .rows = 1, .keys = 4000, .head_dim = 128}, type);
    for (const int splits : {2, 7, 32}) {
      Schedule s = default_schedule(call.algorithm(), call.problem(), test_target());
      s.splits = splits;
      const Values first = call.output("o", s), lse = call.values("lse");
      CHECK(call.mismatch() == "");
      for (const int workers : {1, 2, 3, 8}) {
        const Workers use(workers);
        for (int round = 0; round < 8; ++round) {
          CHECK(same_bits(call.output("o", s), first));
          CHECK(same_bits(call.values("lse"), lse));
        }
      }
    }
  }
}

TEST_CASE("every tiling gives the same bits with any number of threads", "[C39]") {
  Call call(with([](AttentionOptions& o) { o.causal = o.lse = true; }), {.heads = 6, .kv_heads = 2, .rows = 150, .keys = 170, .head_dim = 40});
  for (const Schedule& s : call.tilings()) {
    const Values first = call.output("o", s);
    for (const int workers : {1, 2, 3, 8}) {
      const Workers use(workers);
      CHECK(same_bits(call.output("o", s), first));
    }
  }
}

TEST_CASE("32 threads that make the first call together build one kernel and are all right", "[C60]") {
  const ScratchPlace place;
  for (int round = 0; round < 10; ++round) {
    const std::string folder = (place / std::to_string(round)).string();
    const auto body = [&] {
      alarm(60);
      set_kernel_cache({.folder = folder});
      const Call model(unheard_of(round + 0.5), {.heads = 2, .rows = 20, .keys = 30, .head_dim = 16});
      const auto expected = evaluate(model.algorithm(), model.evaluate_inputs());
      std::atomic<int> waiting{32}, wrong{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < 32; ++i)
        threads.emplace_back([&] {
          Call call(unheard_of(round + 0.5), {.heads = 2, .rows = 20, .keys = 30, .head_dim = 16});
          for (--waiting; waiting > 0;) std::this_thread::yield();
          call.run();
          wrong += !call.mismatch(expected).empty();
        });
      for (std::thread& t : threads) t.join();
      expect(wrong == 0, std::to_string(int{wrong}) + " of 32 threads had wrong results");
      const auto builds = kernel_cache()->stats().builds;
      expect(builds == parts_of(model), std::to_string(builds) + " kernels were built instead of " + std::to_string(parts_of(model)));
    };
    CHECK(run_in_child(body) == 0);
  }
}

TEST_CASE("32 threads with a kernel each are all right, and each is built once", "[C60]") {
  const ScratchPlace place;
  CHECK(run_in_child([&] {
          alarm(120);
          set_kernel_cache({.folder = place.str()});
          std::atomic<int> waiting{32}, wrong{0};
          std::vector<std::thread> threads;
          for (int i = 0; i < 32; ++i)
            threads.emplace_back([&, i] {
              Call call(unheard_of(100 + i), {.heads = 2, .rows = 9, .keys = 30, .head_dim = 8});
              for (--waiting; waiting > 0;) std::this_thread::yield();
              call.run();
              wrong += !call.mismatch().empty();
            });
          for (std::thread& t : threads) t.join();
          expect(wrong == 0, "wrong results");
          const Call model(unheard_of(100), {.heads = 2, .rows = 9, .keys = 30, .head_dim = 8});
          // The kernels differ, what packs K and V for them does not.
          expect(kernel_cache()->stats().builds == 32 + parts_of(model) - 1, "not one build a kernel");
        }) == 0);
}

TEST_CASE("a process may exit while one of its threads compiles", "[C60]") {
  for (int round = 0; round < 5; ++round)
    CHECK(run_in_child([&] {
            alarm(60);
            set_kernel_cache({.mode = CacheMode::off});
            std::atomic<bool> begun{false};
            std::thread([&] {
              begun = true;
              Call call(unheard_of(1000 + round), {.rows = 20, .keys = 30, .head_dim = 128});
              call.run();
            }).detach();
            while (!begun) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(7 * round));
            std::quick_exit(0);
          }) == 0);
}
