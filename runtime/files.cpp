#include "runtime/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "runtime/signal_blocked.h"

namespace attile {
inline namespace v1 {
namespace {

int write_all(int fd, std::string_view content) {
  const SignalBlocked blocked(SIGXFSZ);  // which writing beyond RLIMIT_FSIZE raises
  while (!content.empty()) {
    ssize_t count = ::write(fd, content.data(), std::min<std::size_t>(content.size(), 1 << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return ENOSPC;
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace

int Fd::reset() noexcept {
  int fd = std::exchange(fd_, -1);
  return fd >= 0 && ::close(fd) != 0 && errno != EINTR ? errno : 0;
}

int read_file(int folder, const std::string& name, std::size_t limit, std::string& content) {
  // Nonblocking, or a pipe in the file's place would hold us up.
  Fd fd(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return errno;
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EINVAL;
  if (static_cast<std::uint64_t>(status.st_size) > limit) return EFBIG;
  content.resize(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < content.size()) {
    ssize_t count = ::read(fd.get(), content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  content.resize(done);
  return 0;
}

int write_file(int folder, const std::string& name, std::string_view content) {
  Fd fd(::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return errno;
  if (int error = write_all(fd.get(), content)) return error;
  return fd.reset();
}

int write_temporary(std::string_view ending, std::string_view content, std::string& path) {
  const char* folder = std::getenv("TMPDIR");
  path = fmt::format("{}/attile-XXXXXX{}", folder && *folder ? folder : "/tmp", ending);
  const Fd file(::mkostemps(path.data(), static_cast<int>(ending.size()), O_CLOEXEC));
  return file ? write_all(file.get(), content) : errno;
}

int make_folders(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      int error = errno;  // EROFS and EACCES also come for folders that are there
      struct stat status {};
      if (::stat(part.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return error;
    }
    if (slash == std::string::npos) break;
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  return S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
}

int remove_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error.value();
}

int list_folder(const std::string& path, std::vector<std::string>& names) {
  names.clear();
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
  if (!folder) return errno;
  for (;;) {
    errno = 0;
    const dirent* found = ::readdir(folder.get());
    if (!found) break;
    std::string_view name = found->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  int error = errno;
  std::sort(names.begin(), names.end());
  return error;
}

Fd open_folder(const std::string& path) {
  return Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

bool still_names(const std::string& path, const Fd& fd) {
  struct stat open {
  }, named{};
  if (fstat(fd.get(), &open) != 0 || ::lstat(path.c_str(), &named) != 0) return false;
  return open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

std::string error_text(int error) { return std::generic_category().message(error); }

std::string unique_suffix() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof bits)) {
    static std::atomic<std::uint64_t> count{0};
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    bits = (static_cast<std::uint64_t>(getpid()) << 40) ^ (static_cast<std::uint64_t>(now.tv_nsec) << 8) ^
           static_cast<std::uint64_t>(now.tv_sec) ^ (count.fetch_add(1) << 32);
  }
  return fmt::format("{:016x}", bits);
}

}  // namespace v1
}  // namespace attile
