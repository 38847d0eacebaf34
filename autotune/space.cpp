#include "autotune/space.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace attile {
inline namespace v1 {
namespace {

std::vector<Point> product(const ScheduleSpace& space) {
  std::vector<Point> points{Point{}};
  for (const ScheduleSpace::Choice& choice : space.choices) {
    std::vector<Point> next;
    for (const Point& point : points)
      for (const std::string& value : choice.values) {
        next.push_back(point);
        next.back().emplace_back(choice.field, value);
      }
    points = std::move(next);
  }
  return points;
}

class Builder {
 public:
  explicit Builder(const SpaceRules& rules) : rules_(rules) { space_.initial = rules.initial; }

  void add(const Point& raw) {
    Point point = rules_.canonical ? rules_.canonical(raw) : raw;
    if (!seen_.insert(to_string(point)).second) return;
    std::vector<std::string> reasons = rules_.reasons ? rules_.reasons(point) : std::vector<std::string>{};
    if (reasons.empty())
      space_.candidates.push_back({std::move(point), 0, 0});
    else
      space_.rejected.push_back({std::move(point), std::move(reasons)});
  }

  Space finish() {
    if (rules_.predicted)
      for (Candidate& c : space_.candidates) c.predicted = rules_.predicted(c.point);
    std::vector<std::size_t> order(space_.candidates.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return space_.candidates[a].predicted < space_.candidates[b].predicted;
    });
    for (std::size_t i = 0; i < order.size(); ++i) space_.candidates[order[i]].rank = i;
    return std::move(space_);
  }

 private:
  const SpaceRules& rules_;
  Space space_;
  std::set<std::string> seen_;
};

std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Where a value of a field stands among those that the space has; words have no order.
class Scale {
 public:
  explicit Scale(const Space& space) : initial_(space.initial) {
    for (const Candidate& c : space.candidates)
      for (const auto& [field, value] : c.point) values_[field].insert(value);
    for (auto& [field, values] : values_)
      if (const std::string* value = value_of(initial_, field)) values.insert(*value);
    for (const auto& [field, values] : values_) {
      std::vector<double> numbers;
      for (const std::string& value : values)
        if (const auto n = number(value)) numbers.push_back(*n);
      std::sort(numbers.begin(), numbers.end());
      if (numbers.size() == values.size()) numbers_[field] = std::move(numbers);
    }
  }

  // Steps between two points: 1 for another word, the distance among the values for numbers.
  struct Steps {
    int words = 0, numbers = 0, longest = 0;
  };
  Steps between(const Point& a, const Point& b) const {
    Steps steps;
    for (const auto& [field, values] : values_) {
      const std::string *x = value(a, field), *y = value(b, field);
      if (x == nullptr || y == nullptr ? x == y : *x == *y) continue;
      const auto scale = numbers_.find(field);
      if (scale == numbers_.end() || x == nullptr || y == nullptr) {
        ++steps.words;
        continue;
      }
      ++steps.numbers;
      const auto at = [&](const std::string& text) {
        return std::lower_bound(scale->second.begin(), scale->second.end(), *number(text)) - scale->second.begin();
      };
      steps.longest = std::max(steps.longest, static_cast<int>(std::abs(at(*x) - at(*y))));
    }
    return steps;
  }

 private:
  const std::string* value(const Point& point, const std::string& field) const {
    const std::string* own = value_of(point, field);
    return own ? own : value_of(initial_, field);
  }
  Point initial_;
  std::map<std::string, std::set<std::string>> values_;
  std::map<std::string, std::vector<double>> numbers_;
};

std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c < '0' || c > '9')
      out += c;
    else if (!out.ends_with('#'))
      out += '#';
  return out;
}

}  // namespace

std::optional<std::size_t> Space::find(const Point& point) const {
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].point == point) return i;
  return std::nullopt;
}

std::vector<std::size_t> Space::ranked() const {
  std::vector<std::size_t> order(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) order[candidates[i].rank] = i;
  return order;
}

Space make_space(std::span<const ScheduleSpace> choices, const SpaceRules& rules, std::span<const Point> also) {
  Builder builder(rules);
  for (const Point& point : also) builder.add(point);
  for (const ScheduleSpace& space : choices)
    for (const Point& point : product(space)) builder.add(point);
  return builder.finish();
}

std::vector<std::size_t> neighbours(const Space& space, std::size_t of) {
  const Scale scale(space);
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < space.candidates.size(); ++i) {
    if (i == of) continue;
    const Scale::Steps steps = scale.between(space.candidates[of].point, space.candidates[i].point);
    const bool one_word = steps.words == 1 && steps.numbers == 0;
    const bool near_numbers = steps.words == 0 && steps.numbers <= 2 && steps.longest <= 1;
    if (one_word || near_numbers) out.push_back(i);
  }
  return out;
}

std::vector<RejectionGroup> grouped(std::span<const Rejection> rejected) {
  std::vector<RejectionGroup> groups;
  std::map<std::string, std::size_t> known;
  for (const Rejection& r : rejected) {
    const std::string& reason = r.reasons.front();
    const auto [at, fresh] = known.try_emplace(without_numbers(reason), groups.size());
    if (fresh) groups.push_back({reason, r.point, 0});
    ++groups[at->second].count;
  }
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  return groups;
}

}  // namespace v1
}  // namespace attile
