#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cli/json.h"
#include "cli/tune.h"
#include "cli/work.h"

namespace attile::cli {
namespace {

std::string share_text(double part, double whole) {
  return whole > 0 ? fmt::format("{:+.1f}%", 100 * (part / whole - 1)) : "";
}

// What was measured now, else what the store has of earlier runs.
struct Line {
  const Candidate* candidate;
  Outcome outcome;
  double spread = 0, cold = 0, warm = 0;
};
std::vector<Line> lines_of(const TuneReport& report) {
  std::vector<Line> lines;
  for (const Candidate& c : report.space.candidates) {
    const auto tried = report.found.tried.outcomes.find(to_string(c.point));
    if (tried != report.found.tried.outcomes.end()) lines.push_back({&c, tried->second});
  }
  for (const Measured& m : report.found.measured)
    for (Line& line : lines)
      if (line.candidate == &report.space.candidates[m.candidate])
        line.spread = m.spread, line.cold = m.cold, line.warm = m.warm, line.outcome.seconds = m.seconds;
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return (a.outcome.seconds > 0) != (b.outcome.seconds > 0) ? a.outcome.seconds > 0
                                                              : a.outcome.seconds < b.outcome.seconds;
  });
  return lines;
}

std::string cost_text(const Cost& cost) {
  std::string text;
  for (const UnitCost& u : cost.units) text += fmt::format("{}{} {:.3g}", text.empty() ? "" : ", ", u.unit, u.cycles);
  return text;
}

Cost cost_of(const TuneCase& c, const DeviceFacts& facts, const TuneReport& report, const Point& point) {
  return predict(c.problem.algorithm, c.problem.problem, c.shape, schedule_of(point), facts.target, report.constants);
}

std::string head(const TuneCase& c, const DeviceFacts& facts) {
  return fmt::format("problem    {}\nvariant    {}\ndevice     {}; {}\n", c.text, c.variant, facts.machine.text(),
                     facts.machine.versions());
}

std::string outcome_line(const TuneCase& c, const TuneReport& report) {
  if (!report.result) return "stopped before anything was measured\n";
  const TuneResult& r = *report.result;
  std::string text = fmt::format("winner     {}\n           {}, {:.4g} GFLOP/s", to_string(r.winner),
                                 time_text(r.seconds), c.flops / r.seconds / 1e9);
  if (r.default_seconds > 0)
    text += fmt::format("; the default takes {}, {:.3f} times as long", time_text(r.default_seconds),
                        r.default_seconds / r.seconds);
  text += "\n";
  if (report.known) return text + "known      0 candidates timed; --resume tries more, --again measures anew\n";
  std::size_t failed = 0;
  for (const auto& [point, o] : report.found.tried.outcomes) failed += !o.fault.empty();
  text += fmt::format("search     {} candidates timed, {} failed, {} in the space ({} refused), in {}{}\n",
                      report.found.timed, failed, report.space.candidates.size(), report.space.rejected.size(),
                      time_text(report.seconds),
                      report.found.complete ? report.found.exhausted ? ", nothing better is near" : ""
                                            : "; not complete: the next tune goes on");
  text += fmt::format("model      rank correlation {:.2f} with {} measured\n", report.correlation,
                      report.found.measured.size());
  if (report.found.noisy)
    text +=
        fmt::format("noise      {}; the result is marked and measured again by the next tune\n", report.found.noise);
  return text;
}

}  // namespace

void ProgressLine::show(const SearchProgress& p) {
  const bool terminal = ::isatty(2) == 1;
  if (!terminal && stage_ == p.stage && p.seconds < shown_ + 1) return;
  stage_ = p.stage, shown_ = p.seconds;
  const std::string best = p.best > 0 ? fmt::format(", best {}", time_text(p.best)) : "",
                    left = p.left > 0 ? fmt::format(", {:.0f} s left", p.left) : "";
  std::string bar;
  if (terminal && p.left > 0)
    for (int i = 0; i < 20; ++i) bar += i < 20 * p.seconds / (p.seconds + p.left) ? '#' : '.';
  fmt::print(stderr, "{}{:<10} {} {} of {} tried, {} failed{}{}{}", terminal ? "\r\x1b[K" : "", p.stage, bar, p.tried,
             p.all, p.failed, best, left, terminal ? "" : "\n");
  std::fflush(stderr);
  drawn_ = terminal;
}

void ProgressLine::end() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
  drawn_ = false;
}

std::string tune_table(const TuneCase& c, const DeviceFacts& facts, const TuneReport& report, std::size_t most) {
  std::string text = head(c, facts);
  if (!report.known && report.result) {
    text += fmt::format("\n{:>4}  {:>9}  {:>7}  {:>9}  {:>7}  {:>9}  {}\n", "rank", "measured", "spread", "model",
                        "off", "cold", "schedule");
    std::vector<Line> lines = lines_of(report);
    const std::size_t all = lines.size();
    if (lines.size() > most) lines.resize(most);
    for (const Line& line : lines) {
      const double seconds = line.outcome.seconds;
      const std::string time = seconds > 0 ? time_text(seconds) : "failed",
                        cold = line.cold > 0 ? time_text(line.cold) : "";
      const std::string mark = line.candidate->point == report.result->winner ? " <- winner"
                               : report.shipped == line.candidate->point      ? " <- default"
                                                                              : "";
      text += fmt::format(
          "{:>4}  {:>9}  {:>6.1f}%  {:>9}  {:>7}  {:>9}  {}{}{}\n", line.candidate->rank + 1, time, 100 * line.spread,
          time_text(line.candidate->predicted), seconds > 0 ? share_text(line.candidate->predicted, seconds) : "", cold,
          to_string(line.candidate->point), mark, line.outcome.fault.empty() ? "" : "  " + line.outcome.fault);
    }
    if (all > lines.size()) text += fmt::format("      and {} more, see --rows\n", all - lines.size());
    text += "\n";
  }
  return text + outcome_line(c, report);
}

std::string explain_table(const TuneCase& c, const DeviceFacts& facts, const TuneReport& report, std::size_t most) {
  std::string text = head(c, facts);
  text += fmt::format("space      {} candidates, {} refused\n", report.space.candidates.size(),
                      report.space.rejected.size());
  for (const RejectionGroup& g : grouped(report.space.rejected))
    text += fmt::format("{:>10} {}\n{:>10} such as {}\n", g.count, g.reason, "", to_string(g.example));
  text += fmt::format("model      {}\n", report.constants.fitted.empty()
                                             ? "not fitted to this device: attile doctor --measure"
                                             : "fitted to " + report.constants.fitted);
  text += fmt::format("\n{:>4}  {:>9}  {:>9}  {:>6}  {}\n", "rank", "model", "measured", "waves",
                      "schedule, and cycles of a unit");
  std::size_t shown = 0;
  for (const std::size_t i : report.space.ranked()) {
    if (shown++ == most) break;
    const Candidate& candidate = report.space.candidates[i];
    const Cost cost = cost_of(c, facts, report, candidate.point);
    const auto tried = report.found.tried.outcomes.find(to_string(candidate.point));
    const bool known = tried != report.found.tried.outcomes.end();
    text += fmt::format("{:>4}  {:>9}  {:>9}  {:>6.3g}  {}\n{:34}{}, prologue {:.3g}, effect {:.3f}\n",
                        candidate.rank + 1, time_text(candidate.predicted),
                        !known                      ? ""
                        : tried->second.seconds > 0 ? time_text(tried->second.seconds)
                                                    : "failed",
                        cost.waves, to_string(candidate.point), "", cost_text(cost), cost.prologue, cost.effect);
  }
  return report.result ? text + "\n" + outcome_line(c, report) : text;
}

Json tune_json(const TuneCase& c, const DeviceFacts& facts, const TuneReport& report) {
  Json json = {{"problem", c.text},
               {"variant", c.variant},
               {"device", facts.machine.text()},
               {"versions", facts.machine.versions()},
               {"known", report.known}};
  json["candidates_timed"] = report.found.timed;
  json["space"] = report.space.candidates.size();
  json["refused"] = report.space.rejected.size();
  if (report.result) {
    const TuneResult& r = *report.result;
    json["winner"] = {{"schedule", to_string(r.winner)},      {"seconds", r.seconds}, {"spread", r.spread},
                      {"default_seconds", r.default_seconds}, {"gflops", r.gflops},   {"noisy", r.noisy}};
  }
  json["correlation"] = report.correlation;
  json["seconds"] = report.seconds;
  json["complete"] = report.found.complete || report.known;
  if (report.shipped) json["default"] = to_string(*report.shipped);
  json["candidates"] = Json::array();
  for (const Line& line : lines_of(report)) {
    Json one = {{"schedule", to_string(line.candidate->point)},
                {"rank", line.candidate->rank},
                {"model_s", line.candidate->predicted},
                {"seconds", line.outcome.seconds},
                {"spread", line.spread}};
    if (line.cold > 0) one["cold_s"] = line.cold;
    if (line.warm > 0) one["warm_s"] = line.warm;
    if (!line.outcome.fault.empty()) one["fault"] = line.outcome.fault;
    json["candidates"].push_back(std::move(one));
  }
  return json;
}

}  // namespace attile::cli
