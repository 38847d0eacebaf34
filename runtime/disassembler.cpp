#include "runtime/disassembler.h"

#include <fmt/format.h>
#include <unistd.h>

#include "dsl/error.h"
#include "runtime/child_process.h"
#include "runtime/files.h"
#include "runtime/shared_library.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr const char* where = "disassemble";

// A file of its own that goes away.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    if (const int error = write_temporary(".cubin", content, path); error != 0)
      throw Error(ErrorKind::resource, where, fmt::format("cannot write {}: {}", path, error_text(error)),
                  "set TMPDIR");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path.c_str()); }

  std::string path;
};

bool is_cuobjdump(const std::string& path) { return path.ends_with("/cuobjdump"); }

}  // namespace

std::string find_disassembler(const SearchedMachine& machine) {
  std::vector<std::string> folders = path_folders(machine);
  for (const std::string& toolkit : toolkit_folders(machine)) add_new(folders, toolkit + "/bin");
  for (const std::string& python : python_folders(machine))
    for (const char* below : {"/nvidia/cu13/bin", "/nvidia/cuda_nvdisasm/bin", "/nvidia/cuda_cuobjdump/bin"})
      add_new(folders, python + below);
  // cuobjdump itself needs nvdisasm for this.
  for (const char* name : {"/nvdisasm", "/cuobjdump"})
    for (const std::string& folder : folders)
      if (std::string path = folder + name; is_file(path) && ::access(path.c_str(), X_OK) == 0) return path;
  return {};
}

std::string disassemble(const std::string& cubin, const SearchedMachine& machine) {
  const std::string program = find_disassembler(machine);
  if (program.empty())
    throw Error(ErrorKind::environment, where,
                "neither nvdisasm nor cuobjdump was found in PATH, the CUDA toolkit or the Python packages",
                "install one: 'pip install nvidia-cuda-nvdisasm', or nvidia-cuda-cuobjdump, and make it executable");
  const TemporaryFile file(cubin);
  const ChildResult result = run_child({program, is_cuobjdump(program) ? "-sass" : "-c", file.path});
  if (result.code != 0)
    throw Error(ErrorKind::internal, where,
                fmt::format("{} refused the cubin: {}", program, result.output.substr(0, 400)),
                "a disassembler older than NVRTC may not know the chip: 'pip install --upgrade nvidia-cuda-nvdisasm'");
  return result.output;
}

}  // namespace v1
}  // namespace attile
