#include "cli/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "dsl/error.h"

namespace attile::cli {
namespace {

[[noreturn]] void unwritable(const std::string& path, int error) {
  throw Error(ErrorKind::environment, path, fmt::format("the file cannot be written: {}", error_text(error)));
}

// A link stays a link: what it leads to is replaced.
std::string followed(const std::string& path) {
  char buffer[PATH_MAX];
  return realpath(path.c_str(), buffer) != nullptr ? std::string(buffer) : path;
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path), place_(followed(path)) {
  struct stat status {};
  const bool exists = stat(place_.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) unwritable(path_, EISDIR);
  if (exists && access(place_.c_str(), W_OK) != 0) unwritable(path_, errno);
  if (exists && !S_ISREG(status.st_mode)) {
    file_ = Fd(open(place_.c_str(), O_WRONLY | O_CLOEXEC));
  } else {
    beside_ = fmt::format("{}.{}.part", place_, unique_suffix());
    file_ = Fd(open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_ && exists) fchmod(file_.get(), status.st_mode & 07777);
  }
  if (!file_) {
    const int error = errno;
    beside_.clear();
    unwritable(path_, error);
  }
}

OutputFile::~OutputFile() {
  if (!beside_.empty()) unlink(beside_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) unwritable(path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::finish() {
  if (const int error = file_.reset()) unwritable(path_, error);
  if (beside_.empty()) return;
  if (std::rename(beside_.c_str(), place_.c_str()) != 0) unwritable(path_, errno);
  beside_.clear();
}

}  // namespace attile::cli
