#include <functional>

#include "dsl/error.h"
#include "schedules/schedule_yaml.h"
#include "tests/schedules/problems.h"
#include "tests/support/catch_compat.h"

namespace attile::test {
namespace {

// The text, and where and how it is wrong.
struct Fault {
  const char* text;
  const char* where;
  const char* what;
};

template <typename Parse>
void check_faults(const std::vector<Fault>& faults, const Parse& parse) {
  for (const Fault& fault : faults) {
    CAPTURE(fault.text);
    try {
      parse(fault.text, "my.yaml");
      FAIL("it was accepted");
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::argument);
      CHECK(e.where() == fault.where);
      CHECK_THAT(e.what(), ContainsSubstring(fault.what));
    }
  }
}

Schedule unusual() {
  Schedule s;
  s.tile_rows = 8;
  s.tile_keys = 64;
  s.lanes = Lanes::positions;
  s.panel_vectors = 2;
  s.block = 4;
  s.order = Order::keys_outer;
  s.bf16_dot = s.pack_group = true;
  s.splits = 16;
  s.longest_first = false;
  return s;
}

}  // namespace

TEST_CASE("a schedule prints on one line that names every choice") {
  CHECK(to_string(Schedule{}) == "tile 192x128 lanes rows panel 3 block 8 queries_outer splits 1 longest_first");
  CHECK(to_string(unusual()) == "tile 8x64 lanes positions panel 2 block 4 keys_outer splits 16 bf16_dot pack_group");
  CHECK(hash_of(unusual()) != hash_of(Schedule{}));
  CHECK(hash_of(Schedule{}) == hash_of(Schedule{}));
}

TEST_CASE("a schedule survives YAML") {
  for (const Schedule& s : {Schedule{}, unusual()}) CHECK(parse_schedule(to_yaml(s), "s.yaml") == s);
}

TEST_CASE("fields that are left out keep their initial values") {
  const Schedule s = parse_schedule("{tile_keys: 64, lanes: positions}", "s.yaml");
  CHECK(s.tile_keys == 64);
  CHECK(s.lanes == Lanes::positions);
  CHECK(s.tile_rows == Schedule{}.tile_rows);
}

TEST_CASE("a fault in a schedule is an error at its position") {
  check_faults({{"tile_rows: 48\ntile_kezs: 64\n", "my.yaml:2:1", "a schedule has no 'tile_kezs'"},
                {"tile_rows: 48\ntile_rows: 96\n", "my.yaml:2:1", "'tile_rows' is repeated"},
                {"block:   four\n", "my.yaml:1:10", "block is a whole number, but here it is 'four'"},
                {"block: 8.0\n", "my.yaml:1:8", "whole number"},
                {"block: 8x\n", "my.yaml:1:8", "whole number"},
                {"block: 99999999999999999999\n", "my.yaml:1:8", "out of range"},
                {"stages: 0\n", "my.yaml:1:9", "stages is 0"},
                {"splits: -3\n", "my.yaml:1:9", "splits is -3"},
                {"lanes: columns\n", "my.yaml:1:8", "lanes is rows or positions or fragments, but here it is 'columns'"},
                {"order: keys\n", "my.yaml:1:8", "order is queries_outer or keys_outer"},
                {"bf16_dot: yes\n", "my.yaml:1:11", "bf16_dot is false or true, but here it is 'yes'"},
                {"block: [8]\n", "my.yaml:1:8", "block is a single value, but here it is a list"},
                {"block: ~\n", "my.yaml:1:8", "block is a single value, but here it is empty"},
                {"? [a]\n: 1\n", "my.yaml:1:3", "a key is a single value"},
                {"- 1\n", "my.yaml:1:1", "a schedule is a mapping, but here it is a list"},
                {"block: 8\n---\nblock: 4\n", "my.yaml:3:1", "a second document"},
                {"block: [8\n", "my.yaml:2:1", "this is not YAML"},
                {"", "my.yaml", "a schedule is a mapping, but here it is empty"}},
               [](const char* text, const char* file) { return parse_schedule(text, file); });
}

TEST_CASE("a file of schedules survives YAML") {
  ScheduleFile f;
  f.target = "x86-64-v3";
  f.spaces = {{{{"tile_rows", {"24", "48"}}, {"lanes", {"rows"}}}}, {{{"splits", {"1", "2"}}}}};
  ScheduleMatch match;
  match.dtype = {DType::float32, DType::bfloat16};
  match.head_dim_from = 3;
  match.head_dim_to = 64;
  match.few_rows = false;
  match.masked = match.grouped = true;
  f.best = {{"a \"quoted\" name: #1", match, unusual(), 81.25, "B1 H8 N2048\non one core"}, {"b", {}, {}, 0, ""}};
  CHECK(parse_schedule_file(to_yaml(f), "f.yaml") == f);
  CHECK(to_yaml(parse_schedule_file(to_yaml(f), "f.yaml")) == to_yaml(f));
}

TEST_CASE("a fault in a file of schedules is an error at its position") {
  check_faults({{"targets: x\n", "my.yaml:1:1", "a file of schedules has no 'targets'"},
                {"spaces: []\n", "my.yaml:1:1", "names its target"},
                {"target: x\nspaces:\n  - tile_rows: 48\n", "my.yaml:3:16", "the choice of tile_rows is a list"},
                {"target: x\nspaces:\n  - tile_rows: [48, lots]\n", "my.yaml:3:21", "tile_rows is a whole number"},
                {"target: x\nspaces:\n  - tile_rows: []\n", "my.yaml:3:16", "no tile_rows to choose"},
                {"target: x\nspaces:\n  - rows: [1]\n", "my.yaml:3:5", "a schedule has no 'rows'"},
                {"target: x\nbest:\n  - name: n\n", "my.yaml:3:5", "'n' has no schedule"},
                {"target: x\nbest:\n  - schedule: {}\n", "my.yaml:3:5", "needs a name"},
                {"target: x\nbest:\n  - name: n\n    match: {head_dim: [9, 3]}\n", "my.yaml:4:23", "from <= to"},
                {"target: x\nbest:\n  - name: n\n    match: {rows: several}\n", "my.yaml:4:19", "rows is many or few"},
                {"target: x\nbest:\n  - name: n\n    match: {dtype: [float64]}\n", "my.yaml:4:21", "dtype is float32"},
                {"target: x\nbest:\n  - name: n\n    gflops: fast\n", "my.yaml:4:13", "gflops is a number"},
                {"target: x\nbest:\n  - name: n\n    gflops: 0\n", "my.yaml:4:13", "gflops is above 0"},
                {"target: x\nbest:\n  - name: n\n    schedule: {blocks: 4}\n", "my.yaml:4:16", "no 'blocks'"}},
               [](const char* text, const char* file) { return parse_schedule_file(text, file); });
}

TEST_CASE("a space is the product of its choices") {
  const ScheduleSpace space{{{"tile_keys", {"64", "128"}}, {"lanes", {"rows", "positions"}}}};
  const std::vector<Schedule> all = space.all();
  REQUIRE(all.size() == 4);
  CHECK((all[0].tile_keys == 64 && all[0].lanes == Lanes::rows));
  CHECK((all[1].tile_keys == 64 && all[1].lanes == Lanes::positions));
  CHECK((all[3].tile_keys == 128 && all[3].lanes == Lanes::positions));
  CHECK(ScheduleSpace{}.all() == std::vector<Schedule>{Schedule{}});
}

TEST_CASE("a match looks at types, head dims, rows, masks and groups") {
  const Algorithm causal = attention_with([](auto& o) { o.causal = true; });
  Problem p = problem_for(causal, DType::bfloat16, 64, 128);
  CHECK(ScheduleMatch{}.matches(causal, p));
  ScheduleMatch m;
  m.dtype = {DType::bfloat16};
  m.head_dim_to = 128;
  m.masked = true;
  m.few_rows = m.grouped = false;
  CHECK(m.matches(causal, p));
  CHECK_FALSE(m.matches(attention(AttentionOptions{}), p));
  const auto changed = [&](const std::function<void(Problem&)>& change) {
    Problem other = p;
    change(other);
    return m.matches(causal, other);
  };
  CHECK_FALSE(changed([](Problem& o) { o.dtypes["v"] = DType::float32; }));
  CHECK(changed([](Problem& o) { o.dtypes["o"] = DType::float32; }));
  CHECK_FALSE(changed([](Problem& o) { o.extents["head_dim"] = 129; }));
  CHECK_FALSE(changed([](Problem& o) { o.few_rows = true; }));
  CHECK_FALSE(changed([](Problem& o) { o.group = 2; }));
}

}  // namespace attile::test
