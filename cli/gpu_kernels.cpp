#include "cli/gpu_kernels.h"

#include <fmt/format.h>

namespace attile::cli {
namespace {

GpuKernel described(const EmittedKernel& k, const std::optional<CudaBuild>& build) {
  GpuKernel out{k.name, k.threads, k.shared_bytes, {}, {}};
  if (!build) return out;
  if (build->resources_known) out.resources = build->resources;
  out.warnings = build->warnings;
  return out;
}

std::string kib(std::int64_t bytes) {
  return bytes % 1024 == 0 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} bytes", bytes);
}

}  // namespace

std::vector<GpuKernel> compiled_kernels(const Program& program) {
  std::vector<GpuKernel> out;
  for (const EmittedKernel& k : program.kernels) out.push_back(described(k, build_cuda(k, program.target.arch)));
  return out;
}

std::vector<GpuKernel> cached_kernels(const Program& program) {
  std::vector<GpuKernel> out;
  for (const EmittedKernel& k : program.kernels) out.push_back(described(k, find_cuda_build(k, program.target.arch)));
  return out;
}

std::vector<GpuKernel> bare_kernels(const Program& program) {
  std::vector<GpuKernel> out;
  for (const EmittedKernel& k : program.kernels) out.push_back(described(k, std::nullopt));
  return out;
}

std::string resources_text(const GpuKernel& k) {
  std::string text;
  if (k.resources) {
    const CudaResources& r = *k.resources;
    text = fmt::format("{} registers, ", r.registers);
    text += r.spill_store_bytes + r.spill_load_bytes == 0
                ? std::string("no spills")
                : fmt::format("SPILLS: {} bytes stored, {} loaded", r.spill_store_bytes, r.spill_load_bytes);
    if (r.stack_bytes > 0) text += fmt::format(", {} bytes of stack", r.stack_bytes);
    text += ", ";
  }
  return text + fmt::format("{} of shared memory, {} threads", kib(k.shared()), k.threads);
}

Json resources_json(const GpuKernel& k) {
  Json json = {{"name", k.name}, {"threads", k.threads}, {"shared_bytes", k.shared()}};
  if (k.resources) {
    const CudaResources& r = *k.resources;
    json["registers"] = r.registers;
    json["spill_store_bytes"] = r.spill_store_bytes;
    json["spill_load_bytes"] = r.spill_load_bytes;
    json["stack_bytes"] = r.stack_bytes;
  }
  json["warnings"] = k.warnings;
  return json;
}

}  // namespace attile::cli
