// The recorded cases: tests/cases/*.json, which cli/case_file.h reads.
#pragma once

#include <string>
#include <vector>

namespace attile::test {

// Sorted.
std::vector<std::string> case_paths();

}  // namespace attile::test
