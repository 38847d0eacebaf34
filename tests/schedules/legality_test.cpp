#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

#include "dsl/derive.h"
#include "schedules/cuda_footprint.h"
#include "schedules/footprint.h"
#include "tests/schedules/problems.h"
#include "tests/support/catch_compat.h"

namespace attile::test {
namespace {

struct Plan {
  Algorithm algorithm = attention(AttentionOptions{});
  Problem problem = problem_for(algorithm);
  Schedule schedule = {};
  Target target = target_from_name("x86-64-v4");

  std::vector<std::string> reasons() const { return legality(algorithm, problem, schedule, target); }
};

// A change to a legal plan, and a part of the one reason against it.
struct Illegal {
  std::function<void(Plan&)> change;
  const char* reason;
};

const std::vector<Illegal>& illegal_plans() {
  static const std::vector<Illegal> list{
      {[](Plan& p) { p.schedule.tile_rows = 100; }, "tile_rows 100 is no multiple of the 48 rows of a panel"},
      {[](Plan& p) { p.schedule.tile_keys = 100; }, "tile_keys 100 is no multiple of the block of 8 keys"},
      {[](Plan& p) { p.schedule.tile_keys = 0; }, "tile_keys is 0"},
      {[](Plan& p) { p.schedule.tile_rows = -48; }, "tile_rows is -48"},
      {[](Plan& p) { p.schedule.block = 6; }, "block is 6"},
      {[](Plan& p) { p.schedule.block = 1; }, "block is 1"},
      {[](Plan& p) { p.schedule.block = 32; }, "block is 32"},
      {[](Plan& p) { p.schedule.block = 16; }, "takes 52 vector registers (48 accumulators, 3 of the panel"},
      {[](Plan& p) { p.target = target_from_name("x86-64-v3"); }, "takes 28 vector registers"},
      {[](Plan& p) { p.schedule.bf16_dot = true, p.problem = problem_for(p.algorithm, DType::bfloat16); },
       "bf16_dot needs AVX512_BF16"},
      {[](Plan& p) { p.schedule.splits = 0; }, "splits is 0"},
      {[](Plan& p) { p.schedule.splits = 1025; }, "splits is 1025"},
      {[](Plan& p) { p.schedule.pack_group = true; }, "the group is 1"},
      {[](Plan& p) { p.schedule.lanes = Lanes::positions, p.schedule.tile_rows = 17; },
       "tile_rows 17 is more than the 16"},
      {[](Plan& p) { p.schedule.order = Order::keys_outer, p.schedule.splits = 2; },
       "keys_outer streams all keys itself"},
      {[](Plan& p) {
         p.schedule.order = Order::keys_outer;
         p.schedule.lanes = Lanes::positions;
         p.schedule.tile_rows = 8;
       },
       "keys_outer needs lanes: rows"},
      {[](Plan& p) { p.problem.extents["head_dim"] = 1024; }, "the tiles of a worker take"},
      {[](Plan& p) { p.problem.extents["head_dim"] = 0; }, "head_dim is 0"},
      {[](Plan& p) { p.problem.extents.erase("value_dim"); }, "the extent of value_dim is not given"},
      {[](Plan& p) {
         p.algorithm = standard_attention(false).scores;
         p.problem = problem_for(p.algorithm);
         p.schedule.splits = 2;
       },
       "splits is 2, and an output written at every position has no merge"},
      {[](Plan& p) {
         p.algorithm = attention_with([](auto& o) { o.top_k = 4; });
         p.problem = problem_for(p.algorithm);
         p.schedule.splits = 2;
       },
       "splits is 2, and for the merge of a selection"},
      {[](Plan& p) {
         p.algorithm = split(attention_with([](auto& o) { o.top_k = 4, o.top_k_outputs = true; })).merge;
         p.problem = problem_for(p.algorithm);
       },
       "selects among the selections of parts"},
  };
  return list;
}

}  // namespace

TEST_CASE("the initial schedule is legal on AVX-512") { CHECK(Plan{}.reasons() == std::vector<std::string>{}); }

TEST_CASE("each thing that is wrong with a schedule is a reason") {
  for (const Illegal& illegal : illegal_plans()) {
    Plan plan;
    illegal.change(plan);
    const std::vector<std::string> reasons = plan.reasons();
    CAPTURE(illegal.reason, reasons);
    REQUIRE(reasons.size() == 1);
    CHECK_THAT(reasons[0], ContainsSubstring(illegal.reason));
  }
}

TEST_CASE("all reasons are given at once") {
  Plan plan;
  plan.schedule.tile_rows = 100;
  plan.schedule.tile_keys = 129;
  plan.schedule.pack_group = true;
  plan.schedule.bf16_dot = true;
  CHECK(plan.reasons().size() == 8);  // the dot: the target and three operands; tile_keys: the block and odd
}

TEST_CASE("a dot of bfloat16 pairs needs bfloat16 operands, whatever runs along the lanes") {
  Plan plan;
  plan.target = target_from_name("x86-64-v4-bf16");
  plan.schedule.bf16_dot = true;
  plan.problem = problem_for(plan.algorithm, DType::bfloat16);
  CHECK(plan.reasons().empty());
  plan.problem.dtypes["v"] = DType::float32;
  REQUIRE(plan.reasons().size() == 1);
  CHECK_THAT(plan.reasons()[0], ContainsSubstring("'v' is float32"));
  plan.problem.dtypes["v"] = DType::bfloat16;
  plan.schedule.lanes = Lanes::positions;
  plan.schedule.tile_rows = 8;
  CHECK(plan.reasons() == std::vector<std::string>{});
}

TEST_CASE("a merge takes one row at a time") {
  Plan plan;
  plan.algorithm = split(plan.algorithm).merge;
  plan.problem = problem_for(plan.algorithm);
  REQUIRE(plan.reasons().size() == 1);
  CHECK_THAT(plan.reasons()[0], ContainsSubstring("rows of its own"));
  plan.schedule.lanes = Lanes::positions;
  CHECK_FALSE(plan.reasons().empty());
  plan.schedule.tile_rows = 1;
  CHECK(plan.reasons() == std::vector<std::string>{});
}

TEST_CASE("what a GPU cannot do is refused with the reason") {
  Plan plan;
  plan.target = target_from_name("sm_86");
  const auto refused = [&](const char* reason) {
    INFO(reason);
    const std::vector<std::string> reasons = plan.reasons();
    CHECK(std::any_of(reasons.begin(), reasons.end(), [&](const std::string& r) { return r.find(reason) != std::string::npos; }));
  };
  refused("lanes: rows is for CPUs, and sm_86 has fragments or positions");
  plan.schedule = Schedule{};
  plan.schedule.lanes = Lanes::fragments, plan.schedule.tile_rows = 64, plan.schedule.tile_keys = 32;
  for (auto& [name, type] : plan.problem.dtypes) type = DType::bfloat16;
  CHECK(plan.reasons() == std::vector<std::string>{});
  plan.schedule.tile_rows = 40;
  refused("tile_rows 40 is no multiple of 64, the rows of 4 matrix instructions");
  plan.schedule.tile_rows = 64, plan.schedule.tile_keys = 40;
  refused("tile_keys 40 is no multiple of 16");
  plan.schedule.tile_keys = 512, plan.schedule.stages = 4;
  refused("and sm_86 has 99 KiB");
  plan.schedule.tile_keys = 128, plan.schedule.tile_rows = 256, plan.schedule.stages = 1;
  refused("registers");
  plan.schedule.tile_rows = 64, plan.schedule.warps = 3;
  refused("warps is 3, and it is 1, 2, 4 or 8");
  plan.schedule = Schedule{};
  plan.schedule.lanes = Lanes::fragments, plan.schedule.tile_rows = 64, plan.schedule.tile_keys = 32;
  plan.problem.dtypes["k"] = DType::float16;
  refused("a matrix instruction takes one type");
}

TEST_CASE("a reference lags only where no output shows it") {
  Plan plan;
  plan.target = target_from_name("sm_90");
  plan.schedule.lanes = Lanes::fragments, plan.schedule.tile_rows = 64, plan.schedule.tile_keys = 32, plan.schedule.lazy_rescale = true;
  const auto reasons = [&](auto set) {
    plan.algorithm = attention_with(set);
    plan.problem = problem_for(plan.algorithm, DType::bfloat16);
    return plan.reasons();
  };
  const std::vector<std::string> none;
  CHECK(reasons([](auto& o) { o.causal = o.lse = true; }) == none);
  CHECK(reasons([](auto& o) { o.softcap = o.sink = true; }) == none);
  for (const Rule rule : {Rule::sigmoid, Rule::linear}) {
    const auto found = reasons([&](auto& o) { o.rule = rule; });
    REQUIRE(found.size() == 1);
    CHECK_THAT(found[0], ContainsSubstring("lazy_rescale lets the reference lag behind the maximum"));
    CHECK_FALSE(made_legal(plan.algorithm, plan.problem, plan.schedule, plan.target).lazy_rescale);
  }
  plan.schedule.lazy_rescale = false;
  CHECK(plan.reasons() == none);
}

TEST_CASE("why a stream cannot be split is said") {
  CHECK(split_fault(attention_with([](auto& o) { o.causal = o.lse = o.sink = true; })) == "");
  CHECK(split_fault(attention_with([](auto& o) { o.rule = Rule::sigmoid; })) == "");
  CHECK_THAT(split_fault(attention_with([](auto& o) { o.top_k = 4; })), ContainsSubstring("the merge of a selection"));
  CHECK(split_fault(standard_attention(false).scores) != "");
  CHECK(split_fault(split(attention(AttentionOptions{})).merge) != "");
}

TEST_CASE("warps share the columns of one sum whose columns they divide, and no others") {
  Plan plan;
  plan.target = target_from_name("sm_90");
  const auto reasons = [&](std::int64_t value_dim, const std::function<void(Schedule&)>& change) {
    plan.problem = problem_for(plan.algorithm, DType::bfloat16, 64, value_dim);
    plan.schedule = {};
    plan.schedule.lanes = Lanes::fragments, plan.schedule.column_warps = 2, plan.schedule.tile_rows = 64, plan.schedule.tile_keys = 32;
    change(plan.schedule);
    return fmt::format("{}", fmt::join(plan.reasons(), "; "));
  };
  const auto as_it_is = [](Schedule&) {};
  CHECK(reasons(64, as_it_is) == "");
  CHECK_THAT(reasons(48, as_it_is), ContainsSubstring("column_warps 2 share the 48 columns of 'o'"));
  CHECK_THAT(reasons(64, [](Schedule& s) { s.tile_keys = 16; }), ContainsSubstring("tile_keys 16 is no multiple of 32"));
  CHECK_THAT(reasons(64, [](Schedule& s) { s.warps = 1; }), ContainsSubstring("column_warps 2 does not divide the 1 warps"));
  CHECK_THAT(reasons(64, [](Schedule& s) { s.column_warps = 0; }), ContainsSubstring("column_warps is 0"));
  CHECK_THAT(reasons(64, [](Schedule& s) { s.partition = Partition::positions; }), ContainsSubstring("column_warps have the same rows"));
  CHECK_THAT(reasons(64, [](Schedule& s) { s.lanes = Lanes::positions, s.tile_rows = 4; }), ContainsSubstring("column_warps are for lanes: fragments"));
  for (const int column_warps : {-3, 0, 3, 1000}) {
    Schedule s = plan.schedule;
    s.lanes = Lanes::fragments, s.column_warps = column_warps;
    CHECK(legality(plan.algorithm, plan.problem, made_legal(plan.algorithm, plan.problem, s, plan.target), plan.target).empty());
  }
}

TEST_CASE("what a task takes of a multiprocessor adds up") {
  Plan plan;
  plan.target = target_from_name("sm_90");
  for (auto& [name, type] : plan.problem.dtypes) type = DType::bfloat16;
  plan.schedule = Schedule{};
  plan.schedule.lanes = Lanes::fragments, plan.schedule.tile_rows = 128, plan.schedule.tile_keys = 64, plan.schedule.stages = 3;
  const CudaFootprint f = cuda_footprint(plan.algorithm, plan.problem, plan.schedule);
  CHECK(shared_pitch(64, DType::bfloat16) == 128);
  CHECK(shared_pitch(72, DType::bfloat16) == 144);
  CHECK(shared_pitch(1, DType::float32) == 32);
  CHECK(f.row_operands == 128 * 128);
  CHECK(f.stream_operands == 2 * 3 * 64 * 128);
  CHECK(f.registers == 32 * 64 / 32 + 32 * 64 / 32);
  CHECK(register_limit(plan.schedule) == 255);
  plan.schedule.blocks_per_sm = 4;
  CHECK(register_limit(plan.schedule) == 128);
}

TEST_CASE("the footprint adds up what a worker holds") {
  Plan plan;
  CHECK(panel_rows(plan.schedule, plan.target) == 48);
  const Footprint f = footprint(plan.algorithm, plan.problem, plan.schedule, plan.target);
  CHECK(f.row_operands == 192 * 65 * 4);
  CHECK(f.stream_operands == 2 * (128 + 8) * (64 + 8) * 4);
  CHECK(f.states == 192 * (65 + 2 * 2) * 4);
  CHECK(f.stream_tiles == 4 * 48 * 128 * 4);
  CHECK(f.results == 48 * 64 * 4);
  CHECK(f.total() == f.row_operands + f.stream_operands + f.states + f.stream_tiles + f.results);
  plan.schedule.lanes = Lanes::positions;
  plan.schedule.tile_rows = 8;
  CHECK(panel_rows(plan.schedule, plan.target) == 8);
  CHECK(footprint(plan.algorithm, plan.problem, plan.schedule, plan.target).stream_operands == 0);
}

}  // namespace attile::test
