// What a text is compiled for, which needs no compiler to decide.
#include <array>

#include "dsl/error.h"
#include "runtime/nvrtc_compiler.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

constexpr std::array known{75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

ErrorKind refused(std::string_view asked, std::span<const int> chips = known) {
  try {
    compiled_arch(asked, chips, "13.0");
  } catch (const Error& error) {
    return error.kind();
  }
  throw std::runtime_error("accepted");
}

}  // namespace

TEST_CASE("a chip NVRTC knows is compiled for exactly") {
  for (const char* chip : {"sm_75", "sm_80", "sm_90", "sm_90a", "sm_100f", "sm_121a"})
    CHECK(compiled_arch(chip, known, "13.0") == chip);
}

TEST_CASE("a chip newer than NVRTC knows gets the PTX of the newest below it", "[C55]") {
  CHECK(compiled_arch("sm_999", known, "13.0") == "compute_121");
  CHECK(compiled_arch("sm_130a", known, "13.0") == "compute_121");
  CHECK(compiled_arch("sm_107", known, "13.0") == "compute_103");
  constexpr std::array old{52, 70, 80};
  CHECK(compiled_arch("sm_121a", old, "11.0") == "compute_80");
  CHECK(compiled_arch("sm_90", old, "11.0") == "compute_80");
}

TEST_CASE("a chip older than NVRTC knows and a text that is none are refused") {
  CHECK(refused("sm_70") == ErrorKind::unsupported);
  CHECK(refused("sm_80", {}) == ErrorKind::unsupported);
  for (const char* text : {"", "sm_", "sm_x", "90", "sm_9", "sm_90b", "sm_90aa", "sm_-90", "compute_90",
                           "sm_99999999999", "sm_90 ", "SM_90"}) {
    CAPTURE(text);
    CHECK(refused(text) == ErrorKind::argument);
  }
}

TEST_CASE("flags of a compile are in one table") {
  const auto flags = cuda_flags("sm_90a");
  CHECK(flags ==
        std::vector<std::string>{"--gpu-architecture=sm_90a", "--std=c++17", "-default-device", "--fmad=false", "--ptxas-options=-v"});
}
