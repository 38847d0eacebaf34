#include "dsl/dtype.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "dsl/error.h"
#include "dsl/philox.h"
#include "tests/support/catch_compat.h"

using namespace attile;

TEST_CASE("every 16-bit number survives the way to float and back") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const float half = from_float16(b), brain = from_bfloat16(b);
    if (std::isnan(half))
      REQUIRE(std::isnan(from_float16(to_float16(half))));
    else
      REQUIRE(to_float16(half) == b);
    if (std::isnan(brain))
      REQUIRE(std::isnan(from_bfloat16(to_bfloat16(brain))));
    else
      REQUIRE(to_bfloat16(brain) == b);
  }
}

TEST_CASE("conversions round to nearest, ties to even") {
  const float infinite = std::numeric_limits<float>::infinity();
  CHECK(to_float16(65519.0f) == 0x7bff);
  CHECK(to_float16(65520.0f) == 0x7c00);
  CHECK(to_float16(-infinite) == 0xfc00);
  CHECK(to_float16(1.0f + 0x1p-11f) == 0x3c00);
  CHECK(to_float16(1.0f + 3 * 0x1p-11f) == 0x3c02);
  CHECK(to_float16(0x1p-25f) == 0);
  CHECK(to_float16(0x1.8p-24f) == 2);
  CHECK(to_float16(0x1.ffffp-15f) == 0x0400);  // rounds up into the normal numbers
  CHECK(to_bfloat16(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(to_bfloat16(1.0f + 3 * 0x1p-8f) == 0x3f82);
  CHECK(to_bfloat16(std::numeric_limits<float>::max()) == 0x7f80);
}

TEST_CASE("elements are written with one rounding only") {
  // Just above a tie of bfloat16, but within half a float32 step of it.
  std::uint16_t bits = 0;
  write_element(DType::bfloat16, &bits, 1.0 + 0x1p-8 + 0x1p-40);
  CHECK(bits == 0x3f81);
  write_element(DType::float16, &bits, 1.0 + 0x1p-11 - 0x1p-40);
  CHECK(bits == 0x3c00);
  CHECK(read_element(DType::float16, &bits) == 1.0);
}

TEST_CASE("integers and booleans are written and read as numbers") {
  std::int64_t wide = 0;
  write_element(DType::int64, &wide, -3.0);
  CHECK(wide == -3);
  CHECK(read_element(DType::int64, &wide) == -3.0);
  std::int32_t narrow = 0;
  write_element(DType::int32, &narrow, 1e12);
  CHECK(narrow == std::numeric_limits<std::int32_t>::max());
  std::uint8_t flag = 7;
  CHECK(read_element(DType::boolean, &flag) == 1.0);
  write_element(DType::boolean, &flag, 0);
  CHECK(flag == 0);
}

TEST_CASE("type names go both ways and unknown ones are refused with the list") {
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16, DType::int32, DType::int64, DType::boolean})
    CHECK(dtype_from_string(to_string(type)) == type);
  try {
    dtype_from_string("fp8");
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(std::string(e.what()) ==
          "dtype: \"fp8\" is not a known element type (known are float32, bfloat16, float16, int32, int64, boolean)");
  }
}

TEST_CASE("Philox gives the published known answers") {
  // kat_vectors of Random123, philox4x32 with 10 rounds.
  CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint32_t ones = 0xffffffff;
  CHECK(philox4x32_10({ones, ones, ones, ones}, {ones, ones}) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a dropout word takes one word of the block of its four keys") {
  const PhiloxBlock block = philox4x32_10({5, 3, 7, 2}, {0x89abcdef, 0x01234567});
  for (std::size_t j = 0; j < 4; ++j)
    CHECK(dropout_word(0x0123456789abcdef, 5, 3, 7, 8 + static_cast<std::int64_t>(j)) == block[j]);
}
