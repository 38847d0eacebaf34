// Results as schedule files and back: what is exported has the form of the shipped files, and what is imported is
// preferred to them.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "autotune/results.h"
#include "schedules/schedule_yaml.h"

namespace attile {
inline namespace v1 {

// What a schedule file says of problems such as this one: "{dtype: bfloat16, head_dim: 64, rows: many, masked: true,
// …}".
ATTILE_API Point match_of(const Algorithm& a, const Problem& p);

// The shipped file of the machine's target with the results before its own schedules. Of results that such a file
// cannot tell apart (lengths, modifiers) the one with most work stays; a head dim also serves those below it down to
// the next result. Winners with a fixed number of parts (one part counts for few rows only) leave it to the call where
// that was tried too. `results` are those of the store.
ATTILE_API ScheduleFile exported(std::span<const TuneResult> results, const ResultStore& store,
                                 const ScheduleFile& shipped);

// The imported schedules of a machine; none without a file, or with a warning where it is not whole.
ATTILE_API std::optional<ScheduleFile> imported(const std::string& folder, const Machine& machine);
// Keeps them. Throws Error(argument) for a file of another target or an illegal text, Error(environment) where it
// cannot be written.
ATTILE_API std::size_t import_file(const std::string& path, const std::string& folder, const Machine& machine);
ATTILE_API std::string imported_path(const std::string& folder, const Machine& machine);

}  // namespace v1
}  // namespace attile
