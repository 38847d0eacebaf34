// Scores and masks of a user's own, every operation among them, as CUDA that compiles without a warning in each form of
// a kernel.
#include "codegen/embedded.h"
#include "codegen/program.h"
#include "dsl/library.h"
#include "runtime/nvrtc_compiler.h"
#include "schedules/registry.h"
#include "tests/support/needs_nvrtc.h"

using namespace attile;
using namespace attile::test;

namespace {

const Dim place{"place"};

Expr number(const char* name) { return scalar(name, Kind::integer); }

Expr index_mask() {
  const Expr i = query_position(), j = index(key), n = number("n");
  return floor_div(j, 16) <= floor_div(i, 16) && (floor_mod(j * i, 3) != 0 || j == 0) && min(j, n) < max(i, 20) &&
         select(j < 75, n, n + 1) != 5 && !(abs(i - j) * 3 < floor_div(n, number("divisor"))) && -j < 1099511627776.0 &&
         i - j <= number("left") && abs(i - j) + 5 <= 100 && floor_mod(j, 7) + 1 <= 6 && j <= i + n;
}

// Tiles are asked about by the extremes of tensors.
Expr element_mask() {
  const Tensor narrow = input("narrow", {batch, key}, Kind::integer, -1), wide = input("wide", {batch, key}, Kind::integer),
               table = input("table", {batch, place}, Kind::integer, 1099511627776.0),
               seen = input("seen", {batch, query, key}, Kind::boolean);
  const Expr id = wide(batch, key);
  return narrow(batch, key) + 1 == narrow(batch, query_position()) + 1 && id * 2 - index(key) <= id + number("n") &&
         -id < wide(batch, query_position()) && abs(narrow(batch, key)) - index(query) < 1000 && table(batch, floor_div(index(key), 16)) > 3 && seen;
}

Expr score_of(const Expr& s) {
  const Expr distance = to_real(query_position() - key), product = to_real((index(key) - query) * number("n"));
  return tanh(s) * sigmoid(s) + exp(-abs(s)) + log(abs(s) + 1.0) + floor(s) / 2.0 + 1e-9 * product - 0.5 * distance +
         min(s, max(distance, scalar("least")));
}

Problem problem_of(const Algorithm& a) {
  Problem p;
  for (const char* tensor : {"q", "k", "v", "o"}) p.dtypes[tensor] = DType::bfloat16;
  p.extents = {{"head_dim", 64}, {"value_dim", 64}};
  for (const char* tensor : {"narrow", "table"})
    if (a.find_input(tensor)) p.dtypes[tensor] = DType::int32;
  if (a.find_input("wide")) p.dtypes["wide"] = DType::int64;
  if (a.find_input("seen")) p.dtypes["seen"] = DType::boolean;
  return p;
}

}  // namespace

TEST_CASE("scores and masks of one's own become CUDA that compiles without a warning") {
  NEEDS_NVRTC;
  AttentionOptions options;
  SECTION("masks over indices") { options.mask_mod = index_mask; }
  SECTION("masks over elements") { options.mask_mod = element_mask; }
  SECTION("a mask of which intervals know nothing") {
    options.mask_mod = [] { return to_real(index(key)) < scalar("limit") || input("wide", {key}, Kind::integer)(key) > 3; };
  }
  SECTION("scores") { options.score_mod = score_of; }
  const Algorithm a = attention(options);
  const Problem p = problem_of(a);
  const Target target = target_from_name("sm_80");
  Schedule by_rows, by_positions, by_lanes;
  by_rows.lanes = by_positions.lanes = Lanes::fragments;
  by_rows.tile_rows = 64, by_rows.tile_keys = 64;
  by_positions.partition = Partition::positions, by_positions.tile_rows = 16, by_positions.tile_keys = 128;
  by_lanes.lanes = Lanes::positions;
  for (const Schedule& wanted : {by_rows, by_positions, by_lanes}) {
    const Schedule s = made_legal(a, p, wanted, target);
    INFO(to_string(s));
    CHECK(s.lanes == wanted.lanes);
    for (const EmittedKernel& k : generate(a, p, s, target).kernels) {
      const CompiledCuda compiled = compile_cuda(k.text, k.name + ".cu", target.arch, embedded::device_files());
      CHECK(compiled.warnings.empty());
      CHECK(compiled.resources.size() == 1);
    }
  }
}

TEST_CASE("values may have the names of functions, types and constants of the device headers") {
  NEEDS_NVRTC;
  const Tensor q = input("q", {batch, head, query, head_dim}), k = input("k", {batch, kv_head, key, head_dim}),
               v = input("v", {batch, kv_head, key, value_dim});
  const Algorithm a = for_tiles("scan", query).stream(key, [&](Stream& t) {
    const Expr s = dot(q, k) * scalar("add_ending");
    t.visible(abs(index(key) - index(query)) < number("highest_i64") + index(query));
    const State m = t.running_max("rescale", s);
    const Expr p = exp(s - m);
    const State l = t.sum("row_max", p), o = t.sum("fill", dot(p, v));
    t.rescale({l, o}, [](const Expr& from, const Expr& to) { return exp(from - to); });
    t.finish([&](Finish& f) { f.output("o", normalise(o, l)); });
  });
  const Problem p = problem_of(a);
  const Target target = target_from_name("sm_80");
  Schedule by_rows, by_lanes;
  by_rows.lanes = Lanes::fragments, by_lanes.lanes = Lanes::positions;
  for (const Schedule& wanted : {by_rows, by_lanes}) {
    const Schedule s = made_legal(a, p, wanted, target);
    INFO(to_string(s));
    for (const EmittedKernel& kernel : generate(a, p, s, target).kernels) {
      const CompiledCuda compiled =
          compile_cuda(kernel.text, kernel.name + ".cu", target.arch, embedded::device_files());
      CHECK(compiled.warnings.empty());
      CHECK(compiled.resources.size() == 1);
    }
  }
}
