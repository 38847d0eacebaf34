#include "runtime/cache_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "runtime/file_lock.h"
#include "runtime/files.h"

namespace attile {
inline namespace v1 {
namespace {

// A temporary folder on a file system without locks counts as abandoned after this time.
constexpr std::time_t abandoned_after_s = 3600;

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

// Empty, with the reason, where the environment names no place.
std::string choose(const std::string& asked, std::string& reason) {
  std::string path = asked;
  if (path.empty()) {
    // The XDG rules say that a relative path there is to be ignored.
    if (const char* xdg = variable("XDG_CACHE_HOME"); xdg && *xdg == '/')
      path = fmt::format("{}/attile", xdg);
    else if (const char* home = variable("HOME"); home && *home == '/')
      path = fmt::format("{}/.cache/attile", home);
    else
      reason = "HOME is not set";
  } else if (path[0] != '/') {
    char* here = ::getcwd(nullptr, 0);
    if (here) path = fmt::format("{}/{}", here, path);
    std::free(here);
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Whether someone else could put machine code into the folder; the reason, or empty.
std::string distrust(const struct stat& status, bool ordered_readonly) {
  if (status.st_mode & S_IWOTH) return "every user may write to it";
  if (status.st_uid == ::geteuid() || ordered_readonly) return {};
  if (status.st_uid != 0) return fmt::format("it belongs to another user (id {})", status.st_uid);
  return {};
}

void note_error(CacheFolder& folder, std::string_view what, int error) {
  folder.reason = fmt::format("'{}' {}: {}", folder.path, what, error_text(error));
}

bool hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

void sweep_temporary(const std::string& path) {
  Fd fd = open_folder(path);
  if (!fd) return static_cast<void>(remove_tree(path));  // a file, or gone
  int error = lock_folder(fd);
  if (error == EWOULDBLOCK) return;  // its writer lives
  struct stat status {};
  if (error && (fstat(fd.get(), &status) != 0 || status.st_mtime + abandoned_after_s > std::time(nullptr))) return;
  remove_tree(path);
}

}  // namespace

CacheFolder open_cache_folder(const std::string& asked, CacheMode mode) {
  CacheFolder folder;
  if (mode == CacheMode::off) return folder;
  folder.path = choose(asked, folder.reason);
  if (folder.path.empty()) return folder;
  bool ordered_readonly = mode == CacheMode::readonly;
  if (!ordered_readonly) {
    if (int error = make_folders(folder.path)) return note_error(folder, "cannot be created", error), folder;
  }
  struct stat status {};
  if (::stat(folder.path.c_str(), &status) != 0) {
    if (!ordered_readonly || errno != ENOENT) note_error(folder, "cannot be read", errno);
    return folder;
  }
  if (!S_ISDIR(status.st_mode)) return note_error(folder, "cannot be used", ENOTDIR), folder;
  if (std::string fault = distrust(status, ordered_readonly); !fault.empty()) {
    folder.reason = fmt::format("'{}' is not trusted: {}", folder.path, fault);
    return folder;
  }
  folder.readable = true;
  if (ordered_readonly) return folder;
  folder.writable = ::faccessat(AT_FDCWD, folder.path.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
  if (!folder.writable) note_error(folder, "cannot be written", errno);
  return folder;
}

bool is_entry_name(std::string_view name) {
  if (name.size() < 34 || name[0] == '.' || name[name.size() - 33] != '-') return false;
  return std::all_of(name.end() - 32, name.end(), hex);
}

void sweep_leftovers(const std::string& folder) {
  std::vector<std::string> names;
  if (list_folder(folder, names)) return;
  for (const std::string& name : names) {
    std::string path = fmt::format("{}/{}", folder, name);
    if (name.starts_with(temporary_prefix)) sweep_temporary(path);
    if (name.starts_with(lock_prefix)) FileLock::remove_if_free(path);
  }
}

int discard_entry(const std::string& folder, const std::string& name) {
  std::string path = fmt::format("{}/{}", folder, name);
  std::string aside = fmt::format("{}/{}{}-{}", folder, temporary_prefix, name, unique_suffix());
  if (::rename(path.c_str(), aside.c_str()) != 0) return errno == ENOENT ? 0 : errno;
  return remove_tree(aside);
}

std::vector<EntryOnDisk> entries_on_disk(const std::string& folder) {
  std::vector<std::string> names, files;
  std::vector<EntryOnDisk> entries;
  list_folder(folder, names);
  for (const std::string& name : names) {
    struct stat status {};
    std::string path = fmt::format("{}/{}", folder, name);
    if (!is_entry_name(name) || ::lstat(path.c_str(), &status) != 0) continue;
    EntryOnDisk entry{name, 0, status.st_mtim.tv_sec * 1000000000LL + status.st_mtim.tv_nsec};
    list_folder(path, files);
    for (const std::string& file : files)
      if (::lstat(fmt::format("{}/{}", path, file).c_str(), &status) == 0)
        entry.bytes += static_cast<std::uint64_t>(status.st_size);
    entries.push_back(std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const EntryOnDisk& a, const EntryOnDisk& b) { return a.last_used_ns < b.last_used_ns; });
  return entries;
}

void touch_entry(const std::string& folder, const std::string& name) {
  std::string path = fmt::format("{}/{}", folder, name);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || status.st_mtime + 60 > std::time(nullptr)) return;
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

}  // namespace v1
}  // namespace attile
