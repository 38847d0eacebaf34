#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "dsl/error.h"
#include "runtime/nvrtc.h"

namespace attile {
inline namespace v1 {
namespace {

// No lock: a forked child may exit too, without the threads that would give it back.
std::atomic<int> running{0};
std::atomic<bool> ending{false};
std::atomic<std::thread::id> ending_thread{};

void wait_for_compiles() {
  ending_thread = std::this_thread::get_id();
  ending = true;
  while (running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Handlers run in reverse order of registration, and NVRTC registers some of its own when it is opened and some during
// its first compile: ours has to come after each.
void register_handler() { std::atexit(wait_for_compiles); }

std::atomic<bool> first_is_done{false};

}  // namespace

NvrtcInUse::NvrtcInUse() {
  static const bool once = [] {
    pthread_atfork(nullptr, nullptr, [] { running = 0; });
    register_handler();
    return true;
  }();
  (void)once;
  ++running;
  stop_if_ending();
}

NvrtcInUse::~NvrtcInUse() {
  if (!first_is_done.exchange(true)) register_handler();
  --running;
}

int NvrtcInUse::keep_going(void*, void*) {
  if (!first_is_done) register_handler();
  return ending;
}

void NvrtcInUse::stop_if_ending() {
  if (!ending) return;
  --running;
  if (ending_thread.load() == std::this_thread::get_id())
    throw Error(ErrorKind::environment, "compile for CUDA", "the process is ending", "compile before exit is called");
  for (;;) pause();
}

}  // namespace v1
}  // namespace attile
