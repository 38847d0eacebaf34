#include "runtime/llvm_module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <climits>

#include "dsl/error.h"
#include "runtime/options.h"
#include "runtime/shared_library.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr const char* file_name = "libattile_llvm.so";

// The file this code lies in: libattile.so, a Python extension or the program itself when linked statically.
std::string own_file() {
  Dl_info info{};
  link_map* map = nullptr;
  if (!dladdr1(reinterpret_cast<void*>(&own_file), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP)) return {};
  // For the program, dli_fname is argv[0], which says little after a search in PATH or a change of folder.
  if (map && map->l_name && *map->l_name) return map->l_name;
  char buffer[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", buffer, sizeof buffer);
  return length > 0 ? std::string(buffer, static_cast<std::size_t>(length)) : std::string(info.dli_fname);
}

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::environment, "LLVM module", what, remedy);
}

const LlvmModule* bind_all(void* library, const std::string& path) {
  decltype(&attile_llvm_abi) abi = nullptr;
  LlvmModule module{};
  module.path = path;
  if (!bind(library, "attile_llvm_abi", abi) || abi() != ATTILE_LLVM_ABI)
    refuse(fmt::format("{} belongs to another version of Attile (its interface is {}, {} is needed)", path,
                       abi ? std::to_string(abi()) : "unknown", ATTILE_LLVM_ABI),
           "install the module that came with this library, or unset ATTILE_LLVM_MODULE");
  bool complete =
      bind(library, "attile_llvm_version", module.version) && bind(library, "attile_llvm_compile", module.compile) &&
      bind(library, "attile_llvm_load", module.load) && bind(library, "attile_llvm_lookup", module.lookup) &&
      bind(library, "attile_llvm_unload", module.unload) && bind(library, "attile_llvm_free", module.free);
  if (!complete) refuse(fmt::format("{} lacks functions", path), "install the module that came with this library");
  return new LlvmModule(module);
}

const LlvmModule* open_module() {
  std::string faults;
  for (const std::string& place : llvm_module_places()) {
    // Local: its symbols must not serve (or be served by) another LLVM in the process.
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return bind_all(library, place);
    const char* fault = dlerror();
    faults += fmt::format("\n  {}", fault ? fault : place);
  }
  refuse(fmt::format("the module that compiles kernels for the CPU was not found; tried:{}", faults),
         "set ATTILE_LLVM_MODULE to the path of libattile_llvm.so, or reinstall Attile");
}

}  // namespace

std::vector<std::string> llvm_module_places() {
  if (!options().llvm_module.empty()) return {options().llvm_module};
  std::vector<std::string> places;
  auto add = [&](std::string place) {
    for (const std::string& known : places)
      if (known == place) return;
    places.push_back(std::move(place));
  };
  std::string own = own_file();
  for (const std::string& folder : {folder_of(own), folder_of(resolved(own))})
    for (const char* below : {"", "attile/", "../lib/attile/", "../lib/", "../lib64/attile/", "../lib64/"})
      add(fmt::format("{}/{}{}", folder, below, file_name));
  add(file_name);  // the loader's own search: LD_LIBRARY_PATH, ld.so.cache
  return places;
}

const LlvmModule& llvm_module() {
  // No static initialiser: a child of a fork would wait for the thread of its parent that was in it.
  static std::atomic<const LlvmModule*> known{nullptr};
  if (const LlvmModule* module = known) return *module;
  const LlvmModule* none = nullptr;
  known.compare_exchange_strong(none, open_module());  // opened twice it is the same library
  return *known;
}

}  // namespace v1
}  // namespace attile
