// The device to tune for: its target, what results are kept under, and what its workers need to know.
#pragma once

#include <string>

#include "autotune/bucket.h"
#include "runtime/device.h"
#include "schedules/target.h"

namespace attile {
inline namespace v1 {

struct DeviceFacts {
  Device device;
  Target target;
  Machine machine;
  std::int64_t last_cache_bytes = 0;  // L2 of a GPU, L3 of a CPU
};

// Of a device of this process. Opens the compiler, whose version is a fact. Throws Error(environment) where it is
// missing.
ATTILE_API DeviceFacts facts_of(Device device);
// The same from a child process, so that this one has no CUDA driver started and may fork workers. For a CPU as
// facts_of.
ATTILE_API DeviceFacts facts_from_child(Device device);

}  // namespace v1
}  // namespace attile
