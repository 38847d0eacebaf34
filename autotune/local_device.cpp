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

LocalDevice::LocalDevice(const TuneProblem& problem, const Reference& reference, const DeviceFacts& facts)
    : width_(width_for(reference)),
      serve_([&](WorkerLine& line, const Point& point) { serve_candidate(line, point, problem, reference, facts); }) {
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
  double deadline = 0;
};

// All are built at once, but the first is the measure of the others: they are compared with what it wrote.
void LocalDevice::let_check(std::vector<Trial>& trials) {
  for (Trial& t : trials) {
    if (t.built && !t.checks) {
      t.checks = true;
      t.deadline = now() + limits_.run;
      t.worker->send("check");
    }
    if (!has_measure_) return;
  }
}

void LocalDevice::advance(std::vector<Trial>& trials) {
  let_check(trials);
  std::vector<Worker*> waiting;
  double next = now() + 1;
  for (const Trial& t : trials) waiting.push_back(t.worker.get()), next = std::min(next, t.deadline);
  Worker::wait_any(waiting, next - now());
  for (Trial& t : trials) {
    const double limit = t.checks ? limits_.run : limits_.build;
    const auto line = t.worker->receive(0);
    if (line && *line == "built") {
      t.built = true;
      t.deadline = forever;
    } else if (line && *line == "good") {
      t.over = has_measure_ = true;
      ready_[to_string(*t.point)] = std::move(t.worker);
    } else if (line) {
      t.over = true;
      t.proof->fault = line->starts_with("fault ") ? line->substr(6) : "answered '" + *line + "'";
    } else if (!t.worker->alive() || now() >= t.deadline) {
      t.over = true;
      t.proof->fault = t.worker->fate(limit);
    }
  }
  std::erase_if(trials, [](const Trial& t) { return t.over; });
}

std::vector<Proof> LocalDevice::prove(std::span<const Point> candidates, double until) {
  std::vector<Proof> proofs(candidates.size());
  std::vector<Trial> trials;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (ready_.contains(to_string(candidates[i]))) continue;
    while (trials.size() >= width_) advance(trials);
    if (now() > until) {
      proofs[i].begun = false;
      continue;
    }
    Trial t;
    t.point = &candidates[i], t.proof = &proofs[i];
    t.worker = std::make_unique<Worker>([&](WorkerLine& line) { serve_(line, candidates[i]); });
    t.deadline = now() + limits_.build;
    trials.push_back(std::move(t));
  }
  while (!trials.empty()) advance(trials);
  return proofs;
}

Timing LocalDevice::time(const Point& candidate, CacheState cache) {
  const auto found = ready_.find(to_string(candidate));
  internal_check(found != ready_.end(), "a candidate is timed that was not proven");
  Worker& worker = *found->second;
  std::optional<std::string> line;
  if (worker.send(cache == CacheState::warm ? "warm" : "cold")) line = worker.receive(limits_.run);
  if (line && !line->starts_with("fault ")) return {number_of(*line), ""};
  return {0, line ? line->substr(6) : (worker.receive(0), worker.fate(limits_.run))};
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
