// Catch2 2.13 and 3.x behind one include, and how a test says that it cannot run here. Own matchers and reporters
// differ between the two and are avoided.
#pragma once

#include <string>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& text) { return Contains(text); }
}  // namespace Catch::Matchers
#endif

namespace attile::test {

#if __has_include(<catch2/catch_all.hpp>)
using Catch::Approx;
#else
using Catch::Detail::Approx;
#endif
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

// Marks the running test case as skipped, once it has ended without a failed check.
void record_skip(std::string reason);

}  // namespace attile::test

// Ends the test case; the reason says what is missing: ATTILE_SKIP("no CUDA device").
#define ATTILE_SKIP(reason)              \
  do {                                   \
    ::attile::test::record_skip(reason); \
    return;                              \
  } while (false)
