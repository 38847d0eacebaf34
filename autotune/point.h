// A way to build a kernel as the search and the store see it: fields by name, nothing more. A new field of schedules,
// or a family of kernels with fields of its own, is data to them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/schedule.h"

namespace attile {
inline namespace v1 {

// Field and value as YAML writes them.
using Point = std::vector<std::pair<std::string, std::string>>;

// "{tile_rows: 64, lanes: rows}": YAML in one line, and the order in which points are sorted.
ATTILE_API std::string to_string(const Point& point);
// The reverse. Throws Error(argument) naming `where`.
ATTILE_API Point parse_point(std::string_view text, const std::string& where);
ATTILE_API std::uint64_t hash_of(const Point& point);
// The value of a field; null where the point does not name it.
ATTILE_API const std::string* value_of(const Point& point, std::string_view field);

// The fields in which a schedule differs from Schedule's initial value, in the order of its declaration.
ATTILE_API Point point_of(const Schedule& s);
// Every field of Schedule's initial value.
ATTILE_API const Point& initial_point();
// Fields that are left out have their initial value. Throws Error(argument) for what is no field or no value of it.
ATTILE_API Schedule schedule_of(const Point& point, const std::string& where = "schedule");

}  // namespace v1
}  // namespace attile
