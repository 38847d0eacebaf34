#include "runtime/nvrtc.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "dsl/error.h"
#include "runtime/options.h"
#include "runtime/shared_library.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr const char* sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr const char* how_to_get =
    "install it with 'pip install nvidia-cuda-nvrtc' (driver 580 or newer) or 'pip install nvidia-cuda-nvrtc-cu12', or "
    "set ATTILE_NVRTC to the path of libnvrtc.so";

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::environment, "NVRTC", what, remedy);
}

bool bind_all(void* library, Nvrtc& n) {
  bind(library, "nvrtcSetFlowCallback", n.set_flow_callback);
  return bind(library, "nvrtcGetErrorString", n.get_error_string) && bind(library, "nvrtcVersion", n.get_version) &&
         bind(library, "nvrtcGetNumSupportedArchs", n.get_num_supported_archs) &&
         bind(library, "nvrtcGetSupportedArchs", n.get_supported_archs) &&
         bind(library, "nvrtcCreateProgram", n.create_program) &&
         bind(library, "nvrtcDestroyProgram", n.destroy_program) &&
         bind(library, "nvrtcCompileProgram", n.compile_program) &&
         bind(library, "nvrtcGetProgramLogSize", n.get_program_log_size) &&
         bind(library, "nvrtcGetProgramLog", n.get_program_log) &&
         bind(library, "nvrtcGetCUBINSize", n.get_cubin_size) && bind(library, "nvrtcGetCUBIN", n.get_cubin) &&
         bind(library, "nvrtcGetPTXSize", n.get_ptx_size) && bind(library, "nvrtcGetPTX", n.get_ptx);
}

// NVRTC opens its built-ins itself at the first compile, beside the path it was opened by and then by name; opening
// them here, beside the file that path leads to, makes it find them also through a link.
void open_builtins(const Nvrtc& n) {
  std::string name = fmt::format("libnvrtc-builtins.so.{}.{}", n.major, n.minor), faults;
  std::vector<std::string> files{folder_of(n.path) + "/" + name};
  add_new(files, folder_of(resolved(n.path)) + "/" + name);
  add_new(files, name);
  for (const std::string& file : files) {
    OpenedLibrary library = open_library(file);
    if (library.handle) return;
    faults += fmt::format("{}{}", faults.empty() ? "" : "; ", library.fault);
  }
  refuse(fmt::format("{} (version {}) lacks {}, which belongs beside it ({})", n.path, n.version(), name, faults),
         "install NVRTC anew, or name another in ATTILE_NVRTC");
}

void add_files(NvrtcPlaces& places, const std::string& folder) {
  add_new(places.folders, folder);
  for (const char* soname : sonames)
    if (std::string file = fmt::format("{}/{}", folder, soname); is_file(file)) add_new(places.names, std::move(file));
}

}  // namespace

std::string Nvrtc::version() const { return fmt::format("{}.{}", major, minor); }

const Nvrtc* open_nvrtc(const std::string& name) {
  OpenedLibrary library = open_library(name);
  if (!library.handle) refuse(library.fault, how_to_get);
  Nvrtc n{};
  n.path = library.path;
  if (!bind_all(library.handle, n)) refuse(fmt::format("{} is no NVRTC, or one before 11.2", n.path), how_to_get);
  int count = 0;
  if (n.get_version(&n.major, &n.minor) != NvrtcResult::success ||
      n.get_num_supported_archs(&count) != NvrtcResult::success || count < 1 || count > 1000)
    refuse(fmt::format("{} does not tell its version", n.path), how_to_get);
  n.archs.resize(static_cast<std::size_t>(count));
  if (n.get_supported_archs(n.archs.data()) != NvrtcResult::success)
    refuse(fmt::format("{} does not tell what it compiles for", n.path), how_to_get);
  std::sort(n.archs.begin(), n.archs.end());
  open_builtins(n);
  return new Nvrtc(n);
}

NvrtcPlaces nvrtc_places(const std::string& chosen, const SearchedMachine& machine) {
  if (!chosen.empty()) return {{chosen}, {}};
  NvrtcPlaces places;
  places.names.assign(std::begin(sonames), std::end(sonames));
  for (const std::string& toolkit : toolkit_folders(machine)) {
    for (const char* below : {"/lib64", "/lib"}) add_files(places, toolkit + below);
    for (const std::string& target : names_beginning(toolkit + "/targets", ""))
      add_files(places, toolkit + "/targets/" + target + "/lib");
  }
  for (const std::string& python : python_folders(machine))
    for (const char* below : {"/nvidia/cu13/lib", "/nvidia/cuda_nvrtc/lib"}) add_files(places, python + below);
  return places;
}

NvrtcPlaces nvrtc_places() { return nvrtc_places(options().nvrtc, this_machine()); }

const Nvrtc* find_nvrtc(const NvrtcPlaces& places) {
  std::string faults;
  for (const std::string& name : places.names) {
    try {
      return open_nvrtc(name);
    } catch (const Error& error) {
      faults += fmt::format("\n  {}", error.message());
    }
  }
  if (places.folders.empty())  // ATTILE_NVRTC is set
    refuse(fmt::format("ATTILE_NVRTC does not name a compiler that works:{}", faults),
           "correct the variable, or unset it");
  refuse(fmt::format("the compiler of CUDA kernels was not found; tried:{}\nand looked in {}", faults,
                     fmt::join(places.folders, ", ")),
         how_to_get);
}

const Nvrtc& nvrtc() {
  static const Nvrtc* library = find_nvrtc(nvrtc_places());
  return *library;
}

}  // namespace v1
}  // namespace attile
