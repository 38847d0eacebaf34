#include "cli/tune_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace attile::cli {
namespace {

constexpr double width = 480, height = 320, left = 56, right = 16, top = 16, bottom = 44;

double share(const Axis& axis, double value) {
  const double s = axis.log ? std::log(value / axis.from) / std::log(axis.to / axis.from)
                            : (value - axis.from) / (axis.to - axis.from);
  return std::clamp(std::isfinite(s) ? s : 0.0, 0.0, 1.0);
}

// A logarithmic axis has two ends above 0 and apart, whatever was measured; a figure of nothing has any two.
Axis drawable(Axis axis) {
  constexpr double least = 1e-30, most = 1e30;
  if (!axis.log) return axis;
  axis.from = axis.from >= least ? std::min(axis.from, most / 10) : axis.to >= least ? axis.to / 100 : 1;
  axis.from = std::clamp(std::isfinite(axis.from) ? axis.from : 1.0, least, most / 10);
  axis.to = axis.to > axis.from ? std::min(axis.to, most) : 10 * axis.from;
  return axis;
}

// Powers of ten within a logarithmic axis, with 2 and 5 where those are few, and not all of very many.
std::vector<double> ticks(const Axis& axis) {
  constexpr int most_ticks = 12;
  std::vector<double> out;
  if (!axis.log) return {axis.from, axis.to};
  const bool fine = axis.to / axis.from < 200;
  const int first = static_cast<int>(std::floor(std::log10(axis.from))),
            last = static_cast<int>(std::floor(std::log10(axis.to)));
  for (int power = first; power <= last; power += (last - first) / most_ticks + 1)
    for (const double step : {1.0, 2.0, 5.0})
      if (const double x = step * std::pow(10, power); (fine || step == 1) && x >= axis.from && x <= axis.to)
        out.push_back(x);
  return out;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

Plot::Plot(Axis x, Axis y, std::string x_name, std::string y_name)
    : x_(drawable(x)), y_(drawable(y)), x_name_(std::move(x_name)), y_name_(std::move(y_name)) {}

double Plot::at_x(double x) const { return left + share(x_, x) * (width - left - right); }
double Plot::at_y(double y) const { return height - bottom - share(y_, y) * (height - top - bottom); }

void Plot::line(const std::vector<std::pair<double, double>>& points, const std::string& colour) {
  std::string path;
  for (const auto& [x, y] : points) path += fmt::format("{:.1f},{:.1f} ", at_x(x), at_y(y));
  body_ += fmt::format("<polyline points=\"{}\" fill=none style=\"stroke:{}\" stroke-width=2 />", path, colour);
}

void Plot::dot(double x, double y, const std::string& colour, double radius, const std::string& tip) {
  body_ += fmt::format("<circle cx={:.1f} cy={:.1f} r={} style=\"fill:{}\" fill-opacity=.8><title>{}</title></circle>",
                       at_x(x), at_y(y), radius, colour, escaped(tip));
}

void Plot::label(double x, double y, const std::string& text) {
  const bool late = share(x_, x) > 0.5;
  body_ += fmt::format("<text x={:.1f} y={:.1f} text-anchor={}>{}</text>", at_x(x), at_y(y) - 6, late ? "end" : "start",
                       escaped(text));
}

std::string Plot::svg(const std::string& title) const {
  std::string out =
      fmt::format("<svg viewBox=\"0 0 {} {}\" role=img aria-label=\"{}\">", width, height, escaped(title));
  for (const double x : ticks(x_))
    out += fmt::format(
        "<line x1={0:.1f} x2={0:.1f} y1={1} y2={2} style=\"stroke:var(--line)\" /><text x={0:.1f} y={3} "
        "text-anchor=middle>{4:.4g}</text>",
        at_x(x), top, height - bottom, height - bottom + 16, x);
  for (const double y : ticks(y_))
    out += fmt::format(
        "<line x1={1} x2={2} y1={0:.1f} y2={0:.1f} style=\"stroke:var(--line)\" /><text x={3} y={4:.1f} "
        "text-anchor=end>{5:.4g}</text>",
        at_y(y), left, width - right, left - 6, at_y(y) + 4, y);
  out += fmt::format("<text x={} y={} text-anchor=end>{}</text><text x=4 y=12>{}</text>", width - right, height - 8,
                     escaped(x_name_), escaped(y_name_));
  return out + body_ + "</svg>";
}

void HeatMap::cell(int x, int y, double value, const std::string& tip) { cells_[{y, x}] = {value, tip}; }

std::string HeatMap::svg(const std::string& title) const {
  std::set<int> xs, ys;
  for (const auto& [at, cell] : cells_) ys.insert(at.first), xs.insert(at.second);
  constexpr double side = 56, tall = 32, margin = 48;
  const double w = margin + side * static_cast<double>(xs.size()) + 4,
               h = 24 + tall * static_cast<double>(ys.size()) + 4;
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" style=\"max-width:{0}px\" role=img aria-label=\"{2}\"><text x=2 "
      "y=14>{3}\\{4}</text>",
      w, h, escaped(title), escaped(y_name_), escaped(x_name_));
  double column = margin;
  for (const int x : xs)
    out += fmt::format("<text x={:.1f} y=14 text-anchor=middle>{}</text>", column + side / 2, x), column += side;
  double row = 24;
  for (const int y : ys) {
    out += fmt::format("<text x={} y={:.1f} text-anchor=end>{}</text>", margin - 6, row + tall / 2 + 4, y);
    column = margin;
    for (const int x : xs) {
      if (const auto found = cells_.find({y, x}); found != cells_.end()) {
        const double worse = std::clamp((found->second.first - 1) / 0.5, 0.0, 1.0);  // red from half as long again
        out += fmt::format(
            "<g><rect x={:.1f} y={:.1f} width={} height={} rx=3 fill=\"hsl({:.0f} 55% 42%)\" /><text x={:.1f} y={:.1f} "
            "text-anchor=middle style=\"fill:#fff\">{:.2f}</text><title>{}</title></g>",
            column, row, side - 2, tall - 2, 150 * (1 - worse), column + side / 2 - 1, row + tall / 2 + 3,
            found->second.first, escaped(found->second.second));
      }
      column += side;
    }
    row += tall;
  }
  return out + "</svg>";
}

}  // namespace attile::cli
