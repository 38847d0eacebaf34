#include "schedules/schedule_yaml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

#include "schedules/schedule_fields.h"

namespace attile {
inline namespace v1 {
namespace {

using Handlers = std::vector<std::pair<std::string, std::function<void(const YAML::Node&)>>>;

// A mapping whose keys are exactly those of `handlers`, each at most once.
void read_mapping(const YamlReader& reader, const YAML::Node& node, const std::string& what, const Handlers& handlers) {
  for (const auto& [name, value] : reader.mapping(node, what)) {
    std::vector<std::string> known;
    bool found = false;
    for (const auto& [known_name, handle] : handlers) {
      known.push_back(known_name);
      if (known_name != name.Scalar()) continue;
      handle(value);
      found = true;
    }
    if (!found)
      reader.fail(name, fmt::format("{} has no '{}'", what, name.Scalar()),
                  fmt::format("it has {}", fmt::join(known, ", ")));
  }
}

ScheduleSpace read_space(const YamlReader& reader, const YAML::Node& node) {
  ScheduleSpace space;
  for (const auto& [name, list] : reader.mapping(node, "a space")) {
    const ScheduleField& field = schedule_field(reader, name);
    ScheduleSpace::Choice choice{field.name, {}};
    for (const YAML::Node& value : reader.sequence(list, fmt::format("the choice of {}", field.name))) {
      Schedule tried;
      field.read(reader, value, tried);
      choice.values.push_back(value.Scalar());
    }
    if (choice.values.empty()) reader.fail(list, fmt::format("there is no {} to choose", field.name));
    space.choices.push_back(std::move(choice));
  }
  return space;
}

std::vector<DType> read_dtypes(const YamlReader& reader, const YAML::Node& node) {
  std::vector<DType> out;
  for (const YAML::Node& each : reader.sequence(node, "dtype"))
    out.push_back(static_cast<DType>(reader.one_of(each, "dtype", {"float32", "bfloat16", "float16"})));
  return out;
}

ScheduleMatch read_match(const YamlReader& reader, const YAML::Node& node) {
  ScheduleMatch m;
  const auto flag = [&](const char* name, const char* no, const char* yes, std::optional<bool>& to) {
    return std::pair<std::string, std::function<void(const YAML::Node&)>>(
        name, [&reader, &to, name, no, yes](const YAML::Node& value) {
          to = reader.one_of(value, name, {no, yes}) == 1;
        });
  };
  const auto head_dim_range = [&](const YAML::Node& value) {
    const auto bounds = reader.sequence(value, "head_dim");
    if (bounds.size() != 2) reader.fail(value, "head_dim is a pair [from, to]");
    m.head_dim_from = reader.integer(bounds[0], "head_dim");
    m.head_dim_to = reader.integer(bounds[1], "head_dim");
    if (m.head_dim_from < 1 || m.head_dim_to < m.head_dim_from)
      reader.fail(value, "head_dim is a pair [from, to] with 1 <= from <= to");
  };
  read_mapping(reader, node, "a match",
               {{"dtype", [&](const YAML::Node& value) { m.dtype = read_dtypes(reader, value); }},
                {"head_dim", head_dim_range},
                flag("rows", "many", "few", m.few_rows),
                flag("masked", "false", "true", m.masked),
                flag("grouped", "false", "true", m.grouped)});
  return m;
}

KnownSchedule read_known(const YamlReader& reader, const YAML::Node& node) {
  KnownSchedule known;
  bool has_schedule = false;
  const auto gflops = [&](const YAML::Node& value) {
    known.gflops = reader.number(value, "gflops");
    if (!(known.gflops > 0)) reader.fail(value, "gflops is above 0", "leave it out where nothing was measured");
  };
  const auto schedule = [&](const YAML::Node& value) {
    known.schedule = read_schedule(reader, value);
    has_schedule = true;
  };
  read_mapping(reader, node, "a best known schedule",
               {{"name", [&](const YAML::Node& value) { known.name = reader.scalar(value, "name"); }},
                {"match", [&](const YAML::Node& value) { known.match = read_match(reader, value); }},
                {"schedule", schedule},
                {"gflops", gflops},
                {"measured", [&](const YAML::Node& value) { known.measured = reader.scalar(value, "measured"); }}});
  if (known.name.empty()) reader.fail(node, "a best known schedule needs a name");
  if (!has_schedule) reader.fail(node, fmt::format("'{}' has no schedule", known.name));
  return known;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\x{:02x}", c);
    else
      out += c;
  }
  return out + "\"";
}

std::string inline_schedule(const Schedule& s) {
  std::vector<std::string> entries;
  for (const ScheduleField& f : schedule_fields()) entries.push_back(fmt::format("{}: {}", f.name, f.write(s)));
  return fmt::format("{{{}}}", fmt::join(entries, ", "));
}

std::string inline_match(const ScheduleMatch& m) {
  std::vector<std::string> entries, dtypes;
  for (const DType type : m.dtype) dtypes.emplace_back(to_string(type));
  if (!dtypes.empty()) entries.push_back(fmt::format("dtype: [{}]", fmt::join(dtypes, ", ")));
  entries.push_back(fmt::format("head_dim: [{}, {}]", m.head_dim_from, m.head_dim_to));
  if (m.few_rows) entries.push_back(fmt::format("rows: {}", *m.few_rows ? "few" : "many"));
  if (m.masked) entries.push_back(fmt::format("masked: {}", *m.masked));
  if (m.grouped) entries.push_back(fmt::format("grouped: {}", *m.grouped));
  return fmt::format("{{{}}}", fmt::join(entries, ", "));
}

}  // namespace

Schedule parse_schedule(std::string_view text, const std::string& file) {
  const YamlReader reader(file);
  return read_schedule(reader, reader.load(text));
}

std::string to_yaml(const Schedule& s) {
  std::string out;
  for (const ScheduleField& f : schedule_fields()) out += fmt::format("{}: {}\n", f.name, f.write(s));
  return out;
}

ScheduleFile parse_schedule_file(std::string_view text, const std::string& file) {
  const YamlReader reader(file);
  const YAML::Node root = reader.load(text);
  ScheduleFile out;
  const auto spaces = [&](const YAML::Node& value) {
    for (const YAML::Node& each : reader.sequence(value, "spaces")) out.spaces.push_back(read_space(reader, each));
  };
  const auto best = [&](const YAML::Node& value) {
    for (const YAML::Node& each : reader.sequence(value, "best")) out.best.push_back(read_known(reader, each));
  };
  read_mapping(reader, root, "a file of schedules",
               {{"target", [&](const YAML::Node& value) { out.target = reader.scalar(value, "target"); }},
                {"spaces", spaces},
                {"best", best}});
  if (out.target.empty()) reader.fail(root, "a file of schedules names its target");
  return out;
}

std::string to_yaml(const ScheduleFile& f) {
  std::string out = fmt::format("target: {}\n", quoted(f.target));
  if (!f.spaces.empty()) out += "spaces:\n";
  for (const ScheduleSpace& space : f.spaces) {
    if (space.choices.empty()) out += "  - {}\n";
    for (std::size_t i = 0; i < space.choices.size(); ++i)
      out += fmt::format("  {} {}: [{}]\n", i == 0 ? "-" : " ", space.choices[i].field,
                         fmt::join(space.choices[i].values, ", "));
  }
  if (!f.best.empty()) out += "best:\n";
  for (const KnownSchedule& k : f.best) {
    out += fmt::format("  - name: {}\n    match: {}\n    schedule: {}\n", quoted(k.name), inline_match(k.match),
                       inline_schedule(k.schedule));
    if (k.gflops > 0) out += fmt::format("    gflops: {}\n", k.gflops);
    if (!k.measured.empty()) out += fmt::format("    measured: {}\n", quoted(k.measured));
  }
  return out;
}

}  // namespace v1
}  // namespace attile
