// What is in the IR for GPUs only: copies ahead, a lagging reference, warps that share positions, the folded scale.
#include "tests/codegen/faults.h"

namespace attile::test {
namespace {

constexpr std::string_view stages[] = {"tile_loops", "join_warps", "fold_scale", "split_ranges", "place", "select", "pipeline", "fuse"};

Schedule fragments() {
  Schedule s;
  s.lanes = Lanes::fragments, s.tile_rows = 64, s.tile_keys = 64, s.stages = 3;
  return s;
}
Schedule lagging() {
  Schedule s = fragments();
  s.lazy_rescale = true;
  return s;
}
Schedule shared_positions() {
  Schedule s = fragments();
  s.partition = Partition::positions, s.tile_rows = 16;
  return s;
}

template <typename Set>
Lowered on_gpu(const Set& set, const Schedule& schedule, DType type = DType::bfloat16) {
  return lowered(set, schedule, type, "sm_90");
}
const auto plain = [](AttentionOptions&) {};
const auto causal_with_lse = [](AttentionOptions& o) { o.causal = o.lse = true; };

// A softmax whose weights are read together with the score itself.
Algorithm entropy() {
  const Tensor q = input("q", {batch, head, query, head_dim}), k = input("k", {batch, kv_head, key, head_dim}), v = input("v", {batch, kv_head, key, value_dim});
  return for_tiles("entropy", query).stream(key, [&](Stream& t) {
    const Expr s = dot(q, k) * scalar("scale");
    const State m = t.running_max("m", s);
    const Expr p = exp(s - m);
    const State l = t.sum("l", p), e = t.sum("e", p * s), o = t.sum("o", dot(p, v));
    t.rescale({l, e, o}, [](const Expr& from, const Expr& to) { return exp(from - to); });
    t.finish([&](Finish& f) { f.output("o", normalise(o, l)), f.output("mean_score", normalise(e, l)); });
  });
}

std::string text_after(const Lowered& l, const char* pass) { return print(l.after.at(pass)); }

// Loops over the stream, of which there is one.
Loop& stream(Kernel& k) { return op<Loop>(k.body); }
Advance& advance(Kernel& k) { return op<Advance>(k.body); }

}  // namespace

TEST_CASE("kernels for a GPU have no violation after any pass") {
  for (Schedule s : {fragments(), lagging(), shared_positions()})
    for (const int n : {1, 2, 4})
      for (const DType type : {DType::bfloat16, DType::float32}) {
        s.stages = n;
        for (const Lowered& l : {on_gpu(plain, s, type), on_gpu(causal_with_lse, s, type), on_gpu([](auto& o) { o.rule = Rule::linear; }, s, type)})
          for (const std::string_view stage : stages) {
            CAPTURE(stage, to_string(s), to_string(l.algorithm));
            CHECK(verify(l.after.at(std::string(stage)), stage) == std::vector<std::string>{});
          }
      }
}

TEST_CASE("a GPU's copies run ahead in a ring of as many tiles as the schedule says") {
  const Lowered three = on_gpu(plain, fragments());
  const std::string text = text_after(three, "pipeline");
  CHECK_THAT(text, ContainsSubstring("prefetch k, k, 0\n  prefetch v, v, 0\n  prefetch k, k, 1\n  prefetch v, v, 1\n  loop key_tiles"));
  CHECK_THAT(text, ContainsSubstring("    await (k, v), 1\n    prefetch k, k, 2\n    prefetch v, v, 2\n"));
  CHECK(three.after.at("pipeline").values[static_cast<std::size_t>(three.after.at("pipeline").find("k").id)].stages == 3);
  Schedule one = fragments();
  one.stages = 1;
  CHECK_THAT(text_after(on_gpu(plain, one), "pipeline"), ContainsSubstring("    release (k, v)\n    prefetch k, k, 0\n    prefetch v, v, 0\n    await (k, v), 0\n"));
}

TEST_CASE("faults with copies ahead are found") {
  const Lowered good = on_gpu(causal_with_lse, fragments());
  Schedule schedule = fragments();
  schedule.stages = 1;
  const Lowered one_stage = on_gpu(causal_with_lse, schedule);
  const Fault list[] = {
      {"nothing is awaited", "pipeline", [](Kernel& k) { remove<Await>(k.body); }, "'k' is read before it is awaited", "score_mma"},
      {"v is not awaited", "fuse", [](Kernel& k) { op<Await>(k.body).values.pop_back(); }, "'v' is read before it is awaited", "sum_mma"},
      {"one copy too many may be on its way", "pipeline", [](Kernel& k) { op<Await>(k.body).pending = 2; }, "'k' may be on its way still", "await"},
      {"a tile is copied in front of the wait", "pipeline",
       [](Kernel& k) {
         Block& body = stream(k).body;
         std::swap(body[0], body[1]);
       },
       "'k' may be read there still", "prefetch k"},
      {"a tile is copied beyond the ring", "pipeline", [](Kernel& k) { op<Prefetch>(stream(k).body).ahead = 3; }, "'k' has room for 3 tiles", "prefetch k"},
      {"the stream begins without a tile of k", "pipeline", [](Kernel& k) { remove<Prefetch>(k.body, 2), remove<Prefetch>(k.body, 0); },
       "'k' is carried but not defined", "loop key_tiles"},
  };
  for (const Fault& fault : list) check_found(good, fault);
  check_found(one_stage, {"the one tile is overwritten", "pipeline", [](Kernel& k) { remove<Release>(k.body); }, "'k' may be read there still", "prefetch k"});
  check_found(one_stage, {"the one tile is awaited before its copy", "pipeline",
                          [](Kernel& k) {
                            Block& body = stream(k).body;
                            std::swap(body[1], body[3]);
                          },
                          "'k' is read before it is awaited", "score_mma"});
}

TEST_CASE("a reference that lags moves in an advance, together with the sums") {
  const Lowered l = on_gpu(plain, lagging());
  CHECK_THAT(text_after(l, "tile_loops"), ContainsSubstring("advance m, m_tile, 5.54") && ContainsSubstring("rescale o, factor"));
  const Fault list[] = {
      {"the reference moves first", "tile_loops",
       [](Kernel& k) {
         Block& body = advance(k).body;
         std::rotate(body.begin(), body.end() - 1, body.end());
       },
       "'m' has its new value already", "map factor"},
      {"a sum is left behind", "tile_loops", [](Kernel& k) { remove<Rescale>(advance(k).body, 1); }, "never rescaled", "sum_mma"},
      {"a sum is rescaled outside as well", "split_ranges",
       [](Kernel& k) {
         const Place at = find<Advance>(k.body);
         at.block->insert(at.block->begin() + static_cast<std::ptrdiff_t>(at.at) + 1, Stmt{op<Rescale>(k.body)});
       },
       "'l' is rescaled twice", "rescale l"},
      {"the reference stays", "tile_loops", [](Kernel& k) { advance(k).body.pop_back(); }, "'m' is carried but not set on one way", "loop"},
  };
  for (const Fault& fault : list) check_found(l, fault);
}

TEST_CASE("a reference lags with fragments only") {
  Schedule positions;
  positions.lanes = Lanes::positions, positions.tile_rows = 4, positions.tile_keys = 32, positions.lazy_rescale = true;
  CHECK_THAT(text_after(on_gpu(plain, positions), "tile_loops"), !ContainsSubstring("advance"));
  Schedule rows;
  rows.lazy_rescale = true;
  CHECK_THAT(text_after(lowered(plain, rows), "tile_loops"), !ContainsSubstring("advance"));
}

TEST_CASE("warps that share positions join their states behind the stream") {
  const Lowered l = on_gpu(causal_with_lse, shared_positions());
  const std::string text = text_after(l, "join_warps");
  CHECK_THAT(text, ContainsSubstring("join m, m_joined, exp(m - m_joined), (l, o)"));
  CHECK(text.find("join m") > text.find("loop key_tiles"));
  CHECK_THAT(text_after(on_gpu([](auto& o) { o.rule = Rule::sigmoid; }, shared_positions()), "join_warps"), ContainsSubstring("join"));
  const Fault list[] = {
      {"a sum stays a warp's own", "join_warps", [](Kernel& k) { op<Join>(k.body).sums.pop_back(); }, "'o' is left out", "join"},
      {"the reference stays a warp's own", "fuse", [](Kernel& k) { op<Join>(k.body).reference = k.find("l"); }, "'m' is left out", "join"},
      {"sums of different references are added", "join_warps", [](Kernel& k) { op<Join>(k.body).factor = {}; }, "'l' is rescaled in the stream and not here", "join"},
      {"the factor reads nothing", "join_warps", [](Kernel& k) { op<Join>(k.body).factor = variable("nobody", {query}); }, "'nobody' is not the name", "join"},
      {"the parts are joined before there are any", "join_warps",
       [](Kernel& k) {
         const Place at = find<Join>(k.body);
         std::swap((*at.block)[at.at], (*at.block)[at.at - 1]);
       },
       "it stands before the stream", "join"},
  };
  for (const Fault& fault : list) check_found(l, fault);
}

TEST_CASE("the scale of a softmax becomes part of its exponential") {
  const Lowered l = on_gpu(causal_with_lse, fragments());
  const Kernel& kernel = l.after.at("fold_scale");
  const std::string text = print(kernel);
  CHECK(kernel.positive == std::vector<std::string>{"scale"});
  CHECK_THAT(text, ContainsSubstring("map p, exp((qk - m_safe) * scale)") && ContainsSubstring("row_reduce m_next, qk, max"));
  CHECK_THAT(text, ContainsSubstring("mask qk, -inf") && ContainsSubstring("map factor, exp((m - m_safe) * scale)"));
  CHECK_THAT(text, ContainsSubstring("map lse_out, m * scale + log(l)") && !ContainsSubstring("map s,"));
}

TEST_CASE("the scale is folded into the advance of a reference and into the join of warps") {
  CHECK_THAT(text_after(on_gpu(plain, lagging()), "fold_scale"), ContainsSubstring("advance m, m_tile, 5.545177444479562, scale"));
  CHECK_THAT(text_after(on_gpu(plain, shared_positions()), "fold_scale"), ContainsSubstring("join m, m_joined, exp((m - m_joined) * scale), (l, o)"));
}

TEST_CASE("the scale stays where something else reads the score") {
  Schedule off = fragments();
  off.fold_scale = false;
  for (const Lowered& l : {on_gpu([](auto& o) { o.rule = Rule::sigmoid; }, fragments()), on_gpu([](auto& o) { o.softcap = true; }, fragments()),
                           on_gpu([](auto& o) { o.bias = true; }, fragments()), on_gpu([](auto& o) { o.sink = true; }, off)}) {
    CAPTURE(to_string(l.algorithm));
    CHECK(l.after.at("fold_scale").positive.empty());
    CHECK(print(l.after.at("fold_scale")) == print(l.after.at("join_warps")));
  }
  Lowered two{entropy(), {}, fragments(), target_from_name("sm_90")};
  two.problem = problem_for(two.algorithm, DType::bfloat16);
  two.run();
  CHECK(two.after.at("fold_scale").positive.empty());
  CHECK_THAT(text_after(two, "fold_scale"), ContainsSubstring("map s, qk * scale"));
}

}  // namespace attile::test
