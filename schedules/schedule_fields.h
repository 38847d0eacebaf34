// The fields of Schedule by name: the one table behind parsing, printing and search spaces. For schedules/ and autotune/.
#pragma once

#include <span>
#include <string>

#include "schedules/schedule.h"
#include "schedules/yaml_reader.h"

namespace attile {
inline namespace v1 {

struct ScheduleField {
  const char* name;
  void (*read)(const YamlReader& reader, const YAML::Node& value, Schedule& s);
  std::string (*write)(const Schedule& s);
};
// In the order of Schedule's declaration.
std::span<const ScheduleField> schedule_fields();

// The field of that name; an unknown one is an error there.
const ScheduleField& schedule_field(const YamlReader& reader, const YAML::Node& name);

Schedule read_schedule(const YamlReader& reader, const YAML::Node& node);

}  // namespace v1
}  // namespace attile
