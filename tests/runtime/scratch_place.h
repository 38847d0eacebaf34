// What the tests of the runtime share: a folder that goes away, captured warnings, code run in a child process, and
// code run as a user without rights.
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/options.h"

namespace attile::test {

namespace fs = std::filesystem;

class ScratchPlace {
 public:
  explicit ScratchPlace(const std::string& below = "") {
    std::string name = (fs::temp_directory_path() / "attile-test-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    chmod(name.c_str(), 0755);
    root_ = name;
    path_ = below.empty() ? root_ : root_ / below;
    fs::create_directories(path_);
    chmod(path_.c_str(), 0700);
  }
  ~ScratchPlace() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  std::string str() const { return path_.string(); }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path root_, path_;
};

// Collects warnings instead of printing them; every text can be said again.
class Warnings {
 public:
  Warnings() {
    forget_warnings();
    set_text_sink([this](std::string_view text) {
      std::lock_guard lock(mutex_);
      texts_.emplace_back(text);
    });
  }
  ~Warnings() { set_text_sink({}); }
  std::vector<std::string> texts() {
    std::lock_guard lock(mutex_);
    return texts_;
  }
  std::size_t count() { return texts().size(); }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

// Ends the child with a message; for use in run_in_child only.
inline void expect(bool holds, const std::string& text) {
  if (!holds) throw std::runtime_error(text);
}

// Starts a child that exits with 0 when `body` returns and with 1, after printing the text, when it throws.
inline pid_t start_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  pid_t child = fork();
  if (child != 0) return child;
  int code = 0;
  try {
    body();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "in a child process: %s\n", e.what());
    code = 1;
  }
  std::fflush(nullptr);
  _exit(code);
}

// The exit code, or minus the signal that ended it.
inline int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 1000;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

inline int run_in_child(const std::function<void()>& body) { return wait_for(start_child(body)); }

// Rights are checked against nobody; root may write everywhere.
inline void become_nobody() {
  if (geteuid() != 0) return;
  expect(setgroups(0, nullptr) == 0 && setgid(65534) == 0 && setuid(65534) == 0, "cannot give up root");
}

// A value that children share with their parent.
template <typename T>
class SharedValue {
 public:
  SharedValue() {
    void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    value_ = new (memory) T();
  }
  ~SharedValue() { munmap(value_, sizeof(T)); }
  T* operator->() { return value_; }
  T& operator*() { return *value_; }

 private:
  T* value_;
};

inline std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& found : fs::directory_iterator(folder)) names.push_back(found.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace attile::test
