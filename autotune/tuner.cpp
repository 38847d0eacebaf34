#include "autotune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "autotune/exchange.h"
#include "dsl/error.h"
#include "runtime/file_lock.h"
#include "runtime/files.h"
#include "schedules/registry.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr std::size_t next_kept = 3;
// What disturbed a measurement may last a while.
constexpr std::int64_t noise_lasts_s = 600;

class Tuning {
 public:
  Tuning(const TuneProblem& problem, const CallShape& shape, const DeviceFacts& facts, const TuneOptions& options)
      : problem_(problem),
        shape_(shape),
        facts_(facts),
        options_(options),
        store_(options.folder, facts.machine),
        bucket_(bucket_of(problem.algorithm, problem.problem, shape, facts.machine.units)) {
    report_.constants = device_constants(facts, options.folder);
    report_.shipped = point_of(default_schedule(problem.algorithm, problem.problem, facts.target));
    report_.space = tuning_space(problem, shape, facts, report_.constants);
    if (report_.space.candidates.empty()) refuse("no schedule is legal", grouped(report_.space.rejected));
  }

  TuneReport run(TuneDevice* device) {
    const auto start = std::chrono::steady_clock::now();
    if (looked_up()) return std::move(report_);
    // One process times at a time: two would disturb each other, and the second finds the first one's result.
    std::optional<FileLock> turn;
    if (!options_.folder.empty() && store_fault(options_.folder).empty() && make_folders(options_.folder) == 0) {
      const double patience = std::max(2 * options_.budget, options_.patience);
      int asked = 0;
      turn.emplace(store_.timing_lock_path(), std::chrono::milliseconds(static_cast<std::int64_t>(1000 * patience)),
                   [&] {
                     if (asked++ == 1 && options_.note)
                       options_.note("another process tunes on this device: waiting for it");
                     return stopped() || (asked > 1 && looked_up());
                   });
      if (looked_up()) return std::move(report_);
      if (turn->busy() && !stopped())
        throw Error(ErrorKind::resource, "tune",
                    fmt::format("another process tunes on this device, and did not end within {:.0f} s", patience),
                    "wait for it or end it: two would disturb each other");
    }
    if (!stopped()) measure(device);
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  bool stopped() const { return options_.stop && *options_.stop; }

  bool has_new() const {
    return std::any_of(report_.space.candidates.begin(), report_.space.candidates.end(),
                       [&](const Candidate& c) { return !tried_.seen.contains(hash_of(c.point)); });
  }

  // Reads what is known, and whether that is enough.
  bool looked_up() {
    report_.result = store_.find(bucket_);
    tried_ = report_.result ? store_.tried(bucket_) : TriedList{};
    if (!report_.result || options_.resume || options_.again) return false;
    const bool legal =
        report_.space.find(report_.result->winner) ||
        legality(problem_.algorithm, problem_.problem, schedule_of(report_.result->winner), facts_.target).empty();
    const bool doubtful = report_.result->noisy && std::time(nullptr) - report_.result->when > noise_lasts_s;
    report_.known = legal && report_.result->complete && !doubtful && !has_new();
    if (report_.known) report_.found.tried = tried_;
    return report_.known;
  }

  void measure(TuneDevice* device) {
    SearchOptions search_options;
    search_options.budget = options_.budget;
    search_options.cache = problem_.problem.few_rows ? CacheState::cold : CacheState::warm;
    search_options.yardstick = report_.shipped;
    search_options.stop = options_.stop;
    search_options.progress = options_.progress;
    if (!options_.again) search_options.known = tried_;
    const bool finished = report_.result && report_.result->complete && !options_.resume && !options_.again;
    search_options.only_new = finished && has_new();
    search_options.again = finished && !search_options.only_new && report_.result->noisy;
    search_options.keep = [&](const TriedList& tried) { keep_partly(tried); };
    std::optional<Reference> reference;
    std::optional<LocalDevice> local;
    if (device == nullptr) {
      reference.emplace(problem_.algorithm, problem_.problem, problem_.arguments);
      local.emplace(problem_, *reference, facts_, options_.budget);
      device = &*local;
    }
    search_options.first = std::max(search_options.first, step_of(device->width()));
    before_ = report_.result;
    report_.found = search(report_.space, *device, search_options);
    correlate();
    if (report_.found.winner)
      keep();
    else if (!stopped())
      refuse_failed();
  }

  void correlate() {
    std::vector<double> predicted, measured;
    for (const Measured& m : report_.found.measured)
      predicted.push_back(report_.space.candidates[m.candidate].predicted), measured.push_back(m.seconds);
    report_.correlation = rank_correlation(predicted, measured);
  }

  TuneResult blank() const {
    TuneResult r;
    r.bucket = bucket_, r.shape = shape_;
    r.machine = facts_.machine.text(), r.versions = facts_.machine.versions();
    r.match = match_of(problem_.algorithm, problem_.problem);
    r.when = static_cast<std::int64_t>(std::time(nullptr));
    return r;
  }

  // Whoever is killed from here on leaves the best so far, to be resumed.
  void keep_partly(const TriedList& tried) {
    TuneResult r = blank();
    for (const Candidate& c : report_.space.candidates)
      if (const auto found = tried.outcomes.find(to_string(c.point));
          found != tried.outcomes.end() && found->second.seconds > 0 &&
          (r.seconds == 0 || found->second.seconds < r.seconds))
        r.seconds = found->second.seconds, r.winner = c.point;
    if (r.seconds == 0) return;
    r.gflops = options_.flops / r.seconds / 1e9;
    put(r, tried);
  }

  // A complete result of before stays until this one is complete or better, and with it which candidates are new.
  bool stays(const TuneResult& r) const {
    return before_ && before_->complete && !r.complete && r.seconds >= before_->seconds;
  }

  std::string put(const TuneResult& r, const TriedList& tried) {
    if (!stays(r)) return store_.put(r, with_predictions(tried));
    TriedList both = tried_;
    for (const auto& [point, outcome] : tried.outcomes) {
      both.outcomes[point] = outcome;
      both.seen.insert(hash_of(parse_point(point, "tuning")));
    }
    return store_.put(*before_, with_predictions(both));
  }

  // For fits of the model, which know nothing of the problem any more.
  TriedList with_predictions(TriedList tried) const {
    for (const Candidate& c : report_.space.candidates)
      if (const auto found = tried.outcomes.find(to_string(c.point)); found != tried.outcomes.end())
        found->second.predicted = c.predicted / report_.constants.effect_of(c.point, report_.space.initial);
    return tried;
  }

  void keep() {
    TuneResult r = blank();
    const SearchResult& found = report_.found;
    for (const Measured& m : found.measured) {
      const Point& point = report_.space.candidates[m.candidate].point;
      if (m.candidate == *found.winner)
        r.winner = point, r.seconds = m.seconds, r.spread = m.spread;
      else if (r.next.size() < next_kept)
        r.next.push_back(point);
    }
    r.default_seconds = found.yardstick_seconds;
    r.gflops = r.seconds > 0 ? options_.flops / r.seconds / 1e9 : 0;
    r.noisy = found.noisy, r.complete = found.complete;
    report_.unkept = put(r, found.tried);
    if (report_.unkept.empty() && stays(r))
      report_.unkept = "it is not complete, and the complete one of before is no slower";
    report_.result = r;
  }

  [[noreturn]] void refuse(const std::string& what, const std::vector<RejectionGroup>& groups) const {
    std::string needs;
    for (const RejectionGroup& g : groups)
      needs += fmt::format("{}{} ({}{})", needs.empty() ? "" : "; ", g.reason,
                           g.count == 1 ? "" : fmt::format("{} of them, such as ", g.count), to_string(g.example));
    throw Error(ErrorKind::unsupported, "tune",
                fmt::format("{} for {} on {}: {}", what, to_string(problem_.problem), facts_.target.name, needs));
  }

  [[noreturn]] void refuse_failed() const {
    std::vector<Rejection> failed;
    for (const auto& [point, outcome] : report_.found.tried.outcomes)
      if (!outcome.fault.empty()) failed.push_back({parse_point(point, "tuning"), {outcome.fault}});
    if (failed.empty())
      throw Error(ErrorKind::unsupported, "tune",
                  fmt::format("the budget of {:.3g} s ended before a candidate was timed", options_.budget),
                  "give more time, such as --budget 30s");
    refuse("no candidate works", grouped(failed));
  }

  const TuneProblem& problem_;
  const CallShape shape_;
  const DeviceFacts& facts_;
  const TuneOptions& options_;
  ResultStore store_;
  Bucket bucket_;
  TriedList tried_;
  std::optional<TuneResult> before_;  // of an earlier run
  TuneReport report_;
};

}  // namespace

Space tuning_space(const TuneProblem& problem, const CallShape& shape, const DeviceFacts& facts,
                   const Constants& constants) {
  const SpaceRules rules = schedule_rules(problem.algorithm, problem.problem, shape, facts.target, constants);
  const Point shipped = point_of(default_schedule(problem.algorithm, problem.problem, facts.target));
  return make_space(schedule_file(facts.target).spaces, rules, std::span(&shipped, 1));
}

TuneReport tune(const TuneProblem& problem, const CallShape& shape, const DeviceFacts& facts,
                const TuneOptions& options, TuneDevice* device) {
  return Tuning(problem, shape, facts, options).run(device);
}

}  // namespace v1
}  // namespace attile
