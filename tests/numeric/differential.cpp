// Random attention calls (variants, shapes, strides, types, schedules) against `evaluate`, guard pages around every
// tensor. ATTILE_DIFFERENTIAL=first:count runs other seeds than the usual 2,000.
#include <cstdlib>
#include <string>

#include "dsl/error.h"
#include "tests/numeric/problem_case.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

struct Seeds { std::uint64_t first = 1, count = 2000; };

Seeds seeds_from_environment() {
  Seeds seeds;
  if (const char* text = std::getenv("ATTILE_DIFFERENTIAL")) {
    const std::string value(text);
    const auto colon = value.find(':');
    seeds.first = std::stoull(value.substr(0, colon));
    if (colon != std::string::npos) seeds.count = std::stoull(value.substr(colon + 1));
  }
  return seeds;
}

}  // namespace

TEST_CASE("random attention calls agree with the untiled double reference", "[differential]") {
  const Seeds seeds = seeds_from_environment();
  std::uint64_t ran = 0, illegal = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const ProblemCase c = random_case(seed);
    std::string difference;
    try {
      difference = run_and_compare(c);
      ++ran;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::unsupported && e.message().find("is not legal") != std::string::npos) {
        ++illegal;
        continue;
      }
      difference = c.describe() + ": " + e.what();
    }
    INFO(difference);
    CHECK(difference.empty());
  }
  INFO(ran << " cases ran, " << illegal << " drew an illegal schedule");
  CHECK(illegal * 10 < seeds.count);
}
