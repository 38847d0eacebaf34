#include "codegen/ir_verify.h"
#include "dsl/error.h"
#include "schedules/registry.h"
#include "tests/codegen/faults.h"
#include "tests/support/catch_compat.h"

namespace attile::test {
namespace {

constexpr std::string_view stages[] = {"tile_loops", "join_warps", "fold_scale", "split_ranges", "place", "select", "pipeline", "fuse"};

using Set = std::function<void(AttentionOptions&)>;
const Set plain = [](auto&) {};
const Set causal = [](auto& o) { o.causal = true; };
const Set causal_with_lse = [](auto& o) { o.causal = o.lse = true; };

void check_all_stages(const Set& set, const Schedule& schedule = {}, DType type = DType::float32) {
  const Lowered l = lowered(set, schedule, type);
  for (const std::string_view stage : stages) {
    CAPTURE(stage, to_string(l.algorithm));
    CHECK(verify(l.after.at(std::string(stage)), stage) == std::vector<std::string>{});
  }
}

Visibility& split(Kernel& k) { return op<Visibility>(k.body); }

// Faults in a causal attention with lse, one each.
const std::vector<Fault>& faults() {
  static const std::vector<Fault> list{
      {"an op names a value that is not declared", "tile_loops", [](Kernel& k) { op<Rescale>(k.body).factor.id = 99; },
       "value 99 is not declared", "rescale l, ?99"},
      {"an expression names no value", "tile_loops",
       [](Kernel& k) { op<Map>(k.body).expr = variable("nobody", {query}); }, "'nobody' is not the name", "map"},
      {"q is never copied", "tile_loops", [](Kernel& k) { remove<Copy>(k.body); }, "'q' is read before", "score_mma"},
      {"a state starts without a value", "tile_loops", [](Kernel& k) { remove<Fill>(k.body); },
       "carried but not defined", "loop key_tiles"},
      {"the key loop drops a state", "tile_loops", [](Kernel& k) { op<Loop>(k.body).carry.pop_back(); },
       "a loop that does not carry it", "sum_mma"},
      {"q and k contract over different extents", "tile_loops", [](Kernel& k) { k[k.find("k")].cols = 32; },
       "contract over different extents", "score_mma"},
      {"the scores are wider than the keys", "tile_loops", [](Kernel& k) { k[op<ScoreMma>(k.body).dst].cols = 256; },
       "one column for each position", "score_mma"},
      {"panels do not cut the row tile", "tile_loops", [](Kernel& k) { k[k.find("q")].rows = 100; },
       "no whole number of panels", "score_mma"},
      {"the output is wider than v", "tile_loops", [](Kernel& k) { k[k.find("o")].cols = 128; }, "their columns differ",
       "sum_mma"},
      {"the factor is no row value", "tile_loops", [](Kernel& k) { op<Rescale>(k.body).factor = op<SumMma>(k.body).p; },
       "not one element a row", "rescale"},
      {"a state is added to twice", "tile_loops", [](Kernel& k) { repeat<SumMma>(k.body); }, "'o' is set again",
       "sum_mma"},
      {"a state is set on two of three ways", "split_ranges", [](Kernel& k) { remove<SumMma>(split(k).masked); },
       "not set on one way", "loop"},
      {"an accumulator is not rescaled", "tile_loops", [](Kernel& k) { remove<Rescale>(k.body, 1); },
       "'o' sums weights that depend on the reference and is never rescaled", "sum_mma"},
      {"an accumulator is not rescaled on one way", "split_ranges",
       [](Kernel& k) { remove<Rescale>(split(k).masked, 1); }, "'o' is added to before it is rescaled", "sum_mma"},
      {"an accumulator is rescaled twice", "tile_loops", [](Kernel& k) { repeat<Rescale>(k.body); },
       "'l' is rescaled twice", "rescale"},
      {"an accumulator is rescaled too late", "tile_loops",
       [](Kernel& k) {
         const Place rescale = find<Rescale>(k.body, 1);
         const Stmt late = (*rescale.block)[rescale.at];
         rescale.block->push_back(late);
         remove<Rescale>(k.body, 1);
       },
       "'o' is rescaled after", "rescale"},
      {"the reference moves before the factor is made", "tile_loops",
       [](Kernel& k) {
         const Place factor = find<Map>(k.body, map_of(k, k.body, "factor"));
         const Stmt moved = factor.block->back();
         factor.block->insert(factor.block->begin() + static_cast<std::ptrdiff_t>(factor.at), moved);
         factor.block->pop_back();
       },
       "'m' has its new value already", "map factor"},
      {"a tile of the stream reads slots", "tile_loops",
       [](Kernel& k) {
         Map& map = op<Map>(k.body, map_of(k, k.body, "p"));
         map.expr = map.expr + variable("m", {query, slot});
       },
       "no slots to run over", "map p"},
      {"the scores are not masked", "tile_loops", [](Kernel& k) { remove<Mask>(k.body); }, "is not −inf at hidden",
       "row_reduce"},
      {"the scores are masked with 0", "tile_loops", [](Kernel& k) { op<Mask>(k.body).hidden = 0; },
       "is not −inf at hidden", "row_reduce"},
      {"the masked body does not mask", "split_ranges", [](Kernel& k) { remove<Mask>(split(k).masked); },
       "is not −inf at hidden", "row_reduce"},
      {"the plain body masks", "split_ranges", [](Kernel& k) { split(k).plain = split(k).masked; },
       "the plain body masks", "mask"},
      {"the guarded body does not guard", "split_ranges",
       [](Kernel& k) { op<SumMma>(split(k).guarded).guarded = false; }, "not guarded in a guarded body", "sum_mma"},
      {"the guarded weights are +0", "split_ranges", [](Kernel& k) { op<Mask>(split(k).guarded, 1).hidden = 0.0; },
       "is not −0 at hidden", "sum_mma"},
      {"v is not watched", "split_ranges", [](Kernel& k) { split(k).watched.clear(); }, "'v' is not watched",
       "sum_mma"},
      {"a skipped tile has an output", "split_ranges",
       [](Kernel& k) {
         op<Loop>(k.body).body.push_back({Store{"s", op<ScoreMma>(k.body).dst}});
       },
       "stays unwritten", "store s"},
      {"q is laid out for another product", "place", [](Kernel& k) { k[k.find("q")].layout = Layout::row_pairs; },
       "the layout of 'q'", "score_mma"},
      {"v is laid out as keys are", "place", [](Kernel& k) { k[k.find("v")].layout = Layout::position_blocks; },
       "reads 'v' in its layout", "sum_mma"},
      {"an operand has the wrong element", "place", [](Kernel& k) { k[k.find("k")].element = Element::bf16; },
       "the element type of 'k'", "score_mma"},
      {"a copy goes to global memory", "place", [](Kernel& k) { k[k.find("k")].space = Space::global; },
       "'k' lies in global memory", "copy"},
      {"an operand lies in one panel", "place", [](Kernel& k) { k[k.find("v")].space = Space::panel; },
       "operand of all panels", "sum_mma"},
      {"a product is not selected", "select", [](Kernel& k) { op<SumMma>(k.body).kind = MmaKind::unselected; },
       "no instruction is selected", "sum_mma"},
      {"a product is selected against its layout", "select",
       [](Kernel& k) { op<ScoreMma>(k.body).kind = MmaKind::pair_dot; }, "does not read 'k'", "score_mma"},
      {"an element-wise op stands outside a sweep", "fuse",
       [](Kernel& k) {
         Place sweep = find<Sweep>(k.body);
         const Stmt out = std::get<Sweep>((*sweep.block)[sweep.at].node).body.front();
         remove<Map>(std::get<Sweep>((*sweep.block)[sweep.at].node).body);
         sweep.block->insert(sweep.block->begin() + static_cast<std::ptrdiff_t>(sweep.at), out);
       },
       "outside a sweep", "map"},
      {"a sweep holds a product", "fuse",
       [](Kernel& k) {
         const Stmt product{op<ScoreMma>(k.body)};
         op<Sweep>(k.body).body.push_back(product);
       },
       "a sweep holds only element-wise", "score_mma"},
      {"a sweep reads what it reduces", "fuse",
       [](Kernel& k) {
         Sweep& sweep = op<Sweep>(k.body);
         const Value tile = op<RowReduce>(sweep.body).src, maximum = op<RowReduce>(sweep.body).acc;
         sweep.body.push_back({Map{tile, variable(k[maximum].name, {query})}});
       },
       "is reduced in this sweep", "map"},
  };
  return list;
}

}  // namespace

TEST_CASE("lowered kernels have no violation after any pass") {
  const Set variants[] = {
      plain,
      causal,
      [](auto& o) { o.causal = o.window = o.softcap = o.alibi = o.lse = true; },
      [](auto& o) { o.bias = o.mask = o.sink = o.documents = true; },
      [](auto& o) { o.rule = Rule::sigmoid, o.causal = true; },
      [](auto& o) { o.rule = Rule::linear, o.causal = true; },
      [](auto& o) { o.rule = Rule::softmax_plus_one, o.dropout = true; },
      [](auto& o) { o.causal = o.dropout = true; },
      [](auto& o) { o.top_k = 8; },
      [](auto& o) { o.top_k = 8, o.top_k_renormalise = false, o.causal = o.top_k_outputs = o.lse = true; },
  };
  for (const Set& set : variants) check_all_stages(set);
}

TEST_CASE("lowered kernels have no violation with other schedules") {
  Schedule positions;
  positions.lanes = Lanes::positions;
  positions.tile_rows = 8;
  check_all_stages(causal, positions);
  Schedule pairs;
  pairs.bf16_dot = true;
  check_all_stages(causal_with_lse, pairs, DType::bfloat16);
  Schedule keys_outer;
  keys_outer.order = Order::keys_outer;
  check_all_stages(causal_with_lse, keys_outer);
  check_all_stages([](auto& o) { o.top_k = 8; }, keys_outer);
}

TEST_CASE("every legal schedule lowers without a violation") {
  const Algorithm a = attention_with(causal);
  for (const std::string& name : target_names()) {
    const Target t = target_from_name(name);
    const Problem p = problem_for(a, DType::bfloat16);
    for (const Schedule& s : legal_schedules(a, p, t)) {
      if (s.splits > 1 || s.pack_group) continue;  // lowering does not see these
      CAPTURE(name, to_string(s));
      REQUIRE_NOTHROW(lower({a, p, s, t}));
    }
  }
}

TEST_CASE("standard attention has no violation") {
  for (const bool hidden : {false, true}) {
    const StandardAttention s = standard_attention(hidden);
    for (const Algorithm& a : {s.scores, s.probabilities, s.output}) {
      Lowered l{a, problem_for(a), {}};
      CAPTURE(to_string(a));
      CHECK_NOTHROW(l.run());
    }
  }
}

TEST_CASE("an output at every position is refused where a sequence does not have every position") {
  Lowered l{standard_attention(true).scores, {}, {}};
  l.algorithm.lengths = Lengths::used;
  l.problem = problem_for(l.algorithm);
  CHECK_THROWS_WITH(l.run(), ContainsSubstring("needs dense lengths"));
}

TEST_CASE("each planted fault is found and its op is shown") {
  const Lowered good = lowered(causal_with_lse);
  for (const Fault& fault : faults()) check_found(good, fault);
}

TEST_CASE("faults with states that pass through the workspace are found") {
  Schedule schedule;
  schedule.order = Order::keys_outer;
  const Lowered good = lowered(causal_with_lse, schedule);
  const Fault list[] = {
      {"a state is not saved at the start", "tile_loops", [](Kernel& k) { remove<Save>(k.body); }, "'m' was never saved",
       "restore m"},
      {"a state is not saved after the panels", "tile_loops", [](Kernel& k) { remove<Save>(k.body, 5); },
       "'o' is not saved after it", "loop panels"},
      {"a state is not restored", "tile_loops", [](Kernel& k) { remove<Restore>(k.body, 1); },
       "'l' is carried but not defined", "loop panels"},
      {"a state is saved outside a row tile", "place",
       [](Kernel& k) { op<Loop>(k.body, 1).body.push_back({Save{k.find("m")}}); }, "outside a loop over row tiles",
       "save m"},
      {"a tile of the stream is saved", "tile_loops", [](Kernel& k) { op<Save>(k.body).state = k.find("s"); },
       "'s' is no state", "save s"},
  };
  for (const Fault& fault : list) check_found(good, fault);
}

TEST_CASE("faults with outputs at hidden positions are found") {
  Lowered good{standard_attention(true).scores, {}, {}};
  good.problem = problem_for(good.algorithm);
  good.run();
  const Fault list[] = {
      {"a hidden panel writes nothing", "split_ranges", [](Kernel& k) { split(k).hidden.clear(); },
       "'s' stays unwritten where the panel is hidden", "store s"},
      {"hidden tiles are passed over", "split_ranges",
       [](Kernel& k) { op<Loop>(k.body).skip_unless = split(k).predicate; },
       "'s' stays unwritten where the whole tile is hidden", "store s"},
      {"a hidden output is 1", "split_ranges", [](Kernel& k) { op<Map>(split(k).hidden).expr = constant(1); },
       "a hidden output is not 0", "store s"},
      {"a hidden panel changes a state", "split_ranges",
       [](Kernel& k) { split(k).hidden.push_back({Fill{k.find("top"), 0}}); }, "more than write zeros", "fill top"},
      {"a hidden position holds its score", "split_ranges", [](Kernel& k) { remove<Mask>(split(k).masked, 1); },
       "'s2' is not 0 at hidden positions", "store s"},
  };
  for (const Fault& fault : list) check_found(good, fault);
}

TEST_CASE("violations are thrown together as an internal error") {
  Kernel kernel = lowered(causal).after.at("tile_loops");
  remove<Rescale>(kernel.body, 1);
  remove<Rescale>(kernel.body);
  try {
    throw_on_violations(kernel, "tile_loops");
    FAIL("nothing was thrown");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::internal);
    CHECK_THAT(e.what(), ContainsSubstring("'l' sums weights") && ContainsSubstring("'o' sums weights") &&
                             ContainsSubstring("after tile_loops") && ContainsSubstring("kernel attention {"));
  }
  CHECK_NOTHROW(throw_on_violations(lowered(plain).after.at("fuse"), "fuse"));
}

TEST_CASE("a stage that no pass has is refused") {
  CHECK_THROWS_AS(verify(lowered(plain).after.at("fuse"), "polish"), Error);
}

}  // namespace attile::test
