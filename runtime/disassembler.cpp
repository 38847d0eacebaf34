#include "runtime/disassembler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "dsl/error.h"
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
    const char* folder = std::getenv("TMPDIR");
    path = fmt::format("{}/attile-XXXXXX.cubin", folder && *folder ? folder : "/tmp");
    Fd file(mkostemps(path.data(), 6, O_CLOEXEC));
    bool whole = file && ::write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size());
    if (!whole)
      throw Error(ErrorKind::resource, where, fmt::format("cannot write {}: {}", path, error_text(errno)),
                  "set TMPDIR");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path.c_str()); }

  std::string path;
};

std::string read_all(const Fd& fd) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

// Runs a program without a shell; returns its exit status as waitpid gives it, -1 where it could not be started.
int run_program(std::vector<std::string> words, std::string& output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  Fd from(ends[0]), to(ends[1]);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, to.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, to.get(), 2);
  pid_t child = 0;
  int error = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return -1;
  to.reset();
  output = read_all(from);
  int status = -1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

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
  std::vector<std::string> words{program, is_cuobjdump(program) ? "-sass" : "-c", file.path};
  std::string text;
  int status = run_program(words, text);
  if (status == -1)
    throw Error(ErrorKind::environment, where, fmt::format("cannot start {}", program), "install it anew");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw Error(ErrorKind::internal, where, fmt::format("{} refused the cubin: {}", program, text.substr(0, 400)),
                "a disassembler older than NVRTC may not know the chip: 'pip install --upgrade nvidia-cuda-nvdisasm'");
  return text;
}

}  // namespace v1
}  // namespace attile
