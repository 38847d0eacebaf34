// Schedules as YAML, and the files that hold, for one target, the search space and the best known schedules.
// Every parse is strict: an unknown or repeated key, a wrong type or a value out of range is Error(argument)
// whose text starts "file:line:column".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/schedule.h"

namespace attile {
inline namespace v1 {

// A mapping of Schedule's fields by their names. A field that is left out keeps Schedule's initial value.
// `file` is only named in errors.
ATTILE_API Schedule parse_schedule(std::string_view text, const std::string& file);
ATTILE_API std::string to_yaml(const Schedule& s);

// Values to try for each field; the space is their product, and fields left out keep their initial value.
struct ScheduleSpace {
  struct Choice {
    std::string field;
    std::vector<std::string> values;  // as YAML writes them
    bool operator==(const Choice&) const = default;
  };
  std::vector<Choice> choices;
  bool operator==(const ScheduleSpace&) const = default;

  // Every schedule of the space, the last field varying fastest.
  ATTILE_API std::vector<Schedule> all() const;
};

// The problems that a known schedule is meant for; what is left out matches everything.
struct ScheduleMatch {
  std::vector<DType> dtype;                            // all operands of products are of one of these
  std::int64_t head_dim_from = 1, head_dim_to = 1024;  // the largest head dim
  std::optional<bool> few_rows;                        // rows: few | many
  std::optional<bool> masked;                          // the algorithm hides positions
  std::optional<bool> grouped;                         // several query heads per kv head
  bool operator==(const ScheduleMatch&) const = default;

  ATTILE_API bool matches(const Algorithm& a, const Problem& p) const;
};

struct KnownSchedule {
  std::string name;
  ScheduleMatch match;
  Schedule schedule;
  double gflops = 0;     // measured; 0 if not yet
  std::string measured;  // on what: problem and machine
  bool operator==(const KnownSchedule&) const = default;
};

struct ScheduleFile {
  std::string target;
  std::vector<ScheduleSpace> spaces;
  std::vector<KnownSchedule> best;  // the first that matches is the best known
  bool operator==(const ScheduleFile&) const = default;
};
ATTILE_API ScheduleFile parse_schedule_file(std::string_view text, const std::string& file);
ATTILE_API std::string to_yaml(const ScheduleFile& f);

}  // namespace v1
}  // namespace attile
