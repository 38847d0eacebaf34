// attile explain: what a schedule needs and whether it is legal for a problem on a target.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/kernel_flags.h"
#include "schedules/footprint.h"
#include "schedules/registry.h"

namespace attile::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainFlags {
  KernelFlags kernel;
  bool json = false;
};

struct Explanation {
  KernelSource source;
  std::string chosen_by;
  std::vector<std::string> reasons;  // against the schedule
  Footprint footprint;
};

Explanation explain(const ExplainFlags& f) {
  Explanation e{kernel_source(f.kernel), "", {}, {}};
  const KernelSource& s = e.source;
  const KnownSchedule* known = best_known(s.algorithm, s.problem, s.chip.target);
  e.chosen_by = !f.kernel.machine.schedule.empty() ? "given by --schedule"
                : known != nullptr                 ? fmt::format("best known for \"{}\", made legal", known->name)
                                   : "no schedule is known for this problem; the initial one, made legal";
  e.reasons = legality(s.algorithm, s.problem, s.schedule, s.chip.target);
  e.footprint = footprint(s.algorithm, s.problem, s.schedule, s.chip.target);
  return e;
}

void print_text(const Explanation& e) {
  const auto line = [](const char* name, const std::string& text) { fmt::print("{:<10} {}\n", name, text); };
  const KernelSource& s = e.source;
  line("problem", s.problem_text);
  line("kernel for", to_string(s.problem));
  line("target", to_string(s.chip.target));
  line("schedule", to_string(s.schedule));
  line("chosen", e.chosen_by);
  if (e.reasons.empty()) line("legal", "yes");
  for (const std::string& reason : e.reasons) line("not legal", reason);
  const Footprint& p = e.footprint;
  line("scratch",
       fmt::format("{} bytes a worker, of at most {}: row operands {}, stream operands {}, stream tiles {}, states {}, "
                   "results {}",
                   p.total(), scratch_limit, p.row_operands, p.stream_operands, p.stream_tiles, p.states, p.results));
  line("caches", fmt::format("L1 {} bytes, L2 {} bytes", s.chip.target.l1_bytes, s.chip.target.l2_bytes));
}

void print_json(const Explanation& e) {
  const KernelSource& s = e.source;
  const Footprint& p = e.footprint;
  Json json = {{"problem", s.problem_text},
               {"kernel_for", to_string(s.problem)},
               {"target", to_string(s.chip.target)},
               {"schedule", to_string(s.schedule)},
               {"chosen", e.chosen_by},
               {"legal", e.reasons.empty()},
               {"reasons", e.reasons}};
  json["scratch_bytes"] = {{"row_operands", p.row_operands}, {"stream_operands", p.stream_operands},
                           {"stream_tiles", p.stream_tiles}, {"states", p.states},
                           {"results", p.results},           {"total", p.total()}};
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

int run(const ExplainFlags& f) {
  const Explanation e = explain(f);
  if (f.json)
    print_json(e);
  else
    print_text(e);
  return e.reasons.empty() ? good : failed;
}

}  // namespace

Action add_explain(CLI::App& verb) {
  auto flags = std::make_shared<ExplainFlags>();
  verb.add_flag("--json", flags->json, "The same as JSON");
  add_target_flag(verb, flags->kernel);
  add_kernel_flags(verb, flags->kernel);
  return [flags] { return run(*flags); };
}

}  // namespace attile::cli
