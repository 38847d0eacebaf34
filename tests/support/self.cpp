#include "tests/support/self.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>

namespace attile::test {
namespace {

constexpr const char* marker = "ATTILE_TEST_CHILD";

[[noreturn]] void become_test(const std::string& test, const std::vector<std::pair<std::string, std::string>>& environment,
                              int limit_seconds, int output) {
  dup2(output, 1), dup2(output, 2);
  for (const auto& [name, value] : environment) value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  setenv(marker, "1", 1);
  alarm(static_cast<unsigned>(limit_seconds));   // stays over exec
  execl("/proc/self/exe", "test", test.c_str(), nullptr);
  _exit(127);
}

}  // namespace

SelfRun run_self(const std::string& test, const std::vector<std::pair<std::string, std::string>>& environment, int limit_seconds) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no child process");
  if (child == 0) become_test(test, environment, limit_seconds, ends[1]);
  close(ends[1]);
  SelfRun run;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(ends[0], buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    run.output.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return run;
}

bool in_self_run() { return std::getenv(marker) != nullptr; }

}  // namespace attile::test
