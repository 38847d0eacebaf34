// Mutexes of the process that a child of fork() finds free, and what they guard whole: fork() waits until nobody holds
// one. What is guarded by a mutex of its own kind in every object shares one of these; none is held for long, or while
// something of the user's is called (what says warnings has a mutex of its own therefore, made anew in a child).
#pragma once

#include <cstdint>
#include <shared_mutex>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

// In the order in which a thread may hold several of them.
enum class Guarded : std::uint8_t {
  modified_attention,  // attention with functions of one's own
  kernels_of_variants,
  chosen_kernels,
  chooser,
  kernels,
  current_cache,
  cache_state,
  parallel_for,
  tuning_results,
  count,
};

ATTILE_API std::shared_mutex& mutex_of(Guarded what);

}  // namespace v1
}  // namespace attile
