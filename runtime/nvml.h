// What NVIDIA's management library (libnvidia-ml.so.1, part of the driver) tells of a GPU. Opened at the first
// question; where it is missing or refuses, nothing is known and nothing fails.
#pragma once

#include <optional>
#include <string>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

// The power that the board may draw, in watts; `uuid` as CudaDevice has it.
ATTILE_API std::optional<int> gpu_power_limit_w(const std::string& uuid);

}  // namespace v1
}  // namespace attile
