// attile tune show, export, import, forget: the results that are kept for a device.
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>

#include "autotune/exchange.h"
#include "cli/json.h"
#include "cli/output_file.h"
#include "cli/tune.h"
#include "cli/work.h"
#include "dsl/error.h"
#include "schedules/registry.h"

namespace attile::cli {
namespace {

std::string date_text(std::int64_t seconds) {
  const auto when = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&when, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min);
}

bool current(const TuneResult& r, const Machine& m) { return r.machine == m.text() && r.versions == m.versions(); }

Json result_json(const TuneResult& r, const Machine& m) {
  const CallShape& s = r.shape;
  return {{"algorithm", r.bucket.algorithm},
          {"problem", r.bucket.problem},
          {"shape", {s.sequences, s.heads, s.kv_heads, s.rows, s.keys}},
          {"schedule", to_string(r.winner)},
          {"seconds", r.seconds},
          {"default_seconds", r.default_seconds},
          {"gflops", r.gflops},
          {"noisy", r.noisy},
          {"complete", r.complete},
          {"machine", r.machine},
          {"versions", r.versions},
          {"used", current(r, m)},
          {"when", date_text(r.when)}};
}

std::string result_text(const TuneResult& r, const Machine& m) {
  const CallShape& s = r.shape;
  std::string marks;
  if (!current(r, m)) marks += fmt::format(" (of {} with {}: not used)", r.machine, r.versions);
  if (r.noisy) marks += " (measured under noise)";
  if (!r.complete) marks += " (not complete)";
  const std::string gain =
      r.default_seconds > 0 ? fmt::format(", default {:.3f} times as long", r.default_seconds / r.seconds) : "";
  return fmt::format("{}  {}, B{} H{}/{} Nq{} Nk{}{}\n    {}{}\n    {}\n", date_text(r.when), r.bucket.problem,
                     s.sequences, s.heads, s.kv_heads, s.rows, s.keys, marks, time_text(r.seconds), gain,
                     to_string(r.winner));
}

}  // namespace

int show_results(const StoreFlags& flags) {
  const DeviceFacts facts = facts_of_flag(flags.device, flags.threads);
  const std::string folder = result_folder();
  const ResultStore store(folder, facts.machine);
  std::vector<std::string> faults;
  const std::vector<TuneResult> results = store.all(&faults);
  const std::string file = folder.empty() ? "none: " + store_fault(folder) : store.path();
  Json json = {{"file", file}, {"device", facts.machine.text()}, {"results", Json::array()}};
  for (const TuneResult& r : results) json["results"].push_back(result_json(r, facts.machine));
  json["faults"] = faults;
  if (flags.json) {
    fmt::print("{}\n", json_text(json));
    return good;
  }
  fmt::print("file    {}\ndevice  {}; {}\n", file, facts.machine.text(), facts.machine.versions());
  for (const TuneResult& r : results) fmt::print("{}", result_text(r, facts.machine));
  for (const std::string& fault : faults) fmt::print("damaged: {}\n", fault);
  fmt::print("{} results{}\n", results.size(),
             faults.empty() ? "" : fmt::format(", {} damaged lines that the next tune replaces", faults.size()));
  return good;
}

int export_results(const StoreFlags& flags) {
  const DeviceFacts facts = facts_of_flag(flags.device, flags.threads);
  const ResultStore store(result_folder(), facts.machine);
  const std::vector<TuneResult> results = store.all();
  const std::string text = fmt::format("# Written by attile tune export on {}.\n{}", facts.machine.text(),
                                       to_yaml(exported(results, store, schedule_file(facts.target))));
  if (flags.file.empty() || flags.file == "-") {
    fmt::print("{}", text);
    return good;
  }
  OutputFile file(flags.file);
  file.write(text);
  file.finish();
  fmt::print("{}: the schedules of {} results before the shipped ones\n", file.path(), results.size());
  return good;
}

int import_results(const StoreFlags& flags) {
  const DeviceFacts facts = facts_of_flag(flags.device, flags.threads);
  const std::string folder = result_folder();
  const std::size_t count = import_file(flags.file, folder, facts.machine);
  fmt::print("{} schedules of {} are preferred to the shipped ones; kept in {}\n", count, flags.file,
             imported_path(folder, facts.machine));
  return good;
}

int forget_results(const StoreFlags& flags) {
  const DeviceFacts facts = facts_of_flag(flags.device, flags.threads);
  const std::string folder = result_folder();
  ResultStore store(folder, facts.machine);
  const std::string machine = facts.machine.text(), versions = facts.machine.versions();
  const std::size_t count = store.forget(
      [&](const TuneResult& r) { return flags.all || !same_device(r.machine, machine) || r.versions != versions; });
  if (flags.all && !folder.empty()) ::unlink(imported_path(folder, facts.machine).c_str());
  fmt::print("{} results removed from {}\n", count, store.path());
  return good;
}

}  // namespace attile::cli
