// A device of a script: what each candidate does when it is proven and timed, on a clock of its own. It counts what the
// search asks for.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "autotune/search.h"

namespace attile::test {

struct Script {
  double seconds = 1e-3;     // of a sample
  std::string fault;         // when it is proven
  std::string timing_fault;  // of its third sample
  double build_seconds = 0.5;
  std::string cold_fault;  // of its first sample with a cold cache: no answer came in time
};

class ScriptedDevice : public TuneDevice {
 public:
  std::function<Script(const Point&)> script = [](const Point&) { return Script{}; };
  std::function<double(int sample)> disturbance = [](int) { return 1.0; };  // factor of the n-th sample of the device
  std::function<double(const Point&, int times)> own_disturbance = [](const Point&, int) {
    return 1.0;
  };  // of a candidate's n-th sample
  std::function<double(int probe)> probe_time = [](int) { return 1e-4; };
  std::function<void()> on_sample = [] {};
  double clock = 100;

  std::map<std::string, int> proven, timed;  // how often, by candidate
  std::set<std::string> ready;               // proven and not released
  std::size_t most_ready = 0;
  int samples = 0, probes = 0;

  double now() override { return clock; }
  std::size_t width() const override { return 2; }
  std::vector<Proof> prove(std::span<const Point> candidates, double until) override {
    std::vector<Proof> out;
    for (const Point& point : candidates) {
      const std::string name = to_string(point);
      if (ready.contains(name)) {
        out.push_back({});
        continue;
      }
      if (clock > until) {
        out.push_back({"", false});
        continue;
      }
      const Script s = script(point);
      clock += s.build_seconds / 2;
      ++proven[name];
      if (s.fault.empty()) ready.insert(name);
      out.push_back({s.fault, true});
    }
    most_ready = std::max(most_ready, ready.size());
    return out;
  }
  Timing time(const Point& point, CacheState cache) override {
    const std::string name = to_string(point);
    if (!ready.contains(name)) throw std::logic_error(name + " is timed and was not proven");
    const Script s = script(point);
    const int times = ++timed[name];
    if (!s.timing_fault.empty() && times == 3) {
      clock += 5;
      return {0, s.timing_fault};
    }
    if (cache == CacheState::cold && !s.cold_fault.empty()) return {0, s.cold_fault, true};
    const double seconds =
        s.seconds * own_disturbance(point, times) * disturbance(samples++) * (cache == CacheState::cold ? 1.5 : 1);
    clock += seconds;
    on_sample();
    return {seconds, ""};
  }
  void release(const Point& point) override {
    if (ready.erase(to_string(point)) == 0) throw std::logic_error(to_string(point) + " is released and was not ready");
  }
  double probe() override { return probe_time(probes++); }
};

// A space of two numbers and a word whose model is given.
inline std::vector<ScheduleSpace> plane() {
  return {{{{"tile_rows", {"16", "32", "64", "128"}}, {"tile_keys", {"16", "32", "64", "128"}}, {"form", {"a", "b"}}}}};
}
inline double number_at(const Point& point, const char* field) { return std::stod(*value_of(point, field)); }
inline Space space_of(const std::vector<ScheduleSpace>& choices, const std::function<double(const Point&)>& predicted,
                      const std::function<std::vector<std::string>(const Point&)>& reasons = {},
                      std::vector<Point> also = {}) {
  return make_space(choices, {{}, reasons, predicted, {}}, also);
}
inline Point at(int rows, int keys, const char* form = "a") {
  return {{"tile_rows", std::to_string(rows)}, {"tile_keys", std::to_string(keys)}, {"form", form}};
}

}  // namespace attile::test
