#include "autotune/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "dsl/error.h"
#include "runtime/signal_blocked.h"

namespace attile {
inline namespace v1 {
namespace {

bool write_whole(int fd, std::string text) {
  text += '\n';
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

std::optional<std::string> take_line(std::string& pending) {
  const std::size_t end = pending.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = pending.substr(0, end);
  pending.erase(0, end + 1);
  return line;
}

// A pipe's end stays in this process; exec closes it.
struct Pipe {
  Fd read, write;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw Error(ErrorKind::resource, "tuning", fmt::format("no pipe to a child process: {}", error_text(errno)));
    read = Fd(ends[0]), write = Fd(ends[1]);
  }
};

[[noreturn]] void be_child(const std::function<void(WorkerLine&)>& body, int from, int to, pid_t parent) {
  ::setpgid(0, 0);                     // Ctrl-C is for the parent, which ends its children
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // and a parent that is killed leaves none behind
  if (::getppid() != parent) ::_exit(0);
  rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  for (const int signal : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::signal(signal, SIG_DFL);
  const int nowhere = ::open("/dev/null", O_RDWR);
  ::dup2(nowhere, 0), ::dup2(nowhere, 1), ::dup2(nowhere, 2);
  int code = 0;
  try {
    WorkerLine line(from, to);
    body(line);
  } catch (...) {
    code = 70;
  }
  ::_exit(code);
}

}  // namespace

std::optional<std::string> WorkerLine::read() {
  for (;;) {
    if (auto line = take_line(pending_)) return line;
    char buffer[4096];
    const ssize_t count = ::read(from_, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    pending_.append(buffer, static_cast<std::size_t>(count));
  }
}

void WorkerLine::write(const std::string& line) {
  if (!write_whole(to_, line)) ::_exit(0);  // the parent is gone
}

Worker::Worker(const std::function<void(WorkerLine&)>& body) {
  Pipe down, up;
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw Error(ErrorKind::resource, "tuning", fmt::format("no child process: {}", error_text(errno)));
  if (pid_ == 0) {
    up.read.reset(), down.write.reset();
    be_child(body, down.read.get(), up.write.get(), parent);
  }
  from_ = std::move(up.read), to_ = std::move(down.write);
}

Worker::~Worker() { reap(true); }

bool Worker::send(const std::string& line) {
  if (gone_) return false;
  const SignalBlocked blocked(SIGPIPE);  // which writing to a child that is gone raises
  return write_whole(to_.get(), line);
}

bool Worker::fill() {
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(from_.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    pending_.append(buffer, static_cast<std::size_t>(count));
    return true;
  }
}

std::optional<std::string> Worker::receive(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e6)));
  for (;;) {
    if (auto line = take_line(pending_)) return line;
    if (gone_) return std::nullopt;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd wait{from_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<long>(left, 0)));
    if (ready < 0 && errno != EINTR) gone_ = true;
    if (ready > 0 && !fill()) gone_ = true, reap(false);
    if (ready == 0 && left <= 0) return std::nullopt;
  }
}

void Worker::wait_any(std::span<Worker* const> workers, double seconds) {
  std::vector<pollfd> waits;
  for (const Worker* w : workers) {
    if (w->gone_ || w->pending_.find('\n') != std::string::npos) return;
    waits.push_back({w->from_.get(), POLLIN, 0});
  }
  ::poll(waits.data(), waits.size(), static_cast<int>(std::clamp(seconds, 0.0, 1e6) * 1e3));
}

// The child closed its end: it ends by itself, unless it does not.
void Worker::reap(bool at_once) {
  if (reaped_ || pid_ <= 0) return;
  for (int tries = 0; !at_once && tries < 200; ++tries) {
    const pid_t done = ::waitpid(pid_, &status_, WNOHANG);
    if (done == pid_) return static_cast<void>(reaped_ = true);
    ::usleep(5000);
  }
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  reaped_ = gone_ = true;
}

std::string Worker::fate(double seconds) {
  if (!gone_) return fmt::format("hung: no answer within {:.3g} s", seconds);
  if (WIFSIGNALED(status_))
    return fmt::format("crashed: signal {} ({})", WTERMSIG(status_), strsignal(WTERMSIG(status_)));
  return fmt::format("ended: code {}", WEXITSTATUS(status_));
}

}  // namespace v1
}  // namespace attile
