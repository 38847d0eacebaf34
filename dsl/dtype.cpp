#include "dsl/dtype.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {

namespace {

constexpr std::array<DType, 6> all_types{DType::float32, DType::bfloat16, DType::float16,
                                         DType::int32,   DType::int64,    DType::boolean};

// double to float with the last bit set when inexact, so that a second rounding to 16 bits is the only one.
float sticky_float(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <typename T>
T load(const void* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}
template <typename T>
void store(void* address, T value) {
  std::memcpy(address, &value, sizeof value);
}

template <typename T>
T to_integer(double value) {
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(std::nearbyint(value));
}

}  // namespace

std::string_view to_string(DType type) {
  switch (type) {
    case DType::float32: return "float32";
    case DType::bfloat16: return "bfloat16";
    case DType::float16: return "float16";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
    case DType::boolean: return "boolean";
  }
  return "unknown";
}

DType dtype_from_string(std::string_view name) {
  std::string known;
  for (DType type : all_types) {
    if (to_string(type) == name) return type;
    known += (known.empty() ? "" : ", ") + std::string(to_string(type));
  }
  throw Error(ErrorKind::argument, "dtype", fmt::format("\"{}\" is not a known element type", name),
              "known are " + known);
}

std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float from_bfloat16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and more
  if (magnitude < 0x38800000u) {
    // Below the smallest normal number the grid is 2^-24; nearbyint rounds to even.
    const float steps = std::bit_cast<float>(magnitude) * 16777216.0f;
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(steps)));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float from_float16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) / 16777216.0f));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

double read_element(DType type, const void* address) {
  switch (type) {
    case DType::float32: return load<float>(address);
    case DType::bfloat16: return from_bfloat16(load<std::uint16_t>(address));
    case DType::float16: return from_float16(load<std::uint16_t>(address));
    case DType::int32: return load<std::int32_t>(address);
    case DType::int64: return static_cast<double>(load<std::int64_t>(address));
    case DType::boolean: return load<std::uint8_t>(address) != 0 ? 1 : 0;
  }
  return 0;
}

void write_element(DType type, void* address, double value) {
  switch (type) {
    case DType::float32: return store(address, static_cast<float>(value));
    case DType::bfloat16: return store(address, to_bfloat16(sticky_float(value)));
    case DType::float16: return store(address, to_float16(sticky_float(value)));
    case DType::int32: return store(address, to_integer<std::int32_t>(value));
    case DType::int64: return store(address, to_integer<std::int64_t>(value));
    case DType::boolean: return store(address, static_cast<std::uint8_t>(value != 0 ? 1 : 0));
  }
}

}  // namespace v1
}  // namespace attile
