// The recorded cases through real kernels: for every tile size of this machine's space that is legal, in every type.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "cli/case_file.h"
#include "schedules/registry.h"
#include "tests/numeric/call.h"
#include "tests/numeric/test_device.h"
#include "tests/support/cases.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

Call call_of(const cli::CaseFile& file, const cli::CaseRun& run, DType type) {
  Call call(run.options, {.batches = file.q.shape[0], .heads = file.q.shape[1], .kv_heads = file.k.shape[1], .rows = file.q.shape[2],
                          .keys = file.k.shape[2], .head_dim = file.q.shape[3], .value_dim = file.v.shape[3]}, type);
  for (const auto& [name, tensor] : {std::pair("q", file.q), std::pair("k", file.k), std::pair("v", file.v)}) call.put(name, type, tensor.shape, tensor.values);
  for (const auto& [name, tensor] : run.tensors) {
    const Kind kind = call.algorithm().find_input(name)->kind;
    call.put(name, kind == Kind::real ? DType::float32 : kind == Kind::integer ? DType::int32 : DType::boolean, tensor.shape, tensor.values);
  }
  for (const auto& [name, value] : run.scalars) call.number(name, value);
  return call;
}

using Tile = std::tuple<int, int, Lanes, bool>;   // rows, keys, lanes, dot instruction
Tile tile_of(const Schedule& s) { return {s.tile_rows, s.tile_keys, s.lanes, s.bf16_dot}; }

// Which schedules run. Every tile size of the legal space comes up for some algorithm and type; with ATTILE_CASES=all, for
// all of them. The other choices of a schedule (panel, block, parts…) take turns among those of a tile size.
class Sample {
 public:
  const std::vector<Schedule>& of(const Call& call, DType type) {
    const auto [found, is_new] = chosen_.try_emplace({to_string(call.algorithm()), to_string(call.problem()), type});
    if (is_new) choose(call, found->second);
    return found->second;
  }
  std::size_t kernels() const {
    std::size_t count = 0;
    for (const auto& [key, schedules] : chosen_) count += schedules.size();
    return count;
  }
  std::size_t tiles_run() const { return run_.size(); }
  std::size_t tiles_known() const { return known_.size(); }

 private:
  void choose(const Call& call, std::vector<Schedule>& out) {
    std::map<Tile, std::vector<Schedule>> tiles;
    for (const Schedule& s : legal_schedules(call.algorithm(), call.problem(), test_target())) tiles[tile_of(s)].push_back(s);
    std::vector<const std::vector<Schedule>*> list, unseen;
    for (const auto& [tile, schedules] : tiles) {
      known_.insert(tile);
      (run_.contains(tile) ? list : unseen).push_back(&schedules);
    }
    list.insert(list.begin(), unseen.begin(), unseen.end());   // sizes that have not come up yet go first
    const std::size_t count = all_ ? list.size() : std::min<std::size_t>(5, list.size());
    for (std::size_t i = 0; i < count; ++i, ++turn_) {
      const std::vector<Schedule>& same_tile = *list[all_ || i < unseen.size() ? i : turn_ * 11 % list.size()];
      out.push_back(same_tile[turn_ % same_tile.size()]);
    }
    out.push_back(default_schedule(call.algorithm(), call.problem(), test_target()));
    for (const Schedule& s : out) run_.insert(tile_of(s));
  }

  const bool all_ = std::getenv("ATTILE_CASES") != nullptr && std::string(std::getenv("ATTILE_CASES")) == "all";
  std::map<std::tuple<std::string, std::string, DType>, std::vector<Schedule>> chosen_;
  std::set<Tile> known_, run_;
  std::size_t turn_ = 0;
};

double unit_of(const cli::CaseFile& file, DType type) {
  if (type == DType::bfloat16) return 1e-2;
  if (type == DType::float16) return 2e-3;
  return file.id.find("case-11") != std::string::npos ? 1e-3 : 1e-5;
}

std::string check_outputs(const Call& call, const cli::CaseFile& file, const cli::CaseRun& run, DType type) {
  double largest = 0;
  for (const double x : file.v.values)
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  for (const auto& [name, expected] : run.expected) {
    const bool is_lse = name == "lse";
    const std::string found = cli::case_mismatch(name, expected, call.values(name), is_lse ? 1e-5 : unit_of(file, type) * largest, is_lse ? 1e-5 : 0);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace

TEST_CASE("kernels give the expected output of every recorded case, in every type and tile size") {
  const std::vector<std::string> paths = case_paths();
  REQUIRE(paths.size() == 12);
  Sample sample;
  std::set<std::string> not_run;
  std::size_t calls = 0;
  for (const std::string& path : paths) {
    const cli::CaseFile file = cli::read_case_file(path);
    for (const cli::CaseRun& run : file.runs) {
      not_run.insert(run.not_run.begin(), run.not_run.end());
      CHECK_FALSE(run.expected.empty());
      for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
        Call call = call_of(file, run, type);
        for (const Schedule& s : sample.of(call, type)) {
          INFO(file.id << ": " << run.about << " in " << to_string(type) << " with " << to_string(s));
          call.run(s);
          ++calls;
          CHECK(check_outputs(call, file, run, type) == "");
        }
      }
    }
  }
  CHECK(sample.tiles_run() == sample.tiles_known());
  std::string names;
  for (const std::string& name : not_run) names += " " + name;
  WARN(calls << " calls on " << sample.kernels() << " kernels over " << sample.tiles_run() << " tile sizes agree; not run (gradients):" << names);
}
