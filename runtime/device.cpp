#include "runtime/device.h"

#include <fmt/format.h>

#include <charconv>

#include "dsl/error.h"
#include "runtime/cuda_device.h"

namespace attile {
inline namespace v1 {

Device parse_device(std::string_view text, std::string_view where) {
  if (text == "auto") return {cuda_device_count() > 0 ? Device::Kind::cuda : Device::Kind::cpu, 0};
  if (text == "cpu") return {};
  if (text == "cuda") return {Device::Kind::cuda, 0};
  constexpr std::string_view prefix = "cuda:";
  if (text.starts_with(prefix)) {
    std::string_view digits = text.substr(prefix.size());
    Device device{Device::Kind::cuda, 0};
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
    if (error == std::errc() && end == digits.data() + digits.size() && device.index >= 0) return device;
  }
  throw Error(ErrorKind::argument, std::string(where), fmt::format("\"{}\" is not a device", text),
              "known are auto, cpu, cuda and cuda:i");
}

std::string to_string(Device device) {
  return device.kind == Device::Kind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

}  // namespace v1
}  // namespace attile
