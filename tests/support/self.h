// Runs this test program again, in a fresh process with other environment variables and a time limit.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace attile::test {

struct SelfRun {
  int exit_code = 0;    // minus the signal where one ended it; -14 (SIGALRM) is the time limit
  std::string output;   // stdout and stderr together
};

// `test` is a Catch2 test specification, "a name" or "a beginning*". A variable with an empty value is unset.
SelfRun run_self(const std::string& test, const std::vector<std::pair<std::string, std::string>>& environment, int limit_seconds);

// True in a process that run_self started.
bool in_self_run();

}  // namespace attile::test
