// A lock between processes (and between objects of one process) on a file that exists only while it is wanted. The
// kernel of the system releases it when its holder dies. Where the file system has no locks, or the holder never
// lets go, the caller goes on without: a lock here saves work, it never guards correctness.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "dsl/export.h"
#include "runtime/files.h"

namespace attile {
inline namespace v1 {

class ATTILE_API FileLock {
 public:
  // Waits until the lock is held, `enough` (may be empty) says there is no need any more, or the time is over.
  FileLock(std::string path, std::chrono::milliseconds patience, const std::function<bool()>& enough);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

  bool held() const noexcept { return static_cast<bool>(fd_); }
  // Another one had it until the time was over.
  bool busy() const noexcept { return busy_; }

  // Removes the file if its holder is gone; for the leftovers of killed processes.
  static void remove_if_free(const std::string& path);

 private:
  enum class Attempt { held, busy, again, impossible };
  Attempt attempt(bool create);
  FileLock(std::string path) : path_(std::move(path)) {}

  std::string path_;
  Fd fd_;
  bool busy_ = false;
};

// Locks an open folder for as long as it is open; EWOULDBLOCK when another has it, another errno where it cannot be.
ATTILE_API int lock_folder(const Fd& folder);

}  // namespace v1
}  // namespace attile
