// Element types of tensors and the conversions between them that the host needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

enum class DType : std::uint8_t { float32, bfloat16, float16, int32, int64, boolean };

ATTILE_API std::string_view to_string(DType type);
// Throws Error(argument) for an unknown name; the text lists the known ones.
ATTILE_API DType dtype_from_string(std::string_view name);

constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::float32: case DType::int32: return 4;
    case DType::bfloat16: case DType::float16: return 2;
    case DType::int64: return 8;
    case DType::boolean: return 1;
  }
  return 0;
}
constexpr bool is_float(DType type) {
  return type == DType::float32 || type == DType::bfloat16 || type == DType::float16;
}

// Round to nearest even; NaN stays NaN, overflow becomes infinity.
ATTILE_API std::uint16_t to_bfloat16(float value);
ATTILE_API float from_bfloat16(std::uint16_t bits);
ATTILE_API std::uint16_t to_float16(float value);
ATTILE_API float from_float16(std::uint16_t bits);

// One element at `address` as double (boolean: 0 or 1), and back with rounding.
ATTILE_API double read_element(DType type, const void* address);
ATTILE_API void write_element(DType type, void* address, double value);

}  // namespace v1
}  // namespace attile
