// The model: what must grow with what, constants as data, effects fitted to measurements, fields that it does not know.
#include "autotune/cost_model.h"

#include <cmath>

#include "dsl/error.h"
#include "dsl/library.h"
#include "schedules/registry.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

struct Model {
  Algorithm algorithm = attention({});
  Problem problem;
  CallShape shape{4, 16, 16, 4096, 4096, 1};
  Target target;
  Constants constants;
  explicit Model(const char* name, DType type = DType::bfloat16, std::int64_t d = 128)
      : target(target_from_name(name)), constants(shipped_constants(target)) {
    for (const char* tensor : {"q", "k", "v", "o"}) problem.dtypes[tensor] = type;
    problem.extents = {{"head_dim", d}, {"value_dim", d}};
  }
  Cost cost(const Schedule& s) const { return predict(algorithm, problem, shape, s, target, constants); }
  Schedule shipped() const { return default_schedule(algorithm, problem, target); }
};

}  // namespace

TEST_CASE("time grows with batch and keys, and a causal call is cheaper than a full one, on every target") {
  for (const std::string& name : target_names()) {
    CAPTURE(name);
    Model m(name.c_str());
    const Schedule s = m.shipped();
    const double once = m.cost(s).seconds();
    CHECK(once > 0);
    m.shape.sequences *= 4;
    CHECK(m.cost(s).seconds() == Approx(4 * once).epsilon(0.25));
    m.shape.sequences /= 4, m.shape.visible = 0.5;
    CHECK(m.cost(s).seconds() < 0.7 * once);
    m.shape.visible = 1, m.shape.keys *= 2;
    CHECK(m.cost(s).seconds() == Approx(2 * once).epsilon(0.25));
  }
}

TEST_CASE("a prediction is below what the arithmetic alone allows for no target") {
  for (const std::string& name : target_names()) {
    CAPTURE(name);
    const Model m(name.c_str());
    const Schedule s = m.shipped();
    const Cost cost = m.cost(s);
    double busiest = 0;
    for (const UnitCost& u : cost.units) busiest = std::max(busiest, u.cycles);
    const double threads = m.target.family == TargetFamily::cpu ? 256 : 1;  // units of a CPU's cost are of all threads
    CHECK(cost.cycles * threads >= busiest);
    CHECK(cost.tasks >= 1);
    CHECK(cost.waves > 0);
  }
}

TEST_CASE(
    "units follow the schedule: float32 takes more of the matrix unit, row operands in registers less of shared "
    "memory") {
  const Model half("sm_90"), full("sm_90", DType::float32);
  Schedule s = half.shipped();
  s.rows_in_registers = false;
  const Cost base = half.cost(s);
  CHECK(full.cost(s).of("matrix unit") > 4 * base.of("matrix unit"));
  s.rows_in_registers = true;
  CHECK(half.cost(s).of("shared-memory port") < base.of("shared-memory port"));
  CHECK(half.cost(s).of("HBM") == base.of("HBM"));
  CHECK(base.of("no such unit") == 0);
}

TEST_CASE("one long row on a GPU is split among its multiprocessors") {
  Model m("sm_90");
  m.problem.few_rows = true;
  m.shape = {1, 8, 8, 1, 65536, 1};
  Schedule s = m.shipped();
  s.splits = 1;
  const double whole = m.cost(s).seconds();
  s.splits = 0;
  CHECK(m.cost(s).seconds() < 0.2 * whole);
}

TEST_CASE("constants survive YAML, and a wrong one is refused at its place") {
  for (const char* name : {"sm_90", "sm_80", "x86-64-v4"}) {
    Constants c = shipped_constants(target_from_name(name));
    c.effects = {{"stages: 1", 1.25}, {"roles: two", 0.9}};
    c.fitted = "12 problems";
    const Constants back = parse_constants(to_yaml(c), "x");
    CHECK(back.values == c.values);
    CHECK(back.effects == c.effects);
    CHECK(back.fitted == c.fitted);
  }
  CHECK_THROWS_WITH(parse_constants("values:\n  clock_ghz: -1\n", "file"),
                    ContainsSubstring("file:2:14") && ContainsSubstring("above 0"));
  CHECK_THROWS_WITH(parse_constants("vaules: {}\n", "file"), ContainsSubstring("file:1:1"));
  CHECK_THROWS_AS(Constants{}.at("clock_ghz"), Error);
  CHECK(shipped_constants(target_from_name("sm_90")).at("read_gbs") >
        shipped_constants(target_from_name("sm_80")).at("read_gbs"));
}

TEST_CASE("effects of made-up fields are found in measurements and bring the ranks right") {
  std::vector<FitSample> samples;
  const Point initial{{"ring", "2"}};
  for (std::size_t problem = 0; problem < 3; ++problem)
    for (const char* roles : {"one", "two"})
      for (const char* ring : {"2", "3"}) {
        FitSample s;
        s.point = {{"roles", roles}};
        if (std::string(ring) != "2") s.point.emplace_back("ring", ring);
        s.predicted = 1e-3 * (1 + static_cast<double>(problem));
        s.measured = 5 * s.predicted * (std::string(roles) == "two" ? 0.7 : 1) * (std::string(ring) == "3" ? 1.2 : 1);
        s.problem = problem;
        samples.push_back(s);
      }
  Constants c;
  c.effects = fit_effects(samples, initial);
  CHECK(c.effect_of({{"roles", "two"}}, initial) / c.effect_of({{"roles", "one"}}, initial) ==
        Approx(0.7).epsilon(0.15));
  std::vector<double> before, after, measured;
  for (const FitSample& s : samples)
    before.push_back(s.predicted), after.push_back(s.predicted * c.effect_of(s.point, initial)),
        measured.push_back(s.measured);
  CHECK(rank_correlation(before, measured) < 0.95);
  CHECK(rank_correlation(after, measured) > 0.98);
  CHECK(fit_effects({}, initial).empty());
}

TEST_CASE("ranks correlate as Spearman has it") {
  const std::vector<double> up{1, 2, 3, 4}, down{9, 7, 5, 3}, ties{1, 1, 2, 2};
  CHECK(rank_correlation(up, up) == Approx(1));
  CHECK(rank_correlation(up, down) == Approx(-1));
  CHECK(rank_correlation(up, ties) == Approx(0.894427));
  CHECK(rank_correlation(std::vector<double>{1}, std::vector<double>{1}) == 0);
}

TEST_CASE("problems share a bucket up to a power of two, and every part of the key parts them") {
  const Algorithm full = attention({}), causal = attention({.causal = true});
  const Model m("sm_90");
  const auto at = [&](const Algorithm& a, const Problem& p, CallShape s, int units = 132) {
    return bucket_of(a, p, s, units);
  };
  const Bucket base = at(full, m.problem, {1, 32, 32, 1000, 1000, 1});
  CHECK(base == at(full, m.problem, {1, 32, 32, 1024, 600, 1}));
  CHECK(base == at(full, m.problem, {2, 16, 16, 1000, 1000, 1}));
  CHECK(base != at(full, m.problem, {1, 32, 32, 1025, 1000, 1}));
  CHECK(base != at(full, m.problem, {1, 32, 32, 1000, 512, 1}));
  CHECK(base != at(full, m.problem, {8, 32, 32, 1000, 1000, 1}));
  CHECK(base != at(full, m.problem, {1, 32, 32, 1000, 1000, 1}, 16));
  CHECK(base != at(causal, m.problem, {1, 32, 32, 1000, 1000, 1}));
  for (const char* change : {"dtype", "head_dim", "value_dim", "group", "few_rows", "tf32"}) {
    Problem p = m.problem;
    const std::string what = change;
    if (what == "dtype") p.dtypes["k"] = DType::float16;
    if (what == "head_dim" || what == "value_dim") p.extents[what] = 100;
    if (what == "group") p.group = 4;
    if (what == "few_rows") p.few_rows = true;
    if (what == "tf32") p.tf32 = true;
    CAPTURE(what);
    CHECK(base != at(full, p, {1, 32, 32, 1000, 1000, 1}));
    CHECK(distance(base, at(full, p, {1, 32, 32, 1000, 1000, 1})) == far_apart);
  }
}

TEST_CASE("every part of a machine is part of what results are kept under") {
  const Machine base{"sm_90", "NVIDIA H200", 132, 700, "13.0", "NVRTC 13.0", "0.1.0"};
  const auto differs = [&](const Machine& m) {
    return m.file_name() != base.file_name() || m.text() != base.text() || m.versions() != base.versions();
  };
  for (int part = 0; part < 7; ++part) {
    Machine m = base;
    part == 0   ? void(m.target = "sm_80")
    : part == 1 ? void(m.model = "NVIDIA H100")
    : part == 2 ? void(m.units = 16)
    : part == 3 ? void(m.power_limit_w = 350)
    : part == 4 ? void(m.driver = "12.4")
    : part == 5 ? void(m.compiler = "NVRTC 12.8")
                : void(m.library = "0.2.0");
    CAPTURE(part);
    CHECK(differs(m));
  }
  CHECK(base.file_name().starts_with("NVIDIA-H200-"));
}
