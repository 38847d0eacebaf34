// A child process that does one candidate's work: a fork of this one, so that it has the problem and its tensors
// without a copy. Crashes, hangs and broken CUDA contexts end with it. Parent and child speak in lines.
//
// The parent must not have started the CUDA driver where the child is to use it (a driver does not survive a fork).
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/files.h"

namespace attile {
inline namespace v1 {

// The child's end. What is thrown in the child ends it; say what happened before.
class WorkerLine {
 public:
  WorkerLine(int from, int to) : from_(from), to_(to) {}
  // The next line of the parent; nothing when it is gone.
  std::optional<std::string> read();
  void write(const std::string& line);

 private:
  int from_, to_;
  std::string pending_;
};

class ATTILE_API Worker {
 public:
  // Starts a child that runs `body` and ends. Its standard output and error go nowhere. Throws Error(resource) where no
  // process can be had.
  explicit Worker(const std::function<void(WorkerLine&)>& body);
  ~Worker();  // ends it at once
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // False when the child is gone.
  bool send(const std::string& line);
  // The next line, once it is whole. Nothing: none came within `seconds`, or the child is gone.
  std::optional<std::string> receive(double seconds);
  bool alive() const { return !gone_; }
  // Why no line came: "crashed: signal 11", "ended: code 3", "hung: no answer within 10 s" (given `seconds` were
  // waited).
  std::string fate(double seconds);

  // Waits until one of the workers has something to receive or is gone, at most `seconds`.
  static void wait_any(std::span<Worker* const> workers, double seconds);

 private:
  bool fill();  // reads what is there; false at the end
  void reap(bool at_once);
  pid_t pid_ = -1;
  Fd from_, to_;
  std::string pending_;
  bool gone_ = false, reaped_ = false;
  int status_ = 0;
};

}  // namespace v1
}  // namespace attile
