#include "tests/support/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace attile::test {
namespace {

const std::filesystem::path folder = ATTILE_SOURCE_DIR "/tests/golden";

bool updating() {
  const char* value = std::getenv("ATTILE_UPDATE_GOLDEN");
  return value != nullptr && std::string(value) == "1";
}

std::string first_difference(const std::string& kept, const std::string& text) {
  std::istringstream kept_lines(kept), lines(text);
  std::string kept_line, line;
  for (int number = 1;; ++number) {
    const bool has_kept = static_cast<bool>(std::getline(kept_lines, kept_line)), has = static_cast<bool>(std::getline(lines, line));
    if (!has_kept && !has) return "the last line ends differently";
    if (has_kept != has || kept_line != line)
      return fmt::format("line {} is\n  {}\nand was\n  {}", number, has ? line : "(the end)", has_kept ? kept_line : "(the end)");
  }
}

}  // namespace

std::string golden_mismatch(const std::string& name, const std::string& text) {
  const std::filesystem::path path = folder / (name + ".txt");
  if (updating()) {
    std::filesystem::create_directories(folder);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    if (!(file << text << std::flush)) throw std::runtime_error("cannot write " + path.string());
    return {};
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return path.string() + " is missing; ATTILE_UPDATE_GOLDEN=1 writes it";
  const std::string kept{std::istreambuf_iterator<char>(file), {}};
  return kept == text ? "" : path.string() + ": " + first_difference(kept, text) + "\nATTILE_UPDATE_GOLDEN=1 writes all anew";
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace attile::test
