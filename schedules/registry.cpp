#include "schedules/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "dsl/error.h"
#include "schedules/embedded.h"
#include "schedules/operands.h"
#include "schedules/schedule_fields.h"

namespace attile {
inline namespace v1 {
namespace {

// Parsed when it is first asked for: parsing all would hold up the first kernel of a process.
class ShippedFile {
 public:
  explicit ShippedFile(const embedded::File& file) : file_(file) {}
  ~ShippedFile() { delete parsed_; }
  ShippedFile(const ShippedFile&) = delete;
  ShippedFile& operator=(const ShippedFile&) = delete;
  const ScheduleFile& parsed() {
    // Without a lock, which a child of a fork might find taken: who is second throws his away.
    if (const ScheduleFile* known = parsed_) return *known;
    auto made = std::make_unique<const ScheduleFile>(parse_schedule_file(file_.content, "schedules/" + std::string(file_.path)));
    const ScheduleFile* none = nullptr;
    if (parsed_.compare_exchange_strong(none, made.get())) made.release();
    return *parsed_;
  }

 private:
  const embedded::File& file_;
  std::atomic<const ScheduleFile*> parsed_{nullptr};
};

// By target, which is the file's name.
std::map<std::string, ShippedFile>& shipped_files() {
  static std::map<std::string, ShippedFile> files = [] {
    std::map<std::string, ShippedFile> out;
    for (const embedded::File& file : embedded::schedule_files())
      out.try_emplace(std::filesystem::path(file.path).stem().string(), file);
    return out;
  }();
  return files;
}

// The number of a GPU's architecture: 90 of "sm_90a"; 0 of other names.
int arch_number(std::string_view name) {
  return name.starts_with("sm_") ? std::atoi(std::string(name.substr(3)).c_str()) : 0;
}

// A detected chip may have a name of its own; what counts is which instructions it has: those of the newest GPU before it.
std::string nearest_shipped(const Target& t) {
  if (t.family == TargetFamily::cuda) {
    std::string nearest = "sm_80";
    for (const auto& [name, file] : shipped_files())
      if (arch_number(name) <= arch_number(t.name) && arch_number(name) > arch_number(nearest)) nearest = name;
    return nearest;
  }
  if (t.vector_bytes < 64) return "x86-64-v3";
  return t.bf16_dot ? "x86-64-v4-bf16" : "x86-64-v4";
}

// Positions wait for few rows; with many heads in a group the rows of a task are the heads.
Schedule fitted_to_group(Schedule s, const Problem& p) {
  if (s.pack_group && s.lanes == Lanes::positions && p.group > s.tile_rows)
    s.tile_rows = static_cast<int>(std::min<std::int64_t>(p.group, 16));
  return s;
}

}  // namespace

std::vector<Schedule> ScheduleSpace::all() const {
  const YamlReader reader("space");
  std::vector<Schedule> out{Schedule{}};
  for (const Choice& choice : choices) {
    const ScheduleField& field = schedule_field(reader, YAML::Node(choice.field));
    std::vector<Schedule> next;
    for (const Schedule& s : out)
      for (const std::string& value : choice.values) {
        next.push_back(s);
        field.read(reader, YAML::Node(value), next.back());
      }
    out = std::move(next);
  }
  return out;
}

bool ScheduleMatch::matches(const Algorithm& a, const Problem& p) const {
  std::int64_t largest = 1;
  for (const Operand& o : product_operands(a)) {
    const auto type = p.dtypes.find(o.tensor);
    if (!dtype.empty() &&
        (type == p.dtypes.end() || std::find(dtype.begin(), dtype.end(), type->second) == dtype.end()))
      return false;
    if (const auto found = p.extents.find(o.feature.name); found != p.extents.end())
      largest = std::max(largest, found->second);
  }
  return largest >= head_dim_from && largest <= head_dim_to && few_rows.value_or(p.few_rows) == p.few_rows &&
         masked.value_or(!a.visible.empty()) == !a.visible.empty() && grouped.value_or(p.group > 1) == (p.group > 1);
}

const ScheduleFile& schedule_file(const Target& t) {
  auto& files = shipped_files();
  auto found = files.find(t.name);
  if (found == files.end()) found = files.find(nearest_shipped(t));
  if (found == files.end())
    throw Error(ErrorKind::unsupported, "schedules",
                fmt::format("there are no schedules for the target \"{}\"", t.name));
  return found->second.parsed();
}

const KnownSchedule* best_known(const Algorithm& a, const Problem& p, const Target& t) {
  for (const KnownSchedule& known : schedule_file(t).best)
    if (known.match.matches(a, p)) return &known;
  return nullptr;
}

std::vector<Schedule> legal_schedules(const Algorithm& a, const Problem& p, const Target& t) {
  std::vector<Schedule> out;
  std::set<std::string> seen;
  for (const ScheduleSpace& space : schedule_file(t).spaces)
    for (const Schedule& s : space.all())
      if (legality(a, p, s, t).empty() && seen.insert(to_string(s)).second) out.push_back(s);
  return out;
}

Schedule default_schedule(const Algorithm& a, const Problem& p, const Target& t) {
  const KnownSchedule* known = best_known(a, p, t);
  return made_legal(a, p, known ? fitted_to_group(known->schedule, p) : Schedule{}, t);
}

}  // namespace v1
}  // namespace attile
