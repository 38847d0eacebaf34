// Strict reading of YAML: every fault is Error(argument) at file:line:column. For schedules/ and autotune/.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attile {
inline namespace v1 {

class YamlReader {
 public:
  explicit YamlReader(std::string file) : file_(std::move(file)) {}

  // The one document of `text`.
  YAML::Node load(std::string_view text) const;

  [[noreturn]] void fail(const YAML::Node& at, const std::string& what, const std::string& remedy = {}) const;

  // The entries of a mapping in order. Repeated keys are refused.
  std::vector<std::pair<YAML::Node, YAML::Node>> mapping(const YAML::Node& node, const std::string& what) const;
  std::vector<YAML::Node> sequence(const YAML::Node& node, const std::string& what) const;
  std::string scalar(const YAML::Node& node, const std::string& what) const;
  std::int64_t integer(const YAML::Node& node, const std::string& what) const;
  double number(const YAML::Node& node, const std::string& what) const;
  // The index of the node's text in `words`.
  std::size_t one_of(const YAML::Node& node, const std::string& what, const std::vector<std::string>& words) const;

 private:
  std::string file_;
};

}  // namespace v1
}  // namespace attile
