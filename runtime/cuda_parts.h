// Into how many parts a stream is cut where the schedule leaves it open (splits: 0), so that few tasks keep a GPU busy.
#pragma once

#include <cstdint>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

// `tasks` without parts, each over `tiles` tiles of the stream; `places`: tasks that the device runs at a time.
ATTILE_API std::int64_t cuda_parts(std::int64_t tasks, std::int64_t tiles, std::int64_t places);

}  // namespace v1
}  // namespace attile
