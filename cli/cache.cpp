// attile cache: the kernels kept on disk.
#include "runtime/cache.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ctime>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/kernel_flags.h"
#include "cli/work.h"
#include "runtime/kernel.h"

namespace attile::cli {
namespace {

struct CacheFlags {
  std::string list_file;
  bool json = false;
};

// "2026-11-30 10:36:00", UTC.
std::string date_text(std::int64_t ns) {
  const auto seconds = static_cast<std::time_t>(ns / 1'000'000'000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

Json entry_json(const CacheListing& entry) {
  Json json = {{"name", entry.name}, {"bytes", entry.bytes}, {"last_used", date_text(entry.last_used_ns)}};
  for (const auto& [part, value] : entry.key.parts) json["key"][part] = value;
  if (!entry.fault.empty()) json["fault"] = entry.fault;
  return json;
}

Json folder_json(KernelCache& cache) {
  Json json = {{"folder", cache.folder()}};
  if (const std::string fault = cache.fault(); !fault.empty()) json["fault"] = fault;
  return json;
}

void print_folder(KernelCache& cache) {
  fmt::print("folder  {}\n", cache.folder().empty() ? "none" : cache.folder());
  if (const std::string fault = cache.fault(); !fault.empty()) fmt::print("fault   {}\n", fault);
}

void print_entry(const CacheListing& entry) {
  std::string key;
  for (const auto& [part, value] : entry.key.parts)
    if (part != "text") key += fmt::format("  {} {}", part, value);
  fmt::print("{}  {:>9}  {}{}{}\n", date_text(entry.last_used_ns), bytes_text(static_cast<double>(entry.bytes)),
             entry.name, key, entry.fault.empty() ? "" : "  DAMAGED: " + entry.fault);
}

int list(const CacheFlags& f) {
  const auto cache = kernel_cache();
  const std::vector<CacheListing> entries = cache->list();
  std::uint64_t bytes = 0;
  Json json = folder_json(*cache);
  json["entries"] = Json::array();
  if (!f.json) print_folder(*cache);
  for (const CacheListing& entry : entries) {
    bytes += entry.bytes;
    json["entries"].push_back(entry_json(entry));
    if (!f.json) print_entry(entry);
  }
  if (f.json)
    fmt::print("{}\n", json_text(json));
  else
    fmt::print("{} kernels, {}\n", entries.size(), bytes_text(static_cast<double>(bytes)));
  return good;
}

int verify(const CacheFlags& f) {
  const auto cache = kernel_cache();
  const std::size_t all = cache->list().size();
  const std::vector<CacheListing> damaged = cache->verify();
  Json json = folder_json(*cache);
  json["checked"] = all;
  json["damaged"] = Json::array();
  for (const CacheListing& entry : damaged) {
    json["damaged"].push_back(entry_json(entry));
    if (!f.json) print_entry(entry);
  }
  if (f.json)
    fmt::print("{}\n", json_text(json));
  else
    fmt::print("{} kernels checked, {} damaged{}\n", all, damaged.size(),
               damaged.empty() ? "" : "; they are removed where the folder may be written and built again when needed");
  return damaged.empty() ? good : failed;
}

int clear(const CacheFlags& f) {
  const auto cache = kernel_cache();
  const std::uint64_t removed = cache->clear();
  Json json = folder_json(*cache);
  json["removed"] = removed;
  if (f.json)
    fmt::print("{}\n", json_text(json));
  else
    fmt::print("{} kernels removed from {}\n", removed, cache->folder());
  return good;
}

// One line of a list: the flags of a kernel, as for emit.
std::string warm_line(const std::string& line, bool& built) {
  CLI::App app("", "");
  KernelFlags flags;
  add_kernel_flags(app, flags);
  parse_line(app, line);
  const KernelSource s = kernel_source(flags);
  const Kernel kernel = Kernel::get(s.algorithm, s.problem, s.schedule, s.chip.device.value_or(Device{}));
  built = !kernel.build_info().from_disk;
  return to_string(s.problem);
}

int warm(const CacheFlags& f) {
  std::size_t problems = 0, fresh = 0;
  for (const ListLine& line : lines_of_list(f.list_file)) {
    bool built = false;
    std::string problem;
    at_place(line.place, [&] { problem = warm_line(line.text, built); });
    fmt::print("{}  {}\n", built ? "built   " : "was here", problem);
    ++problems;
    fresh += built ? 1 : 0;
  }
  fmt::print("{} problems, {} built\n", problems, fresh);
  return good;
}

}  // namespace

Action add_cache(CLI::App& verb) {
  auto flags = std::make_shared<CacheFlags>();
  verb.require_subcommand(1);
  const auto add = [&](const char* name, const char* doc) {
    CLI::App* sub = verb.add_subcommand(name, doc);
    if (std::string(name) != "warm") sub->add_flag("--json", flags->json, "The same as JSON");
    return sub;
  };
  CLI::App* lists = add("list", "Every kernel, the one not used for longest first");
  CLI::App* verifies = add("verify", "Check every kernel and remove damaged ones; exit code 1 if there were any");
  CLI::App* clears = add("clear", "Remove every kernel");
  CLI::App* warms = add("warm", "Build the kernels of a list: on each line flags as for emit; # begins a comment");
  warms->add_option("list", flags->list_file, "A text file")->type_name("FILE")->required();
  return [=] {
    if (lists->parsed()) return list(*flags);
    if (verifies->parsed()) return verify(*flags);
    return clears->parsed() ? clear(*flags) : warm(*flags);
  };
}

}  // namespace attile::cli
