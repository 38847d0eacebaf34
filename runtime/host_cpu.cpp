#include "runtime/host_cpu.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

#include "dsl/error.h"
#include "runtime/host_cpu_tables.h"
#include "runtime/options.h"

namespace attile {
inline namespace v1 {
namespace {

using namespace cpu_tables;

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

// XCR0: which register files the operating system saves at a context switch.
std::uint64_t saved_state() {
  if (!(cpuid(1).ecx & (1u << 27))) return 0;  // OSXSAVE
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

unsigned register_of(const Registers& r, char name) {
  switch (name) {
    case 'a': return r.eax;
    case 'b': return r.ebx;
    case 'c': return r.ecx;
    default: return r.edx;
  }
}

std::vector<std::string> detect_flags() {
  std::uint64_t saved = saved_state();
  std::vector<std::string> flags;
  for (const Feature& feature : features) {
    bool present = register_of(cpuid(feature.leaf, feature.subleaf), feature.reg) & (1u << feature.bit);
    if (present && (saved & feature.state) == feature.state) flags.emplace_back(feature.name);
  }
  std::sort(flags.begin(), flags.end());
  return flags;
}

struct Identity {
  bool amd = false, intel = false;
  unsigned family = 0, model = 0, stepping = 0;
  std::string brand;
};

Identity identify() {
  Identity id;
  Registers r = cpuid(0);
  char vendor[13] = {};
  std::memcpy(vendor, &r.ebx, 4);
  std::memcpy(vendor + 4, &r.edx, 4);
  std::memcpy(vendor + 8, &r.ecx, 4);
  id.amd = std::strcmp(vendor, "AuthenticAMD") == 0;
  id.intel = std::strcmp(vendor, "GenuineIntel") == 0;
  unsigned signature = cpuid(1).eax;
  id.family = (signature >> 8) & 0xf;
  id.model = (signature >> 4) & 0xf;
  id.stepping = signature & 0xf;
  if (id.family == 6 || id.family == 15) id.model |= (signature >> 12) & 0xf0;
  if (id.family == 15) id.family += (signature >> 20) & 0xff;
  std::array<Registers, 3> parts{cpuid(0x80000002), cpuid(0x80000003), cpuid(0x80000004)};
  char brand[49] = {};
  std::memcpy(brand, parts.data(), 48);
  id.brand = brand;
  id.brand.erase(0, std::min(id.brand.find_first_not_of(' '), id.brand.size()));
  id.brand.erase(id.brand.find_last_not_of(' ') + 1);
  return id;
}

std::string tune_name(const Identity& id) {
  if (!id.amd && !id.intel) return {};
  for (const Chip& chip : id.amd ? std::span<const Chip>(amd_chips) : std::span<const Chip>(intel_chips))
    if (chip.family == id.family && id.model >= chip.first_model && id.model <= chip.last_model &&
        id.stepping >= chip.first_stepping)
      return chip.name;
  return {};
}

// Leaf 4 (Intel) and 0x8000001D (AMD) describe the caches in one format.
void detect_caches(const Identity& id, HostCpu& cpu) {
  unsigned leaf = id.amd ? 0x8000001Du : 4u;
  for (unsigned sub = 0; sub < 8; ++sub) {
    Registers r = cpuid(leaf, sub);
    unsigned type = r.eax & 31, level = (r.eax >> 5) & 7;
    if (type == 0) break;
    if (type == 2) continue;  // instructions
    std::int64_t line = (r.ebx & 0xfff) + 1, parts = ((r.ebx >> 12) & 0x3ff) + 1, ways = (r.ebx >> 22) + 1;
    std::int64_t bytes = line * parts * ways * (std::int64_t{r.ecx} + 1);
    if (level == 1) cpu.l1d_bytes = bytes;
    if (level == 2) cpu.l2_bytes = bytes;
    if (level == 3) cpu.l3_bytes = bytes;
  }
}

bool includes(const std::vector<std::string>& flags, std::string_view level) {
  for (const Feature& feature : features)
    if (feature.level <= level_number(level) && std::find(flags.begin(), flags.end(), feature.name) == flags.end())
      return false;
  return true;
}

// Fills cpu, features and vector_bytes from the flags.
void describe(HostCpu& cpu) {
  cpu.cpu = "x86-64";
  for (std::string_view level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"})
    if (includes(cpu.flags, level))
      cpu.cpu = level;
    else
      break;
  cpu.features.clear();
  for (const Feature& feature : features) {
    if (feature.level <= level_number(cpu.cpu) || !cpu.has(feature.name)) continue;
    cpu.features += fmt::format("{}+{}", cpu.features.empty() ? "" : ",", feature.name);
  }
  cpu.vector_bytes = cpu.has("avx512f") ? 64 : cpu.has("avx") ? 32 : 16;
}

int affinity_cores() {
  for (int count = 1024; count <= 1 << 18; count *= 2) {
    std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(count), [](cpu_set_t* s) { CPU_FREE(s); });
    std::size_t bytes = CPU_ALLOC_SIZE(count);
    if (set && sched_getaffinity(0, bytes, set.get()) == 0) return std::max(1, CPU_COUNT_S(bytes, set.get()));
  }
  return 1;
}

// A container limited to 2 CPUs of 64 is stopped for the rest of each period when 64 threads run.
int quota_cores() {
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re");
  if (!file) return 1 << 20;
  long long quota = 0, period = 0;
  int fields = std::fscanf(file, "%lld %lld", &quota, &period);  // "max 100000" reads no number
  std::fclose(file);
  if (fields != 2 || quota <= 0 || period <= 0) return 1 << 20;
  return static_cast<int>(std::clamp<long long>((quota + period - 1) / period, 1, 1 << 20));
}

}  // namespace

bool HostCpu::has(std::string_view flag) const { return std::binary_search(flags.begin(), flags.end(), flag); }

std::string HostCpu::isa() const {
  return fmt::format("{}{}{}{}{}", cpu, features.empty() ? "" : " ", features, tune.empty() ? "" : " tune ", tune);
}

int usable_cores() { return std::min(affinity_cores(), quota_cores()); }

HostCpu detect_host_cpu() {
  HostCpu cpu;
  Identity id = identify();
  cpu.model = id.brand;
  cpu.flags = detect_flags();
  cpu.tune = tune_name(id);
  cpu.cores = usable_cores();
  detect_caches(id, cpu);
  describe(cpu);
  return cpu;
}

const HostCpu& host_cpu() {
  static const HostCpu* cpu = new HostCpu(limited_to(detect_host_cpu(), options().cpu));
  return *cpu;
}

HostCpu limited_to(const HostCpu& host, std::string_view level) {
  if (level.empty() || level == "native") return host;
  HostCpu named = named_cpu(level);
  HostCpu limited = host;
  limited.flags = named.flags;
  for (const std::string& flag : named.flags) {
    if (host.has(flag)) continue;
    throw Error(ErrorKind::unsupported, "ATTILE_CPU",
                fmt::format("{} needs {}, which this machine ({}) lacks", level, flag, host.model),
                fmt::format("unset ATTILE_CPU; this machine runs {}", host.cpu));
  }
  describe(limited);
  return limited;
}

HostCpu named_cpu(std::string_view level) {
  if (level != "x86-64-v3" && level != "x86-64-v4")
    throw Error(ErrorKind::argument, "target", fmt::format("'{}' is no CPU known here", level),
                "known: x86-64-v3, x86-64-v4");
  HostCpu cpu;
  for (const Feature& feature : features)
    if (feature.level <= level_number(level)) cpu.flags.emplace_back(feature.name);
  std::sort(cpu.flags.begin(), cpu.flags.end());
  describe(cpu);
  cpu.l1d_bytes = 32 << 10;
  cpu.l2_bytes = level == "x86-64-v4" ? 1 << 20 : 512 << 10;
  cpu.l3_bytes = 32 << 20;
  return cpu;
}

}  // namespace v1
}  // namespace attile
