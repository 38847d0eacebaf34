// Kernels as the cache sees them, for its tests.
#pragma once

#include <string>

#include "runtime/cache.h"
#include "tests/runtime/scratch_place.h"

namespace attile::test {

inline CacheKey key_of(const std::string& text) {
  return {"attention", {{"text", text}, {"target", "x86-64-v3"}, {"compiler", "LLVM 19.1.7"}, {"library", "0.1.0"}}};
}

inline CacheEntry kernel_of(const std::string& text) {
  CacheEntry entry;
  entry.files["kernel.ll"] = "; " + text + "\n";
  entry.files["kernel.ir"] = "the ir of " + text + "\n";
  entry.files["kernel.o"] = std::string(3000, 'o') + text + std::string(1, '\0') + "end";
  entry.files["compile.log"] = "";
  return entry;
}

inline CacheOptions in_folder(const std::string& folder) {
  CacheOptions options;
  options.folder = folder;
  return options;
}

// Asks for the kernel of `text`, counts a build, and says whether what came back is that kernel.
struct Asked {
  bool right = false, hit = false;
};
inline Asked ask(KernelCache& cache, const std::string& text, const std::function<void()>& while_building = {}) {
  Asked asked;
  CacheEntry entry = cache.get_or_build(
      key_of(text),
      [&] {
        if (while_building) while_building();
        return kernel_of(text);
      },
      &asked.hit);
  asked.right = entry.files == kernel_of(text).files;
  return asked;
}

inline fs::path entry_path(const std::string& folder, const std::string& text) {
  return fs::path(folder) / key_of(text).folder_name();
}

}  // namespace attile::test
