#include "runtime/chooser.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "runtime/fork_mutex.h"

namespace attile {
inline namespace v1 {
namespace {

struct State {
  std::shared_mutex& mutex = mutex_of(Guarded::chooser);
  std::shared_ptr<Chooser> chooser;
  std::shared_ptr<Chooser> (*make)() = nullptr;
  bool made = false;
  std::atomic<Tuning> tuning{Tuning::cached};
  std::atomic<Building> building{Building::on_demand};
};
// Never destroyed: a call may still run while the process exits.
State& state() {
  static auto* s = new State();
  return *s;
}

}  // namespace

Chooser::~Chooser() = default;

void set_chooser(std::shared_ptr<Chooser> chooser) {
  const std::lock_guard lock(state().mutex);
  state().chooser.swap(chooser);  // the one before ends after the lock
  state().made = true;
}

std::shared_ptr<Chooser> chooser() {
  std::shared_ptr<Chooser> (*make)() = nullptr;
  {
    const std::lock_guard lock(state().mutex);
    if (state().made) return state().chooser;
    make = state().make;
  }
  std::shared_ptr<Chooser> made = make ? make() : nullptr;  // looks at folders
  const std::lock_guard lock(state().mutex);
  if (!std::exchange(state().made, true)) state().chooser = std::move(made);
  return state().chooser;
}

void set_chooser_maker(std::shared_ptr<Chooser> (*make)()) {
  const std::lock_guard lock(state().mutex);
  state().make = make;
}

void set_tuning(Tuning tuning) { state().tuning = tuning; }
void set_building(Building building) { state().building = building; }
Tuning tuning() { return state().tuning; }
Building building() { return state().building; }

}  // namespace v1
}  // namespace attile
