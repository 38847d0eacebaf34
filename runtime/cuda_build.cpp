#include "runtime/cuda_build.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "codegen/embedded.h"
#include "runtime/cache.h"
#include "runtime/cubin.h"
#include "runtime/nvrtc_compiler.h"

namespace attile {
inline namespace v1 {
namespace {

// Of all device headers: which of them a text includes is not looked at.
const std::string& headers_digest() {
  static const std::string digest = [] {
    std::string all;
    for (const embedded::File& file : embedded::device_files()) all += fmt::format("{}\n{}\n", file.path, file.content);
    const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }();
  return digest;
}

CacheEntry compile(const EmittedKernel& k, const std::string& arch) {
  const CompiledCuda compiled = compile_cuda(k.text, k.name + ".cu", arch, embedded::device_files());
  CacheEntry entry;
  entry.files["kernel.cu"] = k.text;
  entry.files["kernel.ir"] = k.ir;
  entry.files["kernel.cubin"] = compiled.image();
  entry.files["compile.log"] = compiled.log;
  return entry;
}

void read_resources(CudaBuild& build, const CudaLog& log, const std::string& name) {
  for (const CudaResources& k : log.kernels)
    if (k.entry == name) build.resources = k, build.resources_known = true;
  const std::optional<CubinInfo> cubin = read_cubin(build.image);
  const CudaResources* known = cubin ? cubin->kernel(name) : nullptr;
  if (known == nullptr) return;
  if (!build.resources_known) build.resources = *known;
  build.resources_known = true;
  build.resources.max_threads = known->max_threads;
  build.resources.parameter_bytes = known->parameter_bytes;
}

CacheKey key_of(const EmittedKernel& k, const std::string& arch) {
  return {k.name,
          {{"text", k.text},
           {"target", arch},
           {"compiler", cuda_compiler_text()},
           {"headers", headers_digest()},
           {"library", ATTILE_VERSION}}};
}

CudaBuild build_of(const CacheEntry& entry, const std::string& name, bool from_disk) {
  CudaBuild build;
  build.from_disk = from_disk;
  build.image = entry.files.at("kernel.cubin");
  const auto text = entry.files.find("compile.log");
  const CudaLog log = parse_cuda_log(text == entry.files.end() ? "" : text->second);
  build.warnings = log.warnings;
  read_resources(build, log, name);
  return build;
}

}  // namespace

CudaBuild build_cuda(const EmittedKernel& k, const std::string& arch) {
  bool hit = false;
  const CacheEntry entry = kernel_cache()->get_or_build(
      key_of(k, arch), [&] { return compile(k, arch); }, &hit);
  return build_of(entry, k.name, hit);
}

std::optional<CudaBuild> find_cuda_build(const EmittedKernel& k, const std::string& arch) {
  const std::unique_ptr<CacheEntry> entry = kernel_cache()->find(key_of(k, arch));
  if (!entry) return std::nullopt;
  return build_of(*entry, k.name, true);
}

}  // namespace v1
}  // namespace attile
