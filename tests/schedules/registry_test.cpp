#include <set>

#include "dsl/derive.h"
#include "dsl/error.h"
#include "schedules/embedded.h"
#include "schedules/footprint.h"
#include "schedules/registry.h"
#include "tests/schedules/problems.h"
#include "tests/support/catch_compat.h"

namespace attile::test {
namespace {

constexpr DType float_types[] = {DType::float32, DType::bfloat16, DType::float16};

void check_default(const Algorithm& a, const Problem& p, const Target& t) {
  const Schedule s = default_schedule(a, p, t);
  const std::vector<std::string> reasons = legality(a, p, s, t);
  if (reasons.empty()) return;
  CAPTURE(a.name, to_string(p), t.name, to_string(s), reasons);
  CHECK(reasons.empty());
}

// One algorithm of each shape that lowering tells apart.
std::vector<Algorithm> algorithms() {
  const Algorithm plain = attention(AttentionOptions{});
  const StandardAttention standard = standard_attention(true);
  return {plain,
          attention_with([](auto& o) { o.causal = o.lse = true; }),
          attention_with([](auto& o) { o.rule = Rule::linear; }),
          attention_with([](auto& o) { o.top_k = 128; }),
          split(plain).partial,
          split(plain).merge,
          standard.scores,
          standard.probabilities,
          standard.output};
}

// The problem that an entry is meant for.
Problem problem_of(const Algorithm& a, const ScheduleMatch& m) {
  const std::int64_t most = m.head_dim_from > 256 ? 512 : m.head_dim_from > 1 ? 256 : 128, d = std::min<std::int64_t>(m.head_dim_to, most);
  Problem p = problem_for(a, m.dtype.empty() ? DType::float32 : m.dtype.front(), d, d);
  p.few_rows = m.few_rows.value_or(false);
  p.group = m.grouped.value_or(false) ? 4 : 1;
  return p;
}

}  // namespace

TEST_CASE("every shipped file parses and prints back to itself") {
  std::set<std::string> targets;
  for (const embedded::File& file : embedded::schedule_files()) {
    const ScheduleFile parsed = parse_schedule_file(file.content, std::string(file.path));
    CHECK(parse_schedule_file(to_yaml(parsed), "again.yaml") == parsed);
    const bool gpu = target_from_name(parsed.target).family == TargetFamily::cuda;
    CHECK(file.path == (gpu ? "sm" + parsed.target.substr(3) : "cpu") + "/" + parsed.target + ".yaml");
    targets.insert(parsed.target);
  }
  for (const std::string& name : target_names()) CHECK(targets.contains(name));
}

TEST_CASE("every shipped entry is legal as it stands and found for its problem") {
  for (const std::string& name : target_names()) {
    const Target t = target_from_name(name);
    for (const KnownSchedule& known : schedule_file(t).best) {
      const Algorithm a = attention_with([&](auto& o) { o.causal = known.match.masked.value_or(false); });
      const Problem p = problem_of(a, known.match);
      CAPTURE(name, known.name);
      CHECK(legality(a, p, known.schedule, t) == std::vector<std::string>{});
      REQUIRE(best_known(a, p, t) != nullptr);
      CHECK(*best_known(a, p, t) == known);
      CHECK(default_schedule(a, p, t) == known.schedule);
    }
  }
}

TEST_CASE("a default schedule is legal for every head dim, type and target") {
  for (const std::string& name : target_names())
    for (const DType type : float_types)
      for (const Algorithm& a : algorithms())
        for (const std::int64_t d : {1, 2, 3, 5, 16, 40, 64, 80, 128, 192, 256, 257, 512, 777, 1023, 1024})
          for (const bool few : {false, true}) {
            Problem p = problem_for(a, type, d, d > 512 ? 1024 : 1024 / d);
            check_default(a, p, target_from_name(name));
            p.few_rows = few;
            p.group = 8;
            check_default(a, p, target_from_name(name));
          }
}

TEST_CASE("a default schedule is legal for every head dim") {
  const Algorithm a = attention(AttentionOptions{});
  for (std::int64_t d = 1; d <= 1024; ++d)
    check_default(a, problem_for(a, DType::float32, d, d), target_from_name("x86-64-v3"));
}

TEST_CASE("an impossible wish is made legal with as little change as needed") {
  const Algorithm a = attention(AttentionOptions{});
  const Target t = target_from_name("x86-64-v3");
  Schedule s;
  s.tile_rows = 100;
  s.tile_keys = 131;
  s.block = 7;
  s.bf16_dot = s.pack_group = true;
  s = made_legal(a, problem_for(a), s, t);
  CHECK(legality(a, problem_for(a), s, t).empty());
  CHECK((s.block == 4 && s.panel_vectors == 3 && s.tile_rows == 96 && s.tile_keys == 128));
  const Schedule fine = default_schedule(a, problem_for(a), t);
  CHECK(made_legal(a, problem_for(a), fine, t) == fine);
}

TEST_CASE("few rows run with positions along the lanes and many with rows") {
  const Algorithm a = attention(AttentionOptions{});
  const Target t = target_from_name("x86-64-v4-bf16");
  Problem p = problem_for(a, DType::bfloat16);
  CHECK(default_schedule(a, p, t).lanes == Lanes::rows);
  CHECK(default_schedule(a, p, t).bf16_dot);
  p.few_rows = true;
  CHECK(default_schedule(a, p, t).lanes == Lanes::positions);
  CHECK_FALSE(default_schedule(a, p, t).pack_group);
  p.group = 12;
  CHECK(default_schedule(a, p, t).pack_group);
  CHECK(default_schedule(a, p, t).tile_rows == 12);
}

TEST_CASE("the legal space of a problem has no illegal schedule and none twice") {
  const Algorithm a = attention(AttentionOptions{});
  for (const std::string& name : target_names()) {
    const Target t = target_from_name(name);
    for (const DType type : {DType::float32, DType::bfloat16}) {
      const Problem p = problem_for(a, type);
      const std::vector<Schedule> all = legal_schedules(a, p, t);
      std::set<std::string> lines;
      std::size_t illegal = 0;
      for (const Schedule& s : all) {
        lines.insert(to_string(s));
        illegal += !legality(a, p, s, t).empty();
      }
      CHECK(illegal == 0);
      CHECK(lines.size() == all.size());
      CHECK(all.size() > 50);
    }
  }
}

TEST_CASE("a chip with a name of its own has the schedules of the nearest target") {
  Target t = target_from_name("x86-64-v4");
  t.name = "znver5";
  CHECK(schedule_file(t).target == "x86-64-v4");
  t.bf16_dot = true;
  CHECK(schedule_file(t).target == "x86-64-v4-bf16");
  t.vector_bytes = 32;
  CHECK(schedule_file(t).target == "x86-64-v3");
  t = target_from_name("sm_90");
  for (const auto& [name, nearest] : {std::pair("sm_87", "sm_86"), {"sm_90a", "sm_90"}, {"sm_103", "sm_100"}, {"sm_121", "sm_120"}, {"sm_75", "sm_80"}}) {
    t.name = name;
    CHECK(schedule_file(t).target == nearest);
  }
}

}  // namespace attile::test
