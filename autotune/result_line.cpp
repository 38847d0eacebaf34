// The text of one result: YAML in one line, ended by a checksum over what stands before it.
#include <fmt/format.h>
#include <xxhash.h>

#include <cmath>
#include <cstdlib>

#include "autotune/results.h"
#include "dsl/error.h"
#include "schedules/yaml_reader.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr std::string_view sum_field = ", sum: \"";

std::string checksum(std::string_view text) { return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())); }

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

bool boolean(const YamlReader& reader, const YAML::Node& node, const std::string& what) {
  return reader.one_of(node, what, {"false", "true"}) == 1;
}

Point read_point(const YamlReader& reader, const YAML::Node& node, const std::string& where) {
  return parse_point(reader.scalar(node, "a schedule"), where);
}

void read_bucket(const YamlReader& reader, const YAML::Node& node, TuneResult& r) {
  const std::vector<YAML::Node> numbers = reader.sequence(node, "bucket");
  if (numbers.size() != 3) reader.fail(node, "a bucket has three numbers");
  r.bucket.rows_log2 = static_cast<int>(reader.integer(numbers[0], "rows"));
  r.bucket.keys_log2 = static_cast<int>(reader.integer(numbers[1], "keys"));
  r.bucket.fill_log2 = static_cast<int>(reader.integer(numbers[2], "fill"));
}

void read_shape(const YamlReader& reader, const YAML::Node& node, TuneResult& r) {
  const std::vector<YAML::Node> numbers = reader.sequence(node, "shape");
  if (numbers.size() != 6) reader.fail(node, "a shape has six numbers");
  std::int64_t* const sizes[] = {&r.shape.sequences, &r.shape.heads, &r.shape.kv_heads, &r.shape.rows, &r.shape.keys};
  for (std::size_t i = 0; i < std::size(sizes); ++i) *sizes[i] = reader.integer(numbers[i], "shape");
  r.shape.visible = reader.number(numbers[5], "shape");
}

void read_field(const YamlReader& reader, const std::string& name, const YAML::Node& node, TuneResult& r,
                const std::string& where) {
  if (name == "algorithm")
    r.bucket.algorithm = reader.scalar(node, name);
  else if (name == "problem")
    r.bucket.problem = reader.scalar(node, name);
  else if (name == "bucket")
    read_bucket(reader, node, r);
  else if (name == "shape")
    read_shape(reader, node, r);
  else if (name == "machine")
    r.machine = reader.scalar(node, name);
  else if (name == "versions")
    r.versions = reader.scalar(node, name);
  else if (name == "match")
    r.match = read_point(reader, node, where);
  else if (name == "winner")
    r.winner = read_point(reader, node, where);
  else if (name == "next")
    for (const YAML::Node& each : reader.sequence(node, name)) r.next.push_back(read_point(reader, each, where));
  else if (name == "seconds")
    r.seconds = reader.number(node, name);
  else if (name == "default_seconds")
    r.default_seconds = reader.number(node, name);
  else if (name == "spread")
    r.spread = reader.number(node, name);
  else if (name == "gflops")
    r.gflops = reader.number(node, name);
  else if (name == "noisy")
    r.noisy = boolean(reader, node, name);
  else if (name == "complete")
    r.complete = boolean(reader, node, name);
  else if (name == "when")
    r.when = reader.integer(node, name);
  else if (name != "sum")
    reader.fail(node, fmt::format("a result has no '{}'", name));
}

}  // namespace

// Algorithm and problem stand first: a look-up compares the beginning of the line.
std::string result_line(const TuneResult& r) {
  std::string next;
  for (const Point& point : r.next) next += (next.empty() ? "" : ", ") + quoted(to_string(point));
  std::string line = fmt::format("- {{algorithm: {}, problem: {}, bucket: [{}, {}, {}]", quoted(r.bucket.algorithm),
                                 quoted(r.bucket.problem), r.bucket.rows_log2, r.bucket.keys_log2, r.bucket.fill_log2);
  line += fmt::format(", machine: {}, versions: {}", quoted(r.machine), quoted(r.versions));
  line += fmt::format(", match: {}", quoted(to_string(r.match)));
  line += fmt::format(", winner: {}, next: [{}], seconds: {}, default_seconds: {}, spread: {}, gflops: {}",
                      quoted(to_string(r.winner)), next, r.seconds, r.default_seconds, r.spread, r.gflops);
  const CallShape& s = r.shape;
  line += fmt::format(", shape: [{}, {}, {}, {}, {}, {}]", s.sequences, s.heads, s.kv_heads, s.rows, s.keys, s.visible);
  line += fmt::format(", noisy: {}, complete: {}, when: {}", r.noisy, r.complete, r.when);
  return fmt::format("{}{}{}\"}}", line, sum_field, checksum(line));
}

TuneResult parse_result_line(std::string_view line, const std::string& where) {
  const std::size_t at = line.rfind(sum_field);
  const auto damaged = [&](const char* what) { throw Error(ErrorKind::argument, where, what); };
  if (at == std::string_view::npos || !line.starts_with("- {") ||
      line.substr(at) != fmt::format("{}{}\"}}", sum_field, checksum(line.substr(0, at))))
    damaged("the line is not whole: its checksum differs");
  const YamlReader reader(where);
  TuneResult result;
  const YAML::Node root = reader.load(line.substr(2));
  for (const auto& [name, value] : reader.mapping(root, "a result"))
    read_field(reader, name.Scalar(), value, result, where);
  if (result.bucket.algorithm.empty() || result.bucket.problem.empty())
    damaged("a result names its algorithm and problem");
  const auto is_measure = [](double x) { return std::isfinite(x) && x >= 0; };
  if (!is_measure(result.seconds) || result.seconds == 0) damaged("a result's seconds are above 0");
  for (const double x : {result.default_seconds, result.spread, result.gflops, result.shape.visible})
    if (!is_measure(x)) damaged("a result's numbers are not below 0");
  const std::string* head_dim = value_of(result.match, "head_dim");
  if (head_dim == nullptr || std::atoll(head_dim->c_str()) < 1) damaged("a result's match has a head_dim of 1 or more");
  return result;
}

}  // namespace v1
}  // namespace attile
