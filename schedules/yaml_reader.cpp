#include "schedules/yaml_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {
namespace {

std::string position(const std::string& file, const YAML::Mark& mark) {
  if (mark.is_null()) return file;
  return fmt::format("{}:{}:{}", file, mark.line + 1, mark.column + 1);
}

const char* words(const YAML::Node& node) {
  return node.IsMap() ? "a mapping" : node.IsSequence() ? "a list" : node.IsScalar() ? "a single value" : "empty";
}

}  // namespace

YAML::Node YamlReader::load(std::string_view text) const {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1) fail(documents[1], "a second document begins here", "keep one document a file");
    return documents.empty() ? YAML::Node() : documents.front();
  } catch (const YAML::Exception& e) {
    throw Error(ErrorKind::argument, position(file_, e.mark), fmt::format("this is not YAML: {}", e.msg));
  }
}

void YamlReader::fail(const YAML::Node& at, const std::string& what, const std::string& remedy) const {
  throw Error(ErrorKind::argument, position(file_, at.Mark()), what, remedy);
}

std::vector<std::pair<YAML::Node, YAML::Node>> YamlReader::mapping(const YAML::Node& node,
                                                                   const std::string& what) const {
  if (!node.IsMap()) fail(node, fmt::format("{} is a mapping, but here it is {}", what, words(node)));
  std::vector<std::pair<YAML::Node, YAML::Node>> entries;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!seen.insert(scalar(entry.first, "a key")).second)
      fail(entry.first, fmt::format("the key '{}' is repeated", entry.first.Scalar()));
    entries.emplace_back(entry.first, entry.second);
  }
  return entries;
}

std::vector<YAML::Node> YamlReader::sequence(const YAML::Node& node, const std::string& what) const {
  if (!node.IsSequence()) fail(node, fmt::format("{} is a list, but here it is {}", what, words(node)));
  std::vector<YAML::Node> entries;
  for (const YAML::Node& entry : node) entries.push_back(entry);
  return entries;
}

std::string YamlReader::scalar(const YAML::Node& node, const std::string& what) const {
  if (!node.IsScalar()) fail(node, fmt::format("{} is a single value, but here it is {}", what, words(node)));
  return node.Scalar();
}

std::int64_t YamlReader::integer(const YAML::Node& node, const std::string& what) const {
  const std::string text = scalar(node, what);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) fail(node, fmt::format("{} {} is out of range", what, text));
  if (error != std::errc() || end != text.data() + text.size())
    fail(node, fmt::format("{} is a whole number, but here it is '{}'", what, text));
  return value;
}

double YamlReader::number(const YAML::Node& node, const std::string& what) const {
  const std::string text = scalar(node, what);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(node, fmt::format("{} is a number, but here it is '{}'", what, text));
  return value;
}

std::size_t YamlReader::one_of(const YAML::Node& node, const std::string& what,
                               const std::vector<std::string>& list) const {
  const std::string text = scalar(node, what);
  const auto found = std::find(list.begin(), list.end(), text);
  if (found == list.end())
    fail(node, fmt::format("{} is {}, but here it is '{}'", what, fmt::join(list, " or "), text));
  return static_cast<std::size_t>(found - list.begin());
}

}  // namespace v1
}  // namespace attile
