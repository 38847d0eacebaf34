// Who says which schedule a call gets where the caller names none, and what a call may wait for. The tuner's store
// stands behind this interface; without one the shipped schedules are taken.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/device.h"
#include "schedules/schedule.h"

namespace attile {
inline namespace v1 {

// never: the shipped schedules. cached: what tuning found before. now: a problem without a result is tuned at its first
// call, which takes many seconds, or in the background where that is how kernels are built; as cached where nothing may be
// built.
enum class Tuning : std::uint8_t { never, cached, now };
// on_demand: a kernel that is not there is built, and the call waits. never: an error at once instead. background: the
// call runs with any kernel of its problem that is there while the chosen one is built; an error at once where there is
// none.
enum class Building : std::uint8_t { on_demand, never, background };

struct AttentionCall;

class ATTILE_API Chooser {
 public:
  virtual ~Chooser();
  // Schedules for the call, best first; each may turn out not to work. Empty: nothing is known. Called once for each
  // kernel that a process meets, and again where lengths differ by powers of two; for a thread behind a call that has
  // returned the tensors have no data.
  virtual std::vector<Schedule> choices(const Algorithm& a, const Problem& p, const Target& t,
                                        const AttentionCall& call, Tuning tuning) = 0;
};

// Null: none. Kernels already chosen stay.
ATTILE_API void set_chooser(std::shared_ptr<Chooser> chooser);
ATTILE_API std::shared_ptr<Chooser> chooser();
// Made at the first call that asks, unless one was set before: how the layer above installs its own.
ATTILE_API void set_chooser_maker(std::shared_ptr<Chooser> (*make)());

// Of the process; a call's own fields win.
ATTILE_API void set_tuning(Tuning tuning);
ATTILE_API void set_building(Building building);
ATTILE_API Tuning tuning();
ATTILE_API Building building();
// Forgets which kernels calls have; they are found anew, on disk or by the chooser. For tests, and after tuning.
ATTILE_API void forget_chosen_kernels();

}  // namespace v1
}  // namespace attile
