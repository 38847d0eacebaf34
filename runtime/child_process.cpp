#include "runtime/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "dsl/error.h"
#include "runtime/files.h"
#include "runtime/shared_library.h"

extern char** environ;

namespace attile {
inline namespace v1 {
namespace {

std::string read_all(const Fd& fd) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

int wait_for_end(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

ChildResult run_child(std::vector<std::string> words, bool with_stderr) {
  const auto refuse = [&](int error) {
    throw Error(ErrorKind::environment, words.front(), fmt::format("it cannot be started: {}", error_text(error)));
  };
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) refuse(errno);
  const Fd from(ends[0]);
  Fd to(ends[1]);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, to.get(), 1);
  if (with_stderr) posix_spawn_file_actions_adddup2(&actions, to.get(), 2);
  pid_t child = 0;
  const int error = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) refuse(error);
  to.reset();
  ChildResult result;
  result.output = read_all(from);
  result.code = wait_for_end(child);
  return result;
}

}  // namespace v1
}  // namespace attile
