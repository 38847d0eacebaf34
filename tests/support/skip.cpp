// Prints "test-skipped: <reason>" at the end of a test case, which ctest reads as Skipped. A test case that also has a
// failed check prints nothing and so stays failed.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include "tests/support/catch_compat.h"

#include <iostream>
#include <set>

namespace attile::test {
namespace {

std::set<std::string> reasons;

#if __has_include(<catch2/catch_all.hpp>)
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

class SkipListener : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo&) override { reasons.clear(); }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (stats.totals.assertions.failed > 0) return;
    for (const std::string& reason : reasons) std::cout << "test-skipped: " << reason << std::endl;
  }
};

CATCH_REGISTER_LISTENER(SkipListener)

}  // namespace

void record_skip(std::string reason) { reasons.insert(std::move(reason)); }

}  // namespace attile::test
