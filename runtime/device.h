// What a call runs on: the CPU, or the CUDA device of an ordinal. A plain value; whether the device is there is asked
// where it is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;  // of a CUDA device, as CUDA_VISIBLE_DEVICES counts them

  bool operator==(const Device&) const = default;
};

// "cpu", "cuda" (the first device), "cuda:1", or "auto": the first CUDA device, else the CPU. Throws Error(argument)
// for anything else, naming `where`.
ATTILE_API Device parse_device(std::string_view text, std::string_view where = "device");

// "cpu", "cuda:1".
ATTILE_API std::string to_string(Device device);

}  // namespace v1
}  // namespace attile
