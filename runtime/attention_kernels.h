// Which kernel a ready-attention call has: remembered by all that decides it, chosen by the store of tuning results,
// built or only looked for. Internal to runtime.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "dsl/error.h"
#include "dsl/library.h"
#include "runtime/attention.h"

namespace attile {
inline namespace v1 {

// What attention_options and problem_of read of a call. Types that the checks fix (int32, boolean, lse…) are not in it.
struct CallKey {
  std::int64_t head_dim, value_dim, group;
  std::int32_t top_k;
  std::uint32_t flags;
  std::array<DType, 5> dtypes;  // q k v o bias
  Rule rule;
  Lengths lengths;
  std::optional<Schedule> schedule;
  Device device;
  Tuning tuning;
  std::array<std::uint8_t, 3>
      sizes;  // powers of two of rows, keys, sequences × heads; 0 where the chooser is not asked
  bool operator==(const CallKey&) const = default;
};

struct CallAlgorithm {
  Algorithm algorithm;
  Problem problem;
};

struct KernelChoice {
  Kernel kernel;
  std::size_t number = 0;  // among the schedules for the key; the last one is the shipped
  bool last = true;
};

// `describe` is only asked for a key that is not remembered. Throws as Kernel::get does, for the shipped schedule.
KernelChoice kernel_choice(const CallKey& key, Building building, const std::function<CallAlgorithm()>& describe,
                           const AttentionCall& call);
// After a run that threw: whether there is a next schedule to try, which from now on is the key's.
bool give_way(const CallKey& key, const KernelChoice& choice, const Error& error);
// The next call of the key chooses anew.
void forget_chosen_kernel(const CallKey& key);

}  // namespace v1
}  // namespace attile
