#include "tests/support/cases.h"

#include <algorithm>
#include <filesystem>

namespace attile::test {

std::vector<std::string> case_paths() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(ATTILE_SOURCE_DIR "/tests/cases"))
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace attile::test
