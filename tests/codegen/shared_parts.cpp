// Expressions whose parts are used several times: as trees they double with every round, as kernels they must not.
#include "codegen/passes/rewrite.h"
#include "codegen/program.h"
#include "dsl/dsl.h"
#include "schedules/registry.h"
#include "tests/codegen/lowered.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

Expr rounds_of(const Expr& start, int rounds) {
  Expr s = start;
  for (int i = 0; i < rounds; ++i) s = s * 0.5 + s * s * 0.01;
  return s;
}
// Of rows and of positions, so that neither can be taken out of a loop.
Expr position_rounds(int rounds) {
  Expr i = index(query) + index(key);
  for (int n = 0; n < rounds; ++n) i = min(i, floor_mod(i + i, Expr(7)) + index(query));
  return i;
}

template <typename Set>
std::size_t text_size(const Set& set, const char* target, const Schedule& schedule = {}) {
  const Algorithm a = attention_with(set);
  const Problem p = problem_for(a);
  const Target t = target_from_name(target);
  std::size_t size = 0;
  for (const EmittedKernel& kernel : generate(a, p, schedule, t).kernels) size += kernel.text.size();
  return size;
}

Schedule lanes(Lanes form) {
  Schedule s;
  s.lanes = form;
  if (form == Lanes::positions) s.tile_rows = 8, s.block = 4;
  return s;
}

}  // namespace

TEST_CASE("a score that uses its parts several times makes text that grows with its parts") {
  const auto size = [](int rounds, Lanes form) {
    return text_size([=](AttentionOptions& o) { o.score_mod = [=](const Expr& s) { return rounds_of(s, rounds); }; }, "x86-64-v4", lanes(form));
  };
  for (const Lanes form : {Lanes::rows, Lanes::positions}) {
    const std::size_t few = size(16, form), none = size(0, form);
    CHECK(size(64, form) - none < 5 * (few - none));
  }
}

TEST_CASE("a mask that uses its parts several times makes text that grows with its parts") {
  const auto size = [](int rounds, Lanes form) {
    return text_size([=](AttentionOptions& o) { o.mask_mod = [=] { return position_rounds(rounds) < index(key); }; }, "x86-64-v4", lanes(form));
  };
  for (const Lanes form : {Lanes::rows, Lanes::positions}) {
    const std::size_t few = size(16, form), none = size(0, form);
    CHECK(size(64, form) - none < 5 * (few - none));
  }
}

TEST_CASE("on a GPU too, in both forms, text grows with the parts of scores and masks") {
  const auto size = [](int rounds, Lanes form, bool mask) {
    const auto set = [=](AttentionOptions& o) {
      if (mask) o.mask_mod = [=] { return position_rounds(rounds) < index(key); };
      else o.score_mod = [=](const Expr& s) { return rounds_of(s, rounds) + to_real(position_rounds(rounds)); };
    };
    Schedule s;
    s.lanes = form, s.tile_rows = form == Lanes::positions ? s.warps : 64, s.tile_keys = 32;
    return text_size(set, "sm_90", s);
  };
  for (const Lanes form : {Lanes::fragments, Lanes::positions})
    for (const bool mask : {false, true}) {
      const std::size_t few = size(16, form, mask), none = size(0, form, mask);
      CHECK(size(64, form, mask) - none < 5 * (few - none));
    }
}

TEST_CASE("shared parts are rewritten and evaluated once") {
  const Expr e = rounds_of(variable("s", {}), 64);
  int visits = 0;
  const Expr doubled = ir::rewrite(e, [&](const Expr& node) -> std::optional<Expr> {
    ++visits;
    return node->op == Op::variable ? std::optional(node * 2.0) : std::nullopt;
  });
  CHECK(visits < 1000);
  const double of_double = ir::evaluate_scalar(doubled, [](const Node&) { return 0.25; });
  CHECK(of_double == Approx(ir::evaluate_scalar(e, [](const Node&) { return 0.5; })));
}
