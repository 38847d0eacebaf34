#include "schedules/schedule_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attile {
inline namespace v1 {
namespace {

constexpr const char* name_of(int Schedule::*member) {
  return member == &Schedule::tile_rows       ? "tile_rows"
         : member == &Schedule::tile_keys     ? "tile_keys"
         : member == &Schedule::panel_vectors ? "panel_vectors"
         : member == &Schedule::block         ? "block"
         : member == &Schedule::warps         ? "warps"
         : member == &Schedule::column_warps  ? "column_warps"
         : member == &Schedule::stages        ? "stages"
         : member == &Schedule::blocks_per_sm ? "blocks_per_sm"
                                              : "splits";
}

template <int Schedule::*member>
constexpr ScheduleField whole_number() {
  return {name_of(member),
          [](const YamlReader& reader, const YAML::Node& value, Schedule& s) {
            const std::int64_t number = reader.integer(value, name_of(member));
            const int least = member == &Schedule::splits ? 0 : 1;
            if (number < least || number > 1 << 20)
              reader.fail(value, fmt::format("{} is {}", name_of(member), number), fmt::format("it starts at {}", least));
            s.*member = static_cast<int>(number);
          },
          [](const Schedule& s) { return std::to_string(s.*member); }};
}

constexpr const char* name_of(bool Schedule::*member) {
  return member == &Schedule::bf16_dot            ? "bf16_dot"
         : member == &Schedule::pack_group        ? "pack_group"
         : member == &Schedule::pack_ahead        ? "pack_ahead"
         : member == &Schedule::rows_in_registers ? "rows_in_registers"
         : member == &Schedule::fold_scale        ? "fold_scale"
         : member == &Schedule::lazy_rescale      ? "lazy_rescale"
         : member == &Schedule::late_copies       ? "late_copies"
                                                  : "longest_first";
}

template <bool Schedule::*member>
constexpr ScheduleField yes_or_no() {
  return {name_of(member),
          [](const YamlReader& reader, const YAML::Node& value, Schedule& s) {
            s.*member = reader.one_of(value, name_of(member), {"false", "true"}) == 1;
          },
          [](const Schedule& s) { return std::string(s.*member ? "true" : "false"); }};
}

constexpr ScheduleField lanes{"lanes",
                              [](const YamlReader& reader, const YAML::Node& value, Schedule& s) {
                                s.lanes = static_cast<Lanes>(reader.one_of(value, "lanes", {"rows", "positions", "fragments"}));
                              },
                              [](const Schedule& s) { return std::string(to_string(s.lanes)); }};

constexpr ScheduleField order{
    "order",
    [](const YamlReader& reader, const YAML::Node& value, Schedule& s) {
      s.order = static_cast<Order>(reader.one_of(value, "order", {"queries_outer", "keys_outer"}));
    },
    [](const Schedule& s) { return std::string(to_string(s.order)); }};

constexpr ScheduleField partition{
    "partition",
    [](const YamlReader& reader, const YAML::Node& value, Schedule& s) {
      s.partition = static_cast<Partition>(reader.one_of(value, "partition", {"rows", "positions"}));
    },
    [](const Schedule& s) { return std::string(to_string(s.partition)); }};

constexpr ScheduleField fields[] = {
    whole_number<&Schedule::tile_rows>(),     whole_number<&Schedule::tile_keys>(), lanes,
    whole_number<&Schedule::panel_vectors>(), whole_number<&Schedule::block>(),     order,
    yes_or_no<&Schedule::bf16_dot>(),         yes_or_no<&Schedule::pack_group>(),   yes_or_no<&Schedule::pack_ahead>(),
    whole_number<&Schedule::splits>(),        yes_or_no<&Schedule::longest_first>(), whole_number<&Schedule::warps>(),
    partition,                                whole_number<&Schedule::column_warps>(), whole_number<&Schedule::stages>(),
    yes_or_no<&Schedule::rows_in_registers>(), yes_or_no<&Schedule::fold_scale>(),
    yes_or_no<&Schedule::lazy_rescale>(),      yes_or_no<&Schedule::late_copies>(),
    whole_number<&Schedule::blocks_per_sm>(),
};

}  // namespace

std::span<const ScheduleField> schedule_fields() { return fields; }

const ScheduleField& schedule_field(const YamlReader& reader, const YAML::Node& name) {
  std::vector<std::string> known;
  for (const ScheduleField& f : fields) {
    if (name.Scalar() == f.name) return f;
    known.emplace_back(f.name);
  }
  reader.fail(name, fmt::format("a schedule has no '{}'", name.Scalar()),
              fmt::format("it has {}", fmt::join(known, ", ")));
}

Schedule read_schedule(const YamlReader& reader, const YAML::Node& node) {
  Schedule s;
  for (const auto& [name, value] : reader.mapping(node, "a schedule"))
    schedule_field(reader, name).read(reader, value, s);
  return s;
}

}  // namespace v1
}  // namespace attile
