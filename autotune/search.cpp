#include "autotune/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace attile {
inline namespace v1 {
namespace {

// The share of the budget after which none are begun.
constexpr double search_share = 0.75;
// Rounds of candidates without a better leader after which the search ends: of further ones by rank, where no neighbour
// is left, and twice as many of neighbours. And how much slower than the model's first one a further candidate may be
// expected to be.
constexpr int barren_rounds = 2;
constexpr double worth_trying = 1.35;
// A machine that became faster or slower by more than this between two contests is allowed for.
constexpr double least_drift = 0.05;

class Search {
 public:
  Search(const Space& space, TuneDevice& device, const SearchOptions& options)
      : space_(space),
        device_(device),
        options_(options),
        start_(device.now()),
        step_(step_of(device.width())),
        known_(space.candidates.size()) {
    result_.tried = options.known;
    for (const Candidate& c : space.candidates) result_.tried.seen.insert(hash_of(c.point));
    for (std::size_t i = 0; i < known_.size(); ++i)
      if (const auto found = options.known.outcomes.find(to_string(space.candidates[i].point));
          found != options.known.outcomes.end()) {
        known_[i] = found->second;
        if (found->second.seconds > 0) result_.measured.push_back({i, found->second.seconds, 0, 0, 0, 0});
      }
    sort();
    if (options.yardstick) yardstick_ = space.find(*options.yardstick);
    device_.stop = options.stop;
  }
  ~Search() { device_.stop = nullptr; }

  SearchResult run() {
    compete(first_batch(), "checking");
    const bool first_over = !stopped() && !out_of_time(1);
    while (!stopped() && !out_of_time(search_share)) {
      const std::vector<std::size_t> next = next_batch();
      result_.exhausted = next.empty();
      if (next.empty()) break;
      const double best = result_.measured.empty() ? 1e300 : result_.measured.front().seconds;
      compete(next, "searching");
      const bool better = !result_.measured.empty() && result_.measured.front().seconds < best * (1 - 2 * least_noise);
      barren_ = better ? 0 : barren_ + 1;
    }
    finish();
    result_.complete = first_over && !stopped();
    return std::move(result_);
  }

 private:
  bool stopped() const { return options_.stop && *options_.stop; }
  bool out_of_time(double share) const {
    return options_.budget > 0 && device_.now() - start_ > share * options_.budget;
  }
  double until() const { return options_.budget > 0 ? start_ + options_.budget : 1e300; }

  void report(const char* stage) const {
    if (!options_.progress) return;
    SearchProgress p;
    p.stage = stage;
    for (const auto& outcome : known_)
      p.tried += outcome.has_value(), p.failed += outcome && outcome->seconds <= 0 && !outcome->fault.empty();
    p.all = space_.candidates.size();
    p.seconds = device_.now() - start_;
    p.left = options_.budget > 0 ? std::max(options_.budget - p.seconds, 0.0) : 0;
    p.best = result_.measured.empty() ? 0 : result_.measured.front().seconds;
    options_.progress(p);
  }

  bool is_new(std::size_t i) const {
    return !options_.only_new || !options_.known.seen.contains(hash_of(space_.candidates[i].point));
  }
  bool untried(std::size_t i) const { return !known_[i] && is_new(i); }

  // What is known as fastest competes again, as the measure of the others.
  std::vector<std::size_t> leaders(std::size_t count) const {
    std::vector<std::size_t> out;
    for (const Measured& m : result_.measured)
      if (out.size() < count) out.push_back(m.candidate);
    return out;
  }

  std::vector<std::size_t> first_batch() {
    std::vector<std::size_t> batch = leaders(options_.again ? options_.finalists : options_.only_new ? 1 : 2);
    const auto add = [&](std::size_t i) {
      if (std::find(batch.begin(), batch.end(), i) == batch.end()) batch.push_back(i);
    };
    if (yardstick_ && !options_.only_new && !(known_[*yardstick_] && known_[*yardstick_]->seconds <= 0))
      add(*yardstick_);
    if (options_.again && !batch.empty()) return batch;
    std::size_t count = 0;
    for (const std::size_t i : space_.ranked())
      if (untried(i) && count < options_.first) add(i), ++count;
    return batch;
  }

  std::vector<std::size_t> next_batch() const {
    std::vector<std::size_t> next;
    if (options_.again || (barren_ >= 2 * barren_rounds && options_.budget > 0 && !options_.only_new)) return next;
    const auto by_rank = [&](std::size_t a, std::size_t b) {
      return space_.candidates[a].rank < space_.candidates[b].rank;
    };
    for (const std::size_t leader : leaders(2)) {
      std::vector<std::size_t> near = neighbours(space_, leader);
      std::sort(near.begin(), near.end(), by_rank);
      for (const std::size_t i : near)
        if (untried(i) && next.size() < step_ && std::find(next.begin(), next.end(), i) == next.end())
          next.push_back(i);
    }
    // New ones, and with an endless budget all, are tried wherever they stand.
    const bool all = options_.only_new || options_.budget <= 0;
    if (next.empty() && (all || barren_ < barren_rounds)) {
      const std::vector<std::size_t> ranked = space_.ranked();
      for (const std::size_t i : ranked) {
        const bool worth =
            all || space_.candidates[i].predicted <= worth_trying * space_.candidates[ranked.front()].predicted;
        if (worth && untried(i) && next.size() < step_) next.push_back(i);
      }
    }
    if (next.empty()) return next;
    if (anchor_) next.insert(next.begin(), *anchor_);
    if (const std::vector<std::size_t> best = leaders(1); !best.empty() && best.front() != anchor_)
      next.insert(next.begin(), best.front());
    return next;
  }

  std::vector<std::size_t> proven(const std::vector<std::size_t>& batch) {
    std::vector<Point> points;
    for (const std::size_t i : batch) points.push_back(space_.candidates[i].point);
    const std::vector<Proof> proofs = device_.prove(points, until());
    std::vector<std::size_t> good;
    for (std::size_t k = 0; k < batch.size(); ++k) {
      if (!proofs[k].begun) continue;
      if (proofs[k].fault.empty())
        good.push_back(batch[k]), ready_.insert(batch[k]);
      else
        fail(batch[k], proofs[k].fault);
    }
    return good;
  }

  void fail(std::size_t i, const std::string& fault) {
    known_[i] = Outcome{0, fault};
    if (ready_.erase(i)) device_.release(space_.candidates[i].point);
    std::erase_if(result_.measured, [&](const Measured& m) { return m.candidate == i; });
    remember(i);
  }
  void remember(std::size_t i) { result_.tried.outcomes[to_string(space_.candidates[i].point)] = *known_[i]; }

  void compete(const std::vector<std::size_t>& batch, const char* stage) {
    report(stage);
    const std::vector<std::size_t> good = proven(batch);
    report("timing");
    time(good, {7, options_.cache, true}, true);
    std::erase_if(ready_, [&](std::size_t i) {
      if (among_leaders(i)) return false;
      device_.release(space_.candidates[i].point);
      return true;
    });
    if (options_.keep) options_.keep(result_.tried);
    report(stage);
  }
  bool among_leaders(std::size_t i) const {
    const std::vector<std::size_t> best = leaders(options_.finalists);
    return i == yardstick_ || i == anchor_ || std::find(best.begin(), best.end(), i) != best.end();
  }

  // How much faster the machine was when the anchor was first timed. One candidate is the measure for the whole search:
  // leaders are those that were lucky too, and would make every contest look slower than the last.
  double drift(const std::vector<std::size_t>& group, const std::vector<Entrant>& entrants) const {
    for (std::size_t k = 0; k < group.size(); ++k)
      if (anchor_ == group[k] && !entrants[k].samples.empty())
        if (const double scale = anchor_seconds_ / entrants[k].centre();
            scale < 1 - least_drift || scale > 1 + least_drift)
          return scale;
    return 1;
  }
  void drop_anchor() {
    if (anchor_) return;
    for (const Measured& m : result_.measured)
      if (m.samples > 0 && (!anchor_ || (yardstick_ && m.candidate == *yardstick_)))
        anchor_ = m.candidate, anchor_seconds_ = m.seconds;
  }

  // Times a group together and, with `ranks`, takes the outcome over, on the scale of the first contest.
  std::vector<Entrant> time(const std::vector<std::size_t>& group, const ContestRules& rules, bool ranks) {
    std::vector<Entrant> entrants;
    for (const std::size_t i : group) entrants.push_back({space_.candidates[i].point, {}, {}, false});
    contest(
        device_, entrants, rules, [&] { return stopped() || out_of_time(1); }, probes_);
    const double scale = ranks ? drift(group, entrants) : 1;
    for (std::size_t k = 0; k < group.size(); ++k) {
      if (!entrants[k].fault.empty() && (ranks || !entrants[k].late))
        fail(group[k], entrants[k].fault);
      else if (ranks && !entrants[k].samples.empty())
        take(group[k], entrants[k], scale);
    }
    sort();
    drop_anchor();
    return entrants;
  }

  void take(std::size_t i, const Entrant& e, double scale) {
    const bool fresh = !known_[i];
    result_.timed += fresh;
    std::erase_if(result_.measured, [&](const Measured& m) { return m.candidate == i; });
    result_.measured.push_back({i, e.centre() * scale, spread_of(e.samples), 0, 0, e.samples.size()});
    known_[i] = Outcome{e.centre() * scale, ""};
    remember(i);
  }

  void sort() {
    std::stable_sort(result_.measured.begin(), result_.measured.end(), [](const Measured& a, const Measured& b) {
      return a.seconds != b.seconds ? a.seconds < b.seconds : a.candidate < b.candidate;
    });
  }

  // The last few once more, with the default; results of earlier runs are no match for what was measured now.
  void finish() {
    std::erase_if(result_.measured, [](const Measured& m) { return m.samples == 0; });
    std::vector<std::size_t> last = leaders(options_.finalists);
    anchor_.reset();  // the finalists' times are those of now
    if (yardstick_ && known_[*yardstick_] && known_[*yardstick_]->seconds > 0 &&
        std::find(last.begin(), last.end(), *yardstick_) == last.end() &&
        std::any_of(result_.measured.begin(), result_.measured.end(),
                    [&](const Measured& m) { return m.candidate == *yardstick_; }))
      last.push_back(*yardstick_);
    report("finalists");
    if (!stopped()) last = proven(last);
    if (last.size() > 1 && !stopped()) time_finals(last);
    for (Measured& m : result_.measured)
      (options_.cache == CacheState::warm ? m.warm : m.cold) =
          std::find(last.begin(), last.end(), m.candidate) == last.end() ? 0 : m.seconds;
    measure_other_state(last);
    choose(last);
    judge_noise();
    for (const std::size_t i : ready_) device_.release(space_.candidates[i].point);
    if (options_.keep) options_.keep(result_.tried);
  }

  // The others' times are brought to the finalists' present, so that one list can hold both.
  void time_finals(const std::vector<std::size_t>& last) {
    const std::vector<Measured> before = result_.measured;
    time(last, {9, options_.cache, false}, true);
    std::vector<double> ratios;
    for (const Measured& m : result_.measured)
      for (const Measured& b : before)
        if (b.candidate == m.candidate && std::find(last.begin(), last.end(), m.candidate) != last.end())
          ratios.push_back(m.seconds / b.seconds);
    if (ratios.empty()) return;
    std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2), ratios.end());
    for (Measured& m : result_.measured)
      if (std::find(last.begin(), last.end(), m.candidate) == last.end()) m.seconds *= ratios[ratios.size() / 2];
    sort();
  }

  void measure_other_state(const std::vector<std::size_t>& last) {
    if (stopped() || out_of_time(1)) return;
    const CacheState other = options_.cache == CacheState::warm ? CacheState::cold : CacheState::warm;
    const std::vector<Entrant> entrants = time(last, {3, other, false}, false);
    for (std::size_t k = 0; k < last.size(); ++k)
      for (Measured& m : result_.measured)
        if (m.candidate == last[k] && !entrants[k].samples.empty())
          (other == CacheState::cold ? m.cold : m.warm) = entrants[k].centre();
  }

  void choose(const std::vector<std::size_t>& last) {
    const auto is_last = [&](const Measured& m) {
      return std::find(last.begin(), last.end(), m.candidate) != last.end();
    };
    const auto first = std::find_if(result_.measured.begin(), result_.measured.end(), is_last);
    if (first == result_.measured.end()) return;
    const Measured best = *first;
    const double noise = std::clamp(best.spread, least_noise, most_noise);
    std::size_t winner = best.candidate;
    for (const Measured& m : result_.measured) {
      if (!is_last(m) || m.seconds > best.seconds * (1 + noise)) continue;
      const bool is_default = yardstick_ && m.candidate == *yardstick_,
                 has_default = yardstick_ && winner == *yardstick_;
      if (is_default || (!has_default && m.candidate < winner)) winner = m.candidate;
    }
    result_.winner = winner;
    for (const Measured& m : result_.measured)
      if (yardstick_ && m.candidate == *yardstick_) result_.yardstick_seconds = m.seconds;
  }

  void judge_noise() {
    if (probes_.size() < 3) return;
    std::sort(probes_.begin(), probes_.end());
    const double spread = probes_[probes_.size() * 3 / 4] / std::max(probes_.front(), 1e-12) - 1;
    double of_winner = 0;
    for (const Measured& m : result_.measured)
      if (m.candidate == result_.winner) of_winner = m.spread;
    result_.noisy = spread > probe_noise || of_winner > 2 * probe_noise;
    if (result_.noisy)
      result_.noise = fmt::format(
          "work that is always the same took times {:.0f}% apart and the winner's samples lie {:.0f}% apart: something "
          "else uses the device, or its clock changes",
          100 * spread, 100 * of_winner);
  }

  const Space& space_;
  TuneDevice& device_;
  const SearchOptions& options_;
  const double start_;
  const std::size_t step_;
  std::vector<std::optional<Outcome>> known_;  // by candidate
  std::optional<std::size_t> yardstick_;
  int barren_ = 0;
  std::optional<std::size_t> anchor_;
  double anchor_seconds_ = 0;
  std::set<std::size_t> ready_;  // proven, and not released
  std::vector<double> probes_;
  SearchResult result_;
};

}  // namespace

SearchResult search(const Space& space, TuneDevice& device, const SearchOptions& options) {
  return Search(space, device, options).run();
}

}  // namespace v1
}  // namespace attile
