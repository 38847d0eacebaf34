#include "runtime/attention_kernels.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/fork_mutex.h"
#include "runtime/may_build.h"
#include "runtime/options.h"

namespace attile {
inline namespace v1 {
namespace {

struct KeyHash {
  std::size_t operator()(const CallKey& key) const {
    std::uint64_t dtypes = 0, sizes = 0;
    std::memcpy(&dtypes, key.dtypes.data(), sizeof key.dtypes);
    std::memcpy(&sizes, key.sizes.data(), sizeof key.sizes);
    std::uint64_t h = 0;
    for (const std::uint64_t x : {static_cast<std::uint64_t>(key.head_dim), static_cast<std::uint64_t>(key.value_dim),
                                  static_cast<std::uint64_t>(key.group), static_cast<std::uint64_t>(key.top_k),
                                  static_cast<std::uint64_t>(key.flags), dtypes, static_cast<std::uint64_t>(key.rule),
                                  static_cast<std::uint64_t>(key.lengths), sizes})
      h = (h ^ x) * 0x9E3779B97F4A7C15u ^ (h >> 29);
    return h;  // schedules of one problem are few
  }
};

// The schedules of a key, best first, and the kernel of the one in use.
struct Chosen {
  KernelChoice choice;
  std::vector<Schedule> schedules;
  bool provisional = false;  // a better one is being built, or may be by who may build
};

struct Memory {
  std::shared_mutex& mutex = mutex_of(Guarded::chosen_kernels);
  std::unordered_map<CallKey, Chosen, KeyHash> kernels;
  // The keys whose best kernel a thread builds now. What is no longer here when it ends is no longer wanted.
  struct Behind {
    pid_t process;  // a child of a fork has none of its parent's threads
    std::uint64_t number;
  };
  std::unordered_map<CallKey, Behind, KeyHash> built_behind;
  std::uint64_t last_number = 0;
  std::uint64_t times_forgotten = 0;  // what was chosen before is no longer wanted

  bool is_built_behind(const CallKey& key) const {
    const auto it = built_behind.find(key);
    return it != built_behind.end() && it->second.process == ::getpid();
  }
};
Memory& memory() {
  static auto* m = new Memory();  // a call may still run while the process exits
  return *m;
}

std::vector<Schedule> schedules_of(const CallKey& key, const CallAlgorithm& a, const AttentionCall& call,
                                   Tuning tuning) {
  if (key.schedule) return {*key.schedule};
  const Target target = target_of(key.device);
  std::vector<Schedule> out;
  const std::shared_ptr<Chooser> by = tuning == Tuning::never ? nullptr : chooser();
  if (by)
    for (const Schedule& s : by->choices(a.algorithm, a.problem, target, call, tuning))
      if (legality(a.algorithm, a.problem, s, target).empty()) out.push_back(s);
  const Schedule shipped = default_schedule(a.algorithm, a.problem, target);
  if (out.empty() || out.back() != shipped) out.push_back(shipped);
  return out;
}

// The first schedule from `from` on whose kernel can be had. The last one's error is the caller's.
std::optional<KernelChoice> first_usable(const CallAlgorithm& a, const std::vector<Schedule>& schedules, Device device,
                                         std::size_t from) {
  for (std::size_t i = from; i < schedules.size(); ++i) {
    const bool last = i + 1 == schedules.size();
    try {
      return KernelChoice{Kernel::get(a.algorithm, a.problem, schedules[i], device), i, last};
    } catch (const Error& error) {
      if (last) throw;
      if (may_build()) warn(fmt::format("a tuned schedule gives way to the next: {}", error.what()));
    }
  }
  return std::nullopt;
}

// The call for when it has returned: its sizes, without its tensors.
AttentionCall without_tensors(AttentionCall call) {
  for (TensorRef* t : {&call.q, &call.k, &call.v, &call.o}) t->data = nullptr;
  for (auto* t : {&call.lse, &call.values, &call.indices, &call.alibi_slopes, &call.bias, &call.mask, &call.sink,
                  &call.prefix_len, &call.doc_ids, &call.kv_lens, &call.cu_seqlens_q, &call.cu_seqlens_k})
    if (*t) (*t)->data = nullptr;
  return call;
}

// What a call without the right to wait takes: tuning is for others, or for the thread behind.
Tuning without_waiting(Tuning tuning) { return tuning == Tuning::now ? Tuning::cached : tuning; }

// Builds the best schedule on a thread of its own, after which calls have it; with Tuning::now what is known first, and
// then what tuning finds. One thread a key, however many calls ask.
void build_behind(const CallKey& key, const CallAlgorithm& a, const std::vector<Schedule>& schedules,
                  const AttentionCall& sizes) {
  Memory& m = memory();
  std::uint64_t number = 0;
  {
    const std::unique_lock lock(m.mutex);
    if (m.is_built_behind(key)) return;
    number = ++m.last_number;
    m.built_behind.insert_or_assign(key, Memory::Behind{::getpid(), number});
  }
  const auto build = [=, &m](const std::vector<Schedule>& of, bool last) {
    std::optional<KernelChoice> best;
    try {
      best = first_usable(a, of, key.device, 0);
    } catch (const std::exception& error) {
      warn(fmt::format("a kernel could not be built in the background: {}", error.what()));
    }
    const std::unique_lock lock(m.mutex);
    const auto behind = m.built_behind.find(key);
    if (behind == m.built_behind.end() || behind->second.number != number) return;
    if (last) m.built_behind.erase(behind);
    const auto there = m.kernels.find(key);
    if (there != m.kernels.end() && !there->second.provisional) return;  // chosen meanwhile, by who may wait
    if (best)
      m.kernels.insert_or_assign(key, Chosen{*best, of, !last});
    else
      m.kernels.erase(key);
  };
  const auto work = [=] {
    const bool tunes = key.tuning == Tuning::now;
    build(schedules, !tunes);
    if (!tunes) return;
    std::vector<Schedule> tuned = schedules;
    try {
      tuned = schedules_of(key, a, sizes, Tuning::now);
    } catch (const std::exception& error) {
      warn(fmt::format("tuning in the background failed: {}", error.what()));
    }
    build(tuned, true);
  };
  try {
    std::thread(work).detach();
  } catch (const std::system_error& error) {
    warn(fmt::format("no thread for a build in the background: {}", error.what()));
    const std::unique_lock lock(m.mutex);
    m.built_behind.erase(key);
  }
}

Chosen chosen_for(const CallKey& key, Building building, const CallAlgorithm& a, const AttentionCall& call) {
  const bool waits = building == Building::on_demand;
  const std::vector<Schedule> schedules = schedules_of(key, a, call, waits ? key.tuning : without_waiting(key.tuning));
  if (waits) return {*first_usable(a, schedules, key.device, 0), schedules, false};
  const bool untuned = key.tuning == Tuning::now;
  const BuildingRight none(false);
  if (building == Building::never) {
    const KernelChoice there = *first_usable(a, schedules, key.device, 0);
    return {there, schedules, untuned || there.number > 0};
  }
  std::optional<KernelChoice> there;
  std::optional<Error> missing;
  try {
    there = first_usable(a, schedules, key.device, 0);
  } catch (const Error& error) {
    missing = error;
  }
  const bool better = untuned || !there || there->number > 0;
  if (better) build_behind(key, a, schedules, without_tensors(call));
  if (!there) throw *missing;
  return {*there, schedules, better};
}

}  // namespace

KernelChoice kernel_choice(const CallKey& key, Building building, const std::function<CallAlgorithm()>& describe,
                           const AttentionCall& call) {
  Memory& m = memory();
  std::uint64_t begun = 0;
  {
    const std::shared_lock lock(m.mutex);
    begun = m.times_forgotten;
    const auto it = m.kernels.find(key);
    if (it != m.kernels.end() && (!it->second.provisional || building == Building::never ||
                                  (building == Building::background && m.is_built_behind(key))))
      return it->second.choice;
  }
  Chosen chosen = chosen_for(key, building, describe(), call);
  const std::unique_lock lock(m.mutex);
  if (begun != m.times_forgotten) return chosen.choice;
  Chosen& place = m.kernels.try_emplace(key, chosen).first->second;
  if (place.provisional && !chosen.provisional) place = std::move(chosen);
  return place.choice;
}

bool give_way(const CallKey& key, const KernelChoice& choice, const Error& error) {
  if (choice.last || key.schedule) return false;
  if (error.kind() != ErrorKind::resource && error.kind() != ErrorKind::unsupported) return false;
  warn(fmt::format("a tuned schedule gives way to the next: {}", error.what()));
  Memory& m = memory();
  const auto still_chosen = [&] {
    const auto it = m.kernels.find(key);
    return it != m.kernels.end() && it->second.choice.number == choice.number ? &it->second : nullptr;
  };
  std::vector<Schedule> schedules;
  {
    const std::shared_lock lock(m.mutex);
    const Chosen* chosen = still_chosen();
    if (chosen == nullptr) return true;  // another thread was first
    schedules = chosen->schedules;
  }
  const Program& program = choice.kernel.program();
  const KernelChoice next = *first_usable({program.algorithm, program.problem}, schedules, key.device, choice.number + 1);
  const std::unique_lock lock(m.mutex);
  if (Chosen* chosen = still_chosen()) chosen->choice = next;
  return true;
}

void forget_chosen_kernel(const CallKey& key) {
  Memory& m = memory();
  const std::unique_lock lock(m.mutex);
  m.kernels.erase(key);
  m.built_behind.erase(key);
  ++m.times_forgotten;
}

void forget_chosen_kernels() {
  Memory& m = memory();
  const std::unique_lock lock(m.mutex);
  m.kernels.clear();
  m.built_behind.clear();
  ++m.times_forgotten;
}

}  // namespace v1
}  // namespace attile
