#include "autotune/local_device.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>

#include "autotune/serve.h"
#include "dsl/error.h"
#include "runtime/host_cpu.h"
#include "runtime/parallel_for.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr double forever = 1e300;
// How often a stop is looked for.
constexpr double turn_seconds = 0.1;
// A candidate that is this much slower than the slowest good one is of no interest.
constexpr double patience_factor = 4;
// Checks that take longer than this are done one at a time.
constexpr double long_check = 2;
// The first call may take that many budgets, and not much longer than the untiled reference would.
constexpr double first_budgets = 4, least_first = 60, endless_first = 3600;
// Of a process with a compiler in it, beside its tensors.
constexpr std::int64_t worker_bytes = std::int64_t{400} << 20;

std::int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (std::int64_t kib = 0; file >> name >> kib; std::getline(file, unit))
    if (name == "MemAvailable:") return kib << 10;
  return std::int64_t{2} << 30;
}

std::size_t width_for(const Reference& reference) {
  const std::int64_t each = worker_bytes + 2 * static_cast<std::int64_t>(reference.bytes());
  return static_cast<std::size_t>(
      std::clamp<std::int64_t>(available_bytes() / 2 / each, 1, std::max(usable_cores(), 1)));
}

// A tenth of a millisecond of dependent multiply-adds, on the clock that samples are taken by.
double spin_seconds() {
  const auto now = [id = worker_count() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC] {
    timespec t{};
    ::clock_gettime(id, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  double x = 1;
  for (int i = 0; i < 60000; ++i) x = x * 0.999999 + 1e-6;
  volatile double kept = x;
  static_cast<void>(kept);
  return now() - start;
}

double number_of(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

LocalDevice::LocalDevice(const TuneProblem& problem, const Reference& reference, const DeviceFacts& facts,
                         double budget)
    : width_(width_for(reference)),
      serve_([&](WorkerLine& line, const Point& point) { serve_candidate(line, point, problem, reference, facts); }) {
  const double most = budget > 0 ? std::max(least_first, first_budgets * budget) : endless_first;
  limits_.first = std::clamp(2 * reference.whole_seconds(), limits_.run, most);
  if (facts.device.kind == Device::Kind::cuda)
    prober_ = std::make_unique<Worker>([&](WorkerLine& line) { serve_probes(line, facts.device); });
}

LocalDevice::LocalDevice(std::size_t width, Limits limits, Serve serve)
    : width_(width), limits_(limits), serve_(std::move(serve)) {}
LocalDevice::~LocalDevice() = default;

double LocalDevice::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A candidate under way: "built" and, once told to "check", "good" are its lines; "fault …" at any time ends it.
struct LocalDevice::Trial {
  const Point* point = nullptr;
  Proof* proof = nullptr;
  std::unique_ptr<Worker> worker;
  bool built = false, checks = false, over = false;
  double limit = 0, since = 0;  // of the answer that is waited for
  double deadline() const { return since + limit; }
};

// All are built at once, but the first is the measure of the others: they are compared with what it wrote. Long checks
// would slow one another down.
void LocalDevice::let_check(std::vector<Trial>& trials) {
  const auto checking = [&] {
    return std::any_of(trials.begin(), trials.end(), [](const Trial& t) { return t.checks; });
  };
  for (Trial& t : trials) {
    if (!t.built || t.checks) continue;
    if ((!has_measure_ || longest_check_ > long_check) && checking()) return;
    t.checks = true;
    t.since = now();
    t.limit = std::max(limits_.run, has_measure_ ? patience_factor * longest_check_ : limits_.first);
    t.worker->send("check");
  }
}

void LocalDevice::judge(Trial& t) {
  const auto line = t.worker->receive(0);
  if (line && *line == "built") {
    t.built = true;
    t.limit = forever;
  } else if (line && *line == "good") {
    t.over = has_measure_ = true;
    longest_check_ = std::max(longest_check_, now() - t.since);
    ready_[to_string(*t.point)] = std::move(t.worker);
  } else if (line) {
    t.over = true;
    t.proof->fault = line->starts_with("fault ") ? line->substr(6) : "answered '" + *line + "'";
  } else if (!t.worker->alive() || now() >= t.deadline()) {
    t.over = true;
    t.proof->fault = t.worker->fate(t.limit);
    if (t.worker->alive() && t.checks) limits_.first = limits_.run;  // that patience is had once
  }
}

void LocalDevice::advance(std::vector<Trial>& trials) {
  let_check(trials);
  std::vector<Worker*> waiting;
  double next = now() + (stop ? turn_seconds : 1);
  for (const Trial& t : trials) waiting.push_back(t.worker.get()), next = std::min(next, t.deadline());
  Worker::wait_any(waiting, next - now());
  for (Trial& t : trials) judge(t);
  std::erase_if(trials, [](const Trial& t) { return t.over; });
}

void LocalDevice::begin(std::vector<Trial>& trials, const Point& point, Proof& proof) {
  Trial t;
  t.point = &point, t.proof = &proof;
  t.worker = std::make_unique<Worker>([&](WorkerLine& line) { serve_(line, point); });
  t.since = now(), t.limit = limits_.build;
  trials.push_back(std::move(t));
}

// Nothing is known of who is given up: all, or those that wait for their turn while there is a good one.
void LocalDevice::give_up(std::vector<Trial>& trials, bool all) {
  for (Trial& t : trials)
    if (all || (has_measure_ && !t.checks)) t.over = true, t.proof->begun = false;
  std::erase_if(trials, [](const Trial& t) { return t.over; });
}

std::vector<Proof> LocalDevice::prove(std::span<const Point> candidates, double until) {
  std::vector<Proof> proofs(candidates.size());
  std::vector<Trial> trials;
  const auto turn = [&] {
    advance(trials);
    if (stopped() || (now() > until && longest_check_ > long_check)) give_up(trials, stopped());
  };
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (ready_.contains(to_string(candidates[i]))) continue;
    while (trials.size() >= width_) turn();
    if (now() > until || stopped())
      proofs[i].begun = false;
    else
      begin(trials, candidates[i], proofs[i]);
  }
  while (!trials.empty()) turn();
  return proofs;
}

// Nothing where the worker is gone, took longer, or the device was stopped meanwhile.
std::optional<std::string> LocalDevice::answer_of(Worker& worker, double limit) const {
  const auto clock = [] { return std::chrono::steady_clock::now(); };
  const auto start = clock();
  for (;;) {
    const double left = limit - std::chrono::duration<double>(clock() - start).count();
    if (const auto line = worker.receive(stop ? std::clamp(left, 0.0, turn_seconds) : left)) return line;
    if (left <= 0 || !worker.alive() || stopped()) return std::nullopt;
  }
}

Timing LocalDevice::time(const Point& candidate, CacheState cache) {
  const auto found = ready_.find(to_string(candidate));
  internal_check(found != ready_.end(), "a candidate is timed that was not proven");
  Worker& worker = *found->second;
  const double limit = std::max(limits_.run, patience_factor * longest_check_);
  std::optional<std::string> line;
  if (worker.send(cache == CacheState::warm ? "warm" : "cold")) line = answer_of(worker, limit);
  if (line && !line->starts_with("fault ")) return {number_of(*line), ""};
  if (line) return {0, line->substr(6)};
  if (stopped() && worker.alive()) return {};
  worker.receive(0);
  return {0, worker.fate(limit), worker.alive()};
}

void LocalDevice::release(const Point& candidate) { ready_.erase(to_string(candidate)); }

double LocalDevice::probe() {
  if (!prober_) return spin_seconds();
  if (!prober_->send("probe")) return 0;
  const auto line = prober_->receive(limits_.run);
  return line ? number_of(*line) : 0;
}

}  // namespace v1
}  // namespace attile
