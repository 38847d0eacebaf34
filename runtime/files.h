// Small file operations for the disk cache: no exception for a fault of the file system (they return errno), no
// shell, no narrowing of names, nothing left open over exec, links not followed, and a full disk or a file size limit
// is an error code, never a signal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // The error of close(), which on a network is where a full disk shows.
  int reset() noexcept;

 private:
  int fd_ = -1;
};

// Each returns 0 or an errno.
// Only a regular file of at most `limit` bytes is read (EFBIG, EINVAL otherwise).
ATTILE_API int read_file(int folder, const std::string& name, std::size_t limit, std::string& content);
// Creates the file (EEXIST when it is there), mode 0600; a failed write leaves a partial file.
ATTILE_API int write_file(int folder, const std::string& name, std::string_view content);
// A fresh file in TMPDIR, or else in /tmp, whose name ends in `ending`; `path` tells it.
ATTILE_API int write_temporary(std::string_view ending, std::string_view content, std::string& path);
// With parents; new folders are private (0700).
ATTILE_API int make_folders(const std::string& path);
ATTILE_API int remove_tree(const std::string& path);
// Names in the folder, sorted, without "." and "..".
ATTILE_API int list_folder(const std::string& path, std::vector<std::string>& names);

// The folder itself, opened without following a link; an empty Fd leaves errno.
ATTILE_API Fd open_folder(const std::string& path);
// Whether `path` still names what `fd` has open.
ATTILE_API bool still_names(const std::string& path, const Fd& fd);

ATTILE_API std::string error_text(int error);
// 16 hex digits nobody else has.
ATTILE_API std::string unique_suffix();

}  // namespace v1
}  // namespace attile
