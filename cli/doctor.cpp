// attile doctor: what of this machine is used, what is missing, and the fix.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iterator>

#include "cli/attention_flags.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/work.h"
#include "codegen/embedded.h"
#include "dsl/error.h"
#include "runtime/cache.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_places.h"
#include "runtime/disassembler.h"
#include "runtime/host_cpu.h"
#include "runtime/kernel.h"
#include "runtime/nvrtc.h"
#include "runtime/nvrtc_compiler.h"
#include "runtime/options.h"
#include "runtime/orc_compiler.h"
#include "runtime/parallel_for.h"
#include "schedules/registry.h"

namespace attile::cli {
namespace {

// One part of the machine: lines to show, and what keeps it from working.
struct Finding {
  std::string name;
  std::vector<std::pair<std::string, std::string>> facts;
  std::string fault, fix;
  bool needed = true;     // kernels cannot run without it
  bool optional = false;  // a machine may well be without it
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

void look_at_driver(Finding& f) {
  f.needed = false;
  f.optional = true;
  const CudaProbe driver = probe_cuda_driver();
  if (!driver.path.empty()) f.facts.emplace_back("file", driver.path);
  if (!driver.release.empty()) f.facts.emplace_back("release", driver.release);
  if (!driver.path.empty()) f.facts.emplace_back("version", "CUDA " + cuda_version_text(driver.version));
  f.fault = driver.fault;
  f.fix = driver.fix;
  for (const CudaDevice& d : cuda_devices())
    f.facts.emplace_back(fmt::format("cuda:{}", d.index),
                         fmt::format("{}, {}, {}, {} SMs, {}", d.name, d.arch(),
                                     bytes_text(static_cast<double>(d.memory_bytes)), d.sms, d.uuid));
}

void look_at_nvrtc(Finding& f) {
  f.needed = false;
  f.optional = true;
  const Nvrtc& library = nvrtc();  // throws where there is none
  f.facts = {{"file", library.path},
             {"version", library.version()},
             {"compiles for", fmt::format("sm_{} to sm_{}", library.archs.front(), library.archs.back())}};
  for (const CudaDevice& d : cuda_devices())
    if (!std::binary_search(library.archs.begin(), library.archs.end(), 10 * d.major + d.minor)) {
      f.fault = fmt::format("cuda:{} is {}, which this version does not know", d.index, d.arch());
      f.fix = "install a newer NVRTC: 'pip install --upgrade nvidia-cuda-nvrtc'";
    }
}

void look_at_disassembler(Finding& f) {
  f.needed = false;
  f.optional = true;
  const std::string program = find_disassembler();
  if (!program.empty()) {
    f.facts = {{"file", program}};
    return;
  }
  f.fault = "neither nvdisasm nor cuobjdump was found; only 'attile emit --stage sass' needs one";
  f.fix = "pip install nvidia-cuda-nvdisasm";
}

// What --device means here, and which schedules its kernels are made from.
void look_at_device(Finding& f, const std::string& asked, Device& device) {
  device = device_of(asked);  // throws where kernels cannot run there
  f.facts = {{"asked for", asked},
             {"kernels run on", to_string(device)},
             {"model", device_text(device)},
             {"schedules of", schedule_file(target_of(device)).target}};
}

std::vector<Finding> findings(const std::string& asked) {
  std::vector<Finding> all{examined("CPU", look_at_cpu),
                           examined("LLVM module", look_at_llvm),
                           examined("kernel cache", look_at_cache),
                           examined("CUDA driver", look_at_driver),
                           examined("NVRTC", look_at_nvrtc),
                           examined("SASS disassembler", look_at_disassembler)};
  Device device;
  all.push_back(examined("device", [&](Finding& f) { look_at_device(f, asked, device); }));
  if (device.kind == Device::Kind::cuda) all[0].needed = all[1].needed = false;  // CPU and LLVM
  return all;
}

const char* state_of(const Finding& f) {
  return f.fault.empty() ? "ok" : f.needed ? "NOT USABLE" : f.optional && f.facts.empty() ? "not here" : "limited";
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
    part["ok"] = f.fault.empty();
    for (const auto& [fact, text] : f.facts) part[fact] = text;
    if (!f.fault.empty()) part["missing"] = f.fault;
    if (!f.fix.empty()) part["fix"] = f.fix;
  }
  for (const OptionDoc& o : option_docs())
    json["environment"][o.name] = {{"value", o.value}, {"allowed", o.allowed}, {"doc", o.doc}};
  fmt::print("{}\n", json_text(json));
}

int run(bool json, const std::string& device) {
  parse_device(device, "--device");  // a wrong word is wrong usage
  const std::vector<Finding> all = findings(device);
  bool usable = true;
  for (const Finding& f : all) usable = usable && (f.fault.empty() || !f.needed);
  if (json)
    print_json(all, usable);
  else
    print_text(all);
  return usable ? good : failed;
}

// A text that a failed compile left behind, compiled again in the same way.
struct Compile {
  std::string file, arch = "sm_90a";
  std::vector<std::string> flags;
};

int compile(const Compile& c) {
  std::ifstream file(c.file, std::ios::binary);
  if (!file || !is_file(c.file))
    throw Error(ErrorKind::argument, "--compile", fmt::format("\"{}\" cannot be read", c.file), "");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const CompiledCuda compiled = compile_cuda(text, c.file.substr(c.file.rfind('/') + 1), c.arch,
                                             embedded::device_files(), {.extra_flags = c.flags});
  fmt::print("{}\n{} bytes for {} by {} in {}\n", compiled.log, compiled.image().size(), compiled.arch,
             cuda_compiler_text({.extra_flags = c.flags}), time_text(compiled.compile_ms / 1000));
  for (const CudaResources& k : compiled.resources)
    fmt::print("{}: {} registers, {} bytes of stack, {} spilled, {} shared\n", k.entry, k.registers, k.stack_bytes,
               k.spill_store_bytes, k.shared_bytes);
  return good;
}

}  // namespace

Action add_doctor(CLI::App& verb) {
  auto json = std::make_shared<bool>(false);
  auto wanted = std::make_shared<Compile>();
  auto machine = std::make_shared<MachineFlags>();
  verb.footer("The exit code is 1 when kernels cannot run on the device.");
  verb.add_flag("--json", *json, "The same as JSON");
  verb.add_option("--compile", wanted->file, "Only compile this CUDA text, as kernels are compiled, and show the log")
      ->type_name("FILE");
  verb.add_option("--arch", wanted->arch, "The chip to compile it for")->type_name("CHIP")->capture_default_str();
  verb.add_option("--nvrtc-flag", wanted->flags, "A further flag for NVRTC; may be repeated")->type_name("FLAG");
  auto measures = std::make_shared<bool>(false);
  verb.add_flag("--measure", *measures, "Measure the device's limits, fit the tuner's model to what was tuned, keep both");
  add_device_flag(verb, *machine);
  return [=] {
    if (*measures) return measure_device(machine->device, *json);
    return wanted->file.empty() ? run(*json, machine->device) : compile(*wanted);
  };
}

}  // namespace attile::cli
