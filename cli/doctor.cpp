// attile doctor: what of this machine is used, what is missing, and the fix.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/work.h"
#include "dsl/error.h"
#include "runtime/cache.h"
#include "runtime/host_cpu.h"
#include "runtime/kernel.h"
#include "runtime/options.h"
#include "runtime/orc_compiler.h"
#include "runtime/parallel_for.h"

namespace attile::cli {
namespace {

using Json = nlohmann::ordered_json;

// One part of the machine: lines to show, and what keeps it from working.
struct Finding {
  std::string name;
  std::vector<std::pair<std::string, std::string>> facts;
  std::string fault, fix;
  bool needed = true;   // kernels cannot run without it
  bool present = true;  // in this build
};

// A finding whose facts could not be had says why.
template <typename F>
Finding examined(const std::string& name, const F& look) {
  Finding finding;
  finding.name = name;
  try {
    look(finding);
  } catch (const Error& e) {
    finding.fault = e.where().empty() ? e.message() : fmt::format("{}: {}", e.where(), e.message());
    finding.fix = e.remedy();
  }
  return finding;
}

void look_at_cpu(Finding& f) {
  const HostCpu here = detect_host_cpu();
  f.facts = {{"model", here.model}, {"features", fmt::format("{}", fmt::join(here.flags, " "))}};
  const auto cache = [](std::int64_t bytes) {
    return bytes > 0 ? fmt::format("{} KiB", bytes >> 10) : std::string("unknown");
  };
  f.facts.emplace_back("caches", fmt::format("L1 {} and L2 {} a core, L3 {}", cache(here.l1d_bytes),
                                             cache(here.l2_bytes), cache(here.l3_bytes)));
  f.facts.emplace_back("cores", fmt::format("{} usable, {} threads a call", here.cores, worker_count()));
  f.facts.emplace_back("kernels use",
                       fmt::format("{}; vectors of {} bytes", host_cpu().isa(), host_cpu().vector_bytes));
  f.facts.emplace_back("target", to_string(host_target()));
}

void look_at_llvm(Finding& f) {
  f.facts = {{"looked in", fmt::format("{}", fmt::join(OrcCompiler::module_places(), ", "))}};
  const std::string version = OrcCompiler::instance().version();  // throws where there is none
  f.facts = {{"file", OrcCompiler::instance().module_path()}, {"version", version}};
}

void look_at_cache(Finding& f) {
  f.needed = false;
  const CacheOptions options = CacheOptions::from_environment();
  const auto cache = kernel_cache();
  f.facts.emplace_back("folder", cache->folder().empty() ? "none" : cache->folder());
  f.facts.emplace_back("mode", options.mode == CacheMode::on    ? "on"
                               : options.mode == CacheMode::off ? "off"
                                                                : "readonly");
  f.fault = cache->fault();
  if (!f.fault.empty())
    f.fix = "set ATTILE_CACHE_DIR to a folder that can be written; without it kernels are built anew in every process";
  std::uint64_t bytes = 0;
  std::size_t damaged = 0;
  const std::vector<CacheListing> entries = cache->list();
  for (const CacheListing& entry : entries) {
    bytes += entry.bytes;
    damaged += entry.fault.empty() ? 0 : 1;
  }
  f.facts.emplace_back("kernels",
                       fmt::format("{}, {} of at most {}{}", entries.size(), bytes_text(static_cast<double>(bytes)),
                                   bytes_text(static_cast<double>(options.max_bytes)),
                                   damaged ? fmt::format("; {} damaged, see attile cache verify", damaged) : ""));
}

std::vector<Finding> findings() {
  std::vector<Finding> all{examined("CPU", look_at_cpu), examined("LLVM module", look_at_llvm),
                           examined("kernel cache", look_at_cache)};
  all.push_back({"GPU", {{"back end", "kernels run on the CPU"}}, "", "", false, false});
  return all;
}

const char* state_of(const Finding& f) {
  if (!f.present) return "not in this build";
  return f.fault.empty() ? "ok" : f.needed ? "NOT USABLE" : "limited";
}

void print_text(const std::vector<Finding>& all) {
  for (const Finding& f : all) {
    fmt::print("{}: {}\n", f.name, state_of(f));
    for (const auto& [fact, text] : f.facts) fmt::print("  {:<12} {}\n", fact, text);
    if (!f.fault.empty()) fmt::print("  {:<12} {}\n", "missing", f.fault);
    if (!f.fix.empty()) fmt::print("  {:<12} {}\n", "fix", f.fix);
  }
  fmt::print("environment:\n");
  for (const OptionDoc& o : option_docs())
    fmt::print("  {:<19} {}\n  {:<19} {} [{}]\n", o.name, o.value.empty() ? "not set" : o.value, "", o.doc, o.allowed);
}

void print_json(const std::vector<Finding>& all, bool usable) {
  Json json = {{"version", ATTILE_VERSION}, {"usable", usable}};
  for (const Finding& f : all) {
    Json& part = json["parts"][f.name];
    part["ok"] = f.present && f.fault.empty();
    for (const auto& [fact, text] : f.facts) part[fact] = text;
    if (!f.fault.empty()) part["missing"] = f.fault;
    if (!f.fix.empty()) part["fix"] = f.fix;
  }
  for (const OptionDoc& o : option_docs())
    json["environment"][o.name] = {{"value", o.value}, {"allowed", o.allowed}, {"doc", o.doc}};
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

int run(bool json) {
  const std::vector<Finding> all = findings();
  bool usable = true;
  for (const Finding& f : all) usable = usable && (f.fault.empty() || !f.needed);
  if (json)
    print_json(all, usable);
  else
    print_text(all);
  return usable ? good : failed;
}

}  // namespace

Action add_doctor(CLI::App& verb) {
  auto json = std::make_shared<bool>(false);
  verb.footer("The exit code is 1 when kernels cannot run here.");
  verb.add_flag("--json", *json, "The same as JSON");
  return [json] { return run(*json); };
}

}  // namespace attile::cli
