#include "runtime/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace attile {
inline namespace v1 {

FileLock::FileLock(std::string path, std::chrono::milliseconds patience, const std::function<bool()>& enough)
    : path_(std::move(path)) {
  auto end = std::chrono::steady_clock::now() + patience;
  std::chrono::microseconds pause{250};
  for (;;) {
    if (enough && enough()) return;
    Attempt result = attempt(/*create=*/true);
    if (result == Attempt::held || result == Attempt::impossible) return;
    if (result == Attempt::again) continue;
    busy_ = std::chrono::steady_clock::now() >= end;
    if (busy_) return;
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(8));
  }
}

FileLock::~FileLock() {
  if (!fd_) return;
  ::unlink(path_.c_str());
  // A child forked meanwhile shares the lock; closing alone would leave it with the child.
  ::flock(fd_.get(), LOCK_UN);
}

FileLock::Attempt FileLock::attempt(bool create) {
  Fd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600));
  if (!fd) return Attempt::impossible;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) return Attempt::again;
    return errno == EWOULDBLOCK ? Attempt::busy : Attempt::impossible;
  }
  // The last holder removed the file between our open and our lock: ours is a lock on nothing.
  if (!still_names(path_, fd)) return Attempt::again;
  fd_ = std::move(fd);
  return Attempt::held;
}

void FileLock::remove_if_free(const std::string& path) {
  FileLock lock(path);
  lock.attempt(/*create=*/false);
}

int lock_folder(const Fd& folder) {
  while (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

}  // namespace v1
}  // namespace attile
