// The shipped schedule files: which space a target has, and what is best known for a problem.
#pragma once

#include <vector>

#include "schedules/schedule_yaml.h"

namespace attile {
inline namespace v1 {

// The file of the target, or of the shipped target nearest to it. Throws Error(unsupported) where there is none.
ATTILE_API const ScheduleFile& schedule_file(const Target& t);

// The best known entry for the problem, as its file has it; null without one.
ATTILE_API const KnownSchedule* best_known(const Algorithm& a, const Problem& p, const Target& t);

// Every schedule of the target's space that is legal for the problem, each once, in the order of the file.
ATTILE_API std::vector<Schedule> legal_schedules(const Algorithm& a, const Problem& p, const Target& t);

}  // namespace v1
}  // namespace attile
