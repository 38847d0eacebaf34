#include "autotune/point.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "dsl/error.h"
#include "schedules/schedule_fields.h"

namespace attile {
inline namespace v1 {
namespace {

Point all_fields(const Schedule& s) {
  Point point;
  for (const ScheduleField& f : schedule_fields()) point.emplace_back(f.name, f.write(s));
  return point;
}

bool is_word(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text)
    if (!(c == '_' || c == '-' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
          (c >= 'A' && c <= 'Z')))
      return false;
  return true;
}

}  // namespace

std::string to_string(const Point& point) {
  std::string out = "{";
  for (const auto& [field, value] : point) out += (out.size() > 1 ? ", " : "") + field + ": " + value;
  return out + "}";
}

Point parse_point(std::string_view text, const std::string& where) {
  const auto refuse = [&] {
    throw Error(ErrorKind::argument, where, fmt::format("'{}' is no mapping of fields in one line", text));
  };
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') refuse();
  text = text.substr(1, text.size() - 2);
  Point point;
  while (!text.empty()) {
    const std::size_t comma = text.find(", ");
    const std::string_view entry = text.substr(0, comma);
    const std::size_t colon = entry.find(": ");
    if (colon == std::string_view::npos || !is_word(entry.substr(0, colon)) || !is_word(entry.substr(colon + 2)))
      refuse();
    point.emplace_back(entry.substr(0, colon), entry.substr(colon + 2));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 2);
  }
  return point;
}

std::uint64_t hash_of(const Point& point) {
  const std::string text = to_string(point);
  return XXH3_64bits(text.data(), text.size());
}

const std::string* value_of(const Point& point, std::string_view field) {
  for (const auto& [name, value] : point)
    if (name == field) return &value;
  return nullptr;
}

const Point& initial_point() {
  static const Point point = all_fields(Schedule{});
  return point;
}

Point point_of(const Schedule& s) {
  Point point = all_fields(s), differing;
  for (std::size_t i = 0; i < point.size(); ++i)
    if (point[i].second != initial_point()[i].second) differing.push_back(std::move(point[i]));
  return differing;
}

// As parse_schedule reads the point's text, without a document around it: a space has thousands of points.
Schedule schedule_of(const Point& point, const std::string& where) {
  const YamlReader reader(where);
  Schedule s;
  for (const auto& [field, value] : point) schedule_field(reader, YAML::Node(field)).read(reader, YAML::Node(value), s);
  return s;
}

}  // namespace v1
}  // namespace attile
