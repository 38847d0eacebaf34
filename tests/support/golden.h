// Texts that are kept: tests/golden/<name>.txt holds what the generator wrote when someone last looked at it.
// With ATTILE_UPDATE_GOLDEN=1 in the environment the files are written anew instead of compared.
#pragma once

#include <string>
#include <vector>

namespace attile::test {

// "" if the file holds exactly `text`, else the first line that differs, or that the file is missing and how to write it.
std::string golden_mismatch(const std::string& name, const std::string& text);

// The names that have a file, sorted.
std::vector<std::string> golden_names();

}  // namespace attile::test
