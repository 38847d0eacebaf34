#include "autotune/exchange.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>

#include "dsl/error.h"
#include "runtime/files.h"
#include "runtime/options.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr std::size_t most_bytes = 1 << 20;

std::string field(const Point& point, std::string_view name) {
  const std::string* value = value_of(point, name);
  return value ? *value : "";
}

double work_of(const TuneResult& r) {
  return static_cast<double>(r.shape.sequences * r.shape.heads) * static_cast<double>(r.shape.rows) *
         static_cast<double>(std::max<std::int64_t>(r.shape.keys, 1)) * r.shape.visible;
}

ScheduleMatch schedule_match(const Point& match) {
  ScheduleMatch m;
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16})
    if (to_string(type) == field(match, "dtype")) m.dtype = {type};
  m.head_dim_to = std::atoll(field(match, "head_dim").c_str());
  m.few_rows = field(match, "rows") == "few";
  m.masked = field(match, "masked") == "true";
  m.grouped = field(match, "grouped") == "true";
  return m;
}

// Whether what `b` matches is matched by `a`, which says everything.
bool covers(const ScheduleMatch& a, const ScheduleMatch& b) {
  return a.dtype == b.dtype && a.few_rows == b.few_rows && a.masked == b.masked && a.grouped == b.grouped &&
         a.head_dim_from <= b.head_dim_from && b.head_dim_to <= a.head_dim_to;
}

// The winner, and how much faster it is than the one measured: a file serves every length and batch, so that it leaves
// the number of parts to the call where that was tried.
std::pair<Point, double> general_winner(const TuneResult& r, const TriedList& tried) {
  Schedule open = schedule_of(r.winner);
  if (open.splits == 1 && field(r.match, "rows") != "few") return {r.winner, 1};
  open.splits = 0;
  const auto own = tried.outcomes.find(to_string(r.winner)), other = tried.outcomes.find(to_string(point_of(open)));
  if (own == tried.outcomes.end() || other == tried.outcomes.end() || other->second.seconds <= 0) return {r.winner, 1};
  return {point_of(open), own->second.seconds / other->second.seconds};
}

KnownSchedule known_of(const TuneResult& r, const ResultStore& store) {
  const Machine& machine = store.machine();
  const auto [winner, speed] = general_winner(r, store.tried(r.bucket));
  KnownSchedule k;
  k.match = schedule_match(r.match);
  k.schedule = schedule_of(winner);
  k.gflops = r.gflops * speed;
  k.name = fmt::format("tuned, to {} {} {} rows{}{}", k.match.head_dim_to, field(r.match, "dtype"),
                       field(r.match, "rows"), *k.match.masked ? ", masked" : "", *k.match.grouped ? ", group" : "");
  const CallShape& s = r.shape;
  k.measured = fmt::format("B{} H{}/{} Nq{} Nk{} on {} with {}", s.sequences, s.heads, s.kv_heads, s.rows, s.keys,
                           machine.text(), r.versions);
  return k;
}

// Of any file that the user names: links and pipes too.
std::string text_of(const std::string& path) {
  const auto refuse = [&](const std::string& why) { throw Error(ErrorKind::environment, path, why); };
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) refuse(fmt::format("it cannot be read: {}", error_text(errno)));
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EISDIR) refuse("it is a folder, and a schedule file is wanted");
    if (count < 0) refuse(fmt::format("it cannot be read: {}", error_text(errno)));
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > most_bytes) refuse(fmt::format("it has more than {} bytes", most_bytes));
  }
}

// Whether this version has words for the winner; else it is passed over with one line.
bool is_readable(const TuneResult& r, const std::string& where) {
  try {
    schedule_of(r.winner, where);
    return true;
  } catch (const Error& e) {
    warn(fmt::format("a tuning result is passed over: {}", e.what()));
    return false;
  }
}

}  // namespace

Point match_of(const Algorithm& a, const Problem& p) {
  std::int64_t largest = 1;
  std::string type = "float32";
  for (const Operand& o : product_operands(a)) {
    if (const auto found = p.dtypes.find(o.tensor); found != p.dtypes.end()) type = to_string(found->second);
    if (const auto found = p.extents.find(o.feature.name); found != p.extents.end())
      largest = std::max(largest, found->second);
  }
  return {{"dtype", type},
          {"head_dim", std::to_string(largest)},
          {"rows", p.few_rows ? "few" : "many"},
          {"masked", a.visible ? "true" : "false"},
          {"grouped", p.group > 1 ? "true" : "false"}};
}

ScheduleFile exported(std::span<const TuneResult> results, const ResultStore& store, const ScheduleFile& shipped) {
  const Machine& machine = store.machine();
  // By what a file can tell apart, the head dim last, so that the results of one kind stand by growing head dim.
  std::map<std::pair<std::string, std::int64_t>, const TuneResult*> kept;
  for (const TuneResult& r : results) {
    if (r.machine != machine.text() || r.versions != machine.versions() || !is_readable(r, store.path())) continue;
    Point kind = r.match;
    std::erase_if(kind, [](const auto& entry) { return entry.first == "head_dim"; });
    const TuneResult*& place = kept[{to_string(kind), std::atoll(field(r.match, "head_dim").c_str())}];
    if (place == nullptr || work_of(r) > work_of(*place)) place = &r;
  }
  ScheduleFile file = shipped;
  file.best.clear();
  std::string kind;
  std::int64_t below = 0;
  for (const auto& [key, r] : kept) {
    if (key.first != kind) kind = key.first, below = 0;
    file.best.push_back(known_of(*r, store));
    file.best.back().match.head_dim_from = below + 1;
    below = key.second;
  }
  const std::size_t own = file.best.size();
  for (const KnownSchedule& old : shipped.best)
    if (std::none_of(file.best.begin(), file.best.begin() + static_cast<std::ptrdiff_t>(own),
                     [&](const KnownSchedule& k) { return covers(k.match, old.match); }))
      file.best.push_back(old);
  return file;
}

std::string imported_path(const std::string& folder, const Machine& machine) {
  return fmt::format("{}/{}.known.yaml", folder, machine.file_name());
}

std::optional<ScheduleFile> imported(const std::string& folder, const Machine& machine) {
  if (folder.empty()) return std::nullopt;
  const std::string path = imported_path(folder, machine);
  std::string text;
  if (read_file(AT_FDCWD, path, most_bytes, text) != 0) return std::nullopt;
  try {
    return parse_schedule_file(text, path);
  } catch (const Error& e) {
    warn(fmt::format("imported schedules are passed over: {}", e.what()));
    return std::nullopt;
  }
}

std::size_t import_file(const std::string& path, const std::string& folder, const Machine& machine) {
  const std::string text = text_of(path);
  const ScheduleFile file = parse_schedule_file(text, path);
  if (file.target != machine.target)
    throw Error(ErrorKind::argument, path,
                fmt::format("it is for {}, and this device is {}", file.target, machine.target));
  if (const std::string fault = store_fault(folder); !fault.empty())
    throw Error(ErrorKind::environment, "import", fault, "see attile doctor");
  const std::string place = imported_path(folder, machine), beside = place + "." + unique_suffix();
  int error = make_folders(folder);
  if (!error) error = write_file(AT_FDCWD, beside, text);
  if (!error && ::rename(beside.c_str(), place.c_str()) != 0) error = errno;
  if (!error) return file.best.size();
  ::unlink(beside.c_str());
  throw Error(ErrorKind::environment, place, fmt::format("it cannot be written: {}", error_text(error)));
}

}  // namespace v1
}  // namespace attile
