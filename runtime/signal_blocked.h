// A signal that what this thread does may raise, such as SIGPIPE, held back and dropped.
#pragma once

#include <signal.h>
#include <time.h>

namespace attile {
inline namespace v1 {

class SignalBlocked {
 public:
  explicit SignalBlocked(int signal) : number_(signal) {
    sigemptyset(&signal_);
    sigaddset(&signal_, signal);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  SignalBlocked(const SignalBlocked&) = delete;
  SignalBlocked& operator=(const SignalBlocked&) = delete;
  ~SignalBlocked() {
    if (!sigismember(&before_, number_)) {
      timespec now{0, 0};
      while (sigtimedwait(&signal_, nullptr, &now) > 0) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  const int number_;
  sigset_t signal_, before_;
};

}  // namespace v1
}  // namespace attile
