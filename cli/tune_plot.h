// Small figures as SVG text, in the colours of the page around them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace attile::cli {

// With &, <, > and quotes spelled out.
std::string escaped(const std::string& text);

struct Axis {
  double from = 0, to = 1;
  bool log = false;
};

class Plot {
 public:
  Plot(Axis x, Axis y, std::string x_name, std::string y_name);
  void line(const std::vector<std::pair<double, double>>& points, const std::string& colour);
  // `tip` shows when the pointer rests on it.
  void dot(double x, double y, const std::string& colour, double radius, const std::string& tip);
  void label(double x, double y, const std::string& text);
  std::string svg(const std::string& title) const;

 private:
  double at_x(double x) const;
  double at_y(double y) const;
  Axis x_, y_;
  std::string x_name_, y_name_, body_;
};

class HeatMap {
 public:
  HeatMap(std::string x_name, std::string y_name) : x_name_(std::move(x_name)), y_name_(std::move(y_name)) {}
  // `value` from 1, the best, upwards.
  void cell(int x, int y, double value, const std::string& tip);
  std::string svg(const std::string& title) const;

 private:
  std::string x_name_, y_name_;
  std::map<std::pair<int, int>, std::pair<double, std::string>> cells_;  // by (y, x)
};

}  // namespace attile::cli
