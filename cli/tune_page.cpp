// The page of `attile tune --report`: one file, no script and nothing from elsewhere; figures are SVG that scales with
// the page, so it reads on a telephone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cli/tune.h"
#include "cli/tune_plot.h"
#include "cli/work.h"

namespace attile::cli {
namespace {

constexpr const char* style = R"(
:root{--ink:#1c2330;--soft:#5d6878;--line:#d5dae2;--paper:#fff;--card:#f6f7f9;--good:#0a7d5a;--mark:#c2410c;--dot:#2563c9}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#9aa5b5;--line:#3a4250;--paper:#12151b;--card:#1b2028;--good:#4cc79b;--mark:#f59e5b;--dot:#7aa7f0}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1rem}h1{font-size:1.4rem;margin:.5rem 0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
p{margin:.4rem 0}.soft{color:var(--soft)}code{font:13px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
.facts div{background:var(--card);border-radius:.5rem;padding:.6rem .8rem}.facts b{display:block;font-size:1.25rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:14px}td,th{padding:.25rem .5rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
td:last-child,th:last-child{text-align:left}tr.best td{color:var(--good);font-weight:600}tr.failed td{color:var(--soft)}
svg{display:block;width:100%;height:auto;max-width:44rem}svg text{fill:var(--soft);font:13px system-ui,sans-serif}
.maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(18rem,100%),1fr));gap:1rem}
)";

struct Row {
  const Candidate* candidate;
  Outcome outcome;
};
std::vector<Row> rows_of(const TuneReport& report) {
  std::vector<Row> rows;
  for (const Candidate& c : report.space.candidates)
    if (const auto found = report.found.tried.outcomes.find(to_string(c.point));
        found != report.found.tried.outcomes.end())
      rows.push_back({&c, found->second});
  for (const Measured& m : report.found.measured)
    for (Row& row : rows)
      if (row.candidate == &report.space.candidates[m.candidate]) row.outcome.seconds = m.seconds;
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return (a.outcome.seconds > 0) != (b.outcome.seconds > 0) ? a.outcome.seconds > 0
                                                              : a.outcome.seconds < b.outcome.seconds;
  });
  return rows;
}

bool is_winner(const TuneReport& report, const Row& row) {
  return report.result && row.candidate->point == report.result->winner;
}
bool is_default(const TuneReport& report, const Row& row) {
  return report.shipped && row.candidate->point == *report.shipped;
}

std::string fact(const std::string& value, const std::string& name) {
  return fmt::format("<div><b>{}</b>{}</div>", escaped(value), escaped(name));
}

double correlation(const std::vector<Row>& rows) {
  std::vector<double> predicted, measured;
  for (const Row& row : rows)
    if (row.outcome.seconds > 0) predicted.push_back(row.candidate->predicted), measured.push_back(row.outcome.seconds);
  return rank_correlation(predicted, measured);
}

std::string facts(const TuneCase& c, const TuneReport& report, const std::vector<Row>& rows) {
  if (!report.result) return "<p>Nothing was measured.</p>";
  const TuneResult& r = *report.result;
  std::string text = "<div class=facts>" + fact(time_text(r.seconds), "the winner's time") +
                     fact(fmt::format("{:.4g} GFLOP/s", c.flops / r.seconds / 1e9), "its rate");
  if (r.default_seconds > 0)
    text += fact(fmt::format("{:.3f}×", r.default_seconds / r.seconds), "as fast as the shipped default");
  text += fact(std::to_string(report.found.tried.outcomes.size()),
               fmt::format("of {} candidates tried", report.space.candidates.size()));
  text += fact(fmt::format("{:.2f}", correlation(rows)), "rank correlation of model and measurement");
  text += fmt::format("</div><p>Winner <code>{}</code></p>", escaped(to_string(r.winner)));
  if (report.shipped)
    text += fmt::format("<p class=soft>Default <code>{}</code></p>", escaped(to_string(*report.shipped)));
  if (r.noisy)
    text += "<p><b>Other work on the device was seen</b> while this was measured; the next tune measures it again.</p>";
  return text;
}

// Peaks as the model's constants have them: those measured on this device.
std::pair<double, double> limits(const TuneCase& c, const DeviceFacts& facts, const TuneReport& report) {
  const Constants& k = report.constants;
  if (facts.target.family == TargetFamily::cpu) {
    const bool dots = report.result && value_of(report.result->winner, "bf16_dot") != nullptr;
    return {k.at(dots ? "bf16_dot_gflops" : "fma_gflops") * facts.machine.units, k.at("memory_gbs")};
  }
  const auto type = c.problem.problem.dtypes.find("q");
  const bool full = type != c.problem.problem.dtypes.end() && type->second == DType::float32;
  return {(full ? k.at("tf32_flops") / (c.problem.problem.tf32 ? 1 : 3) : k.at("mma_flops")) * k.at("clock_ghz") *
              facts.machine.units,
          k.at("read_gbs")};
}

std::string roofline(const TuneCase& c, const DeviceFacts& facts, const TuneReport& report,
                     const std::vector<Row>& rows) {
  if (!(c.flops > 0)) return "<p>The call computes nothing.</p>";
  const auto [gflops, gbs] = limits(c, facts, report);
  const double intensity = c.flops / std::max(c.bytes, 1.0), ridge = gflops / gbs;
  Plot plot({std::min(ridge, intensity) / 8, std::max(ridge, intensity) * 8, true}, {gflops / 60, gflops * 2, true},
            "FLOP per byte", "GFLOP/s");
  plot.line({{std::min(ridge, intensity) / 8, gbs * std::min(ridge, intensity) / 8},
             {ridge, gflops},
             {std::max(ridge, intensity) * 8, gflops}},
            "var(--soft)");
  for (const Row& row : rows)
    if (row.outcome.seconds > 0)
      plot.dot(intensity, c.flops / row.outcome.seconds / 1e9, is_winner(report, row) ? "var(--good)" : "var(--dot)",
               is_winner(report, row) ? 6 : 3, to_string(row.candidate->point));
  plot.label(ridge, gflops, fmt::format("{:.4g} GFLOP/s, {:.4g} GB/s", gflops, gbs));
  return plot.svg("The candidates below the roofline of this device");
}

std::string model_plot(const TuneReport& report, const std::vector<Row>& rows) {
  double least = 1e300, most = 0;
  for (const Row& row : rows)
    if (row.outcome.seconds > 0) {
      least = std::min({least, row.outcome.seconds, row.candidate->predicted});
      most = std::max({most, row.outcome.seconds, row.candidate->predicted});
    }
  if (most <= 0) return "";
  const bool long_calls = least > 1e-3;
  const double unit = long_calls ? 1e3 : 1e6;
  const Axis axis{least / 1.2 * unit, most * 1.2 * unit, true};
  Plot plot(axis, axis, long_calls ? "measured, ms" : "measured, µs", long_calls ? "model, ms" : "model, µs");
  plot.line({{axis.from, axis.from}, {axis.to, axis.to}}, "var(--line)");
  for (const Row& row : rows)
    if (row.outcome.seconds > 0)
      plot.dot(row.outcome.seconds * unit, row.candidate->predicted * unit,
               is_winner(report, row)    ? "var(--good)"
               : is_default(report, row) ? "var(--mark)"
                                         : "var(--dot)",
               is_winner(report, row) || is_default(report, row) ? 6 : 3, to_string(row.candidate->point));
  return plot.svg("Model against measurement");
}

std::string sharing(const std::string& column_warps) { return column_warps == "1" ? "" : fmt::format(", shared by {}", column_warps); }

// B_q × B_k of each way to divide the work among warps or registers.
std::string heat_maps(const TuneReport& report, const std::vector<Row>& rows) {
  const auto field = [&](const Point& point, const char* name) {
    const std::string* own = value_of(point, name);
    const std::string* initial = value_of(report.space.initial, name);
    return own ? *own : initial ? *initial : "";
  };
  std::map<std::string, std::map<std::pair<int, int>, const Row*>> maps;
  double best = 1e300;
  for (const Row& row : rows) {
    if (row.outcome.seconds <= 0) continue;
    best = std::min(best, row.outcome.seconds);
    const Point& p = row.candidate->point;
    const std::string lanes = field(p, "lanes");
    const std::string group = lanes == "fragments"
                                  ? fmt::format("{} warps over {}{}", field(p, "warps"), field(p, "partition"), sharing(field(p, "column_warps")))
                              : lanes == "rows" ? fmt::format("panels of {} vectors", field(p, "panel_vectors"))
                                                : "lanes: " + lanes;
    const Row*& cell =
        maps[group][{std::atoi(field(p, "tile_rows").c_str()), std::atoi(field(p, "tile_keys").c_str())}];
    if (cell == nullptr || row.outcome.seconds < cell->outcome.seconds) cell = &row;
  }
  std::string text = "<div class=maps>";
  for (const auto& [group, cells] : maps) {
    HeatMap map("B_k", "B_q");
    for (const auto& [at, row] : cells)
      map.cell(at.second, at.first, row->outcome.seconds / best,
               fmt::format("{}: {}", time_text(row->outcome.seconds), to_string(row->candidate->point)));
    text += fmt::format("<div><p class=soft>{}</p>{}</div>", escaped(group), map.svg(group));
  }
  return text + "</div>";
}

std::string table(const TuneReport& report, const std::vector<Row>& rows) {
  std::string text =
      "<div class=wide><table><tr><th>rank</th><th>measured</th><th>to the "
      "best</th><th>model</th><th>schedule</th></tr>";
  const double best = rows.empty() ? 0 : rows.front().outcome.seconds;
  for (const Row& row : rows) {
    const bool works = row.outcome.seconds > 0;
    text += fmt::format("<tr class={}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><code>{}</code>{}{}</td></tr>",
                        is_winner(report, row) ? "best"
                        : works                ? "ok"
                                               : "failed",
                        row.candidate->rank + 1, works ? time_text(row.outcome.seconds) : "failed",
                        works ? fmt::format("{:.3f}×", row.outcome.seconds / best) : "",
                        time_text(row.candidate->predicted), escaped(to_string(row.candidate->point)),
                        is_default(report, row) ? " (default)" : "", works ? "" : " " + escaped(row.outcome.fault));
  }
  return text + "</table></div>";
}

std::string refusals(const TuneReport& report) {
  std::string text = "<div class=wide><table><tr><th>schedules</th><th>reason, and one of them</th></tr>";
  for (const RejectionGroup& g : grouped(report.space.rejected))
    text += fmt::format("<tr><td>{}</td><td>{}<br><code>{}</code></td></tr>", g.count, escaped(g.reason),
                        escaped(to_string(g.example)));
  return text + "</table></div>";
}

}  // namespace

void TunePage::add(const TuneCase& c, const DeviceFacts& device, const TuneReport& report) {
  const std::vector<Row> rows = rows_of(report);
  title_ = title_.empty() ? c.text : "several problems";
  std::string& page = parts_;
  page += fmt::format("<h1>{}</h1><p>{}</p><p class=soft>{}; {}</p>\n", escaped(c.text), escaped(c.variant),
                      escaped(device.machine.text()), escaped(device.machine.versions()));
  page += facts(c, report, rows) + "\n";
  page += "<h2>Roofline</h2><p class=soft>Limits as measured on this device; every tensor counted once.</p>" +
          roofline(c, device, report, rows) + "\n";
  page +=
      "<h2>Tiles</h2><p class=soft>The best candidate of each tile of B_q rows and B_k keys: its time over the "
      "winner's.</p>" +
      heat_maps(report, rows) + "\n";
  page += "<h2>Model against measurement</h2>" + model_plot(report, rows) + "\n";
  page += "<h2>Candidates</h2>" + table(report, rows) + "\n";
  page +=
      fmt::format(
          "<h2>Refused before building</h2><p class=soft>{} schedules of the space are not legal for this problem.</p>",
          report.space.rejected.size()) +
      refusals(report);
  page += "\n";
}

std::string TunePage::text() const {
  return fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width,initial-scale=1\"><title>attile tune: "
      "{}</title><style>{}</style></head><body><main>\n"
      "{}</main></body></html>\n",
      escaped(title_), style, parts_);
}

}  // namespace attile::cli
