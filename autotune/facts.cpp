#include "autotune/facts.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "autotune/worker.h"
#include "dsl/error.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "runtime/host_cpu.h"
#include "runtime/kernel.h"
#include "runtime/nvml.h"
#include "runtime/nvrtc_compiler.h"
#include "runtime/orc_compiler.h"
#include "runtime/parallel_for.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr char between = '\x1f';
constexpr double patience = 120;  // the first start of a driver takes seconds

DeviceFacts cpu_facts(Device device) {
  DeviceFacts f;
  f.device = device;
  f.target = host_target();
  f.machine.model = host_cpu().model;
  f.machine.units = worker_count();
  f.machine.compiler = "LLVM " + OrcCompiler::instance().version();
  f.last_cache_bytes = host_cpu().l3_bytes;
  return f;
}

DeviceFacts cuda_facts(Device device) {
  DeviceFacts f;
  f.device = device;
  f.target = target_of(device);
  const CudaDevice& d = cuda_device(device.index);
  f.machine.model = d.name;
  f.machine.units = d.sms;
  f.machine.power_limit_w = gpu_power_limit_w(d.uuid).value_or(0);
  f.machine.driver = cuda_version_text(cuda_driver().version);
  f.machine.compiler = cuda_compiler_text();
  f.last_cache_bytes = d.l2_bytes;
  return f;
}

// A GPU's facts as one line; the error of a child that found none begins with '!'.
std::string packed(const DeviceFacts& f) {
  const Machine& m = f.machine;
  const std::vector<std::string> fields{f.target.name,
                                        f.target.arch,
                                        std::to_string(f.target.multiprocessors),
                                        std::to_string(f.target.shared_bytes),
                                        std::to_string(f.target.shared_per_sm),
                                        std::to_string(f.target.l2_bytes),
                                        m.model,
                                        std::to_string(m.units),
                                        std::to_string(m.power_limit_w),
                                        m.driver,
                                        m.compiler,
                                        std::to_string(f.last_cache_bytes)};
  std::string line;
  for (const std::string& field : fields) line += field + between;
  return line;
}

DeviceFacts unpacked(const std::string& line, Device device) {
  std::vector<std::string> fields;
  for (std::size_t at = 0, end; (end = line.find(between, at)) != std::string::npos; at = end + 1)
    fields.push_back(line.substr(at, end - at));
  internal_check(fields.size() == 12, "a device's facts have twelve fields");
  DeviceFacts f;
  f.device = device;
  f.target.family = TargetFamily::cuda;
  f.target.name = fields[0], f.target.arch = fields[1];
  f.target.multiprocessors = std::atoi(fields[2].c_str());
  f.target.shared_bytes = std::atoll(fields[3].c_str());
  f.target.shared_per_sm = std::atoll(fields[4].c_str());
  f.target.l2_bytes = std::atoll(fields[5].c_str());
  f.machine.model = fields[6], f.machine.units = std::atoi(fields[7].c_str()),
  f.machine.power_limit_w = std::atoi(fields[8].c_str());
  f.machine.driver = fields[9], f.machine.compiler = fields[10];
  f.last_cache_bytes = std::atoll(fields[11].c_str());
  return f;
}

DeviceFacts finished(DeviceFacts f) {
  f.machine.target = f.target.name;
  f.machine.library = ATTILE_VERSION;
  return f;
}

}  // namespace

DeviceFacts facts_of(Device device) {
  return finished(device.kind == Device::Kind::cpu ? cpu_facts(device) : cuda_facts(device));
}

DeviceFacts facts_from_child(Device device) {
  if (device.kind == Device::Kind::cpu) return facts_of(device);
  Worker worker([&](WorkerLine& line) {
    try {
      line.write(packed(cuda_facts(device)));
    } catch (const Error& e) {
      std::string text = fmt::format("!{}{}{}", e.message(), between, e.remedy());
      for (char& c : text)
        if (c == '\n') c = ' ';
      line.write(text);
    }
  });
  const std::optional<std::string> line = worker.receive(patience);
  if (!line)
    throw Error(ErrorKind::environment, to_string(device),
                fmt::format("a child process that asked for its facts {}", worker.fate(patience)));
  if (line->starts_with('!')) {
    const std::size_t at = line->find(between);
    throw Error(ErrorKind::environment, to_string(device), line->substr(1, at - 1),
                at == std::string::npos ? "" : line->substr(at + 1));
  }
  return finished(unpacked(*line, device));
}

}  // namespace v1
}  // namespace attile
