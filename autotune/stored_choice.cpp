#include "autotune/stored_choice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "autotune/exchange.h"
#include "autotune/tuner.h"
#include "dsl/error.h"
#include "runtime/child_process.h"
#include "runtime/cuda_device.h"
#include "runtime/fork_mutex.h"
#include "runtime/host_cpu.h"
#include "runtime/options.h"
#include "runtime/parallel_for.h"
#include "runtime/shared_library.h"
#include "schedules/registry.h"

namespace attile {
inline namespace v1 {
namespace {

// Enough to name the files of a device, without opening its compiler.
Machine name_of(const Target& target, Device device) {
  Machine m;
  m.target = target.name;
  m.model = device.kind == Device::Kind::cpu ? host_cpu().model : cuda_device(device.index).name;
  return m;
}

// The command `attile` beside this library or in PATH; empty where there is none.
std::string command_path() {
  Dl_info info{};
  std::vector<std::string> places;
  if (dladdr(reinterpret_cast<const void*>(&use_tuning_results), &info) && info.dli_fname)
    for (const char* way : {"/attile", "/../bin/attile"}) places.push_back(folder_of(resolved(info.dli_fname)) + way);
  const char* path = std::getenv("PATH");
  for (std::string rest = path ? path : ""; !rest.empty();) {
    const std::size_t colon = rest.find(':');
    places.push_back(rest.substr(0, colon) + "/attile");
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  for (const std::string& place : places)
    if (::access(place.c_str(), X_OK) == 0) return place;
  return "";
}

class StoredChoice : public Chooser {
 public:
  StoredChoice(std::string folder, double budget) : folder_(std::move(folder)), budget_(budget) {}

  std::vector<Schedule> choices(const Algorithm& a, const Problem& p, const Target& t, const AttentionCall& call,
                                Tuning tuning) override {
    std::vector<Schedule> out;
    for (ExplainedChoice& c : explained(a, p, t, call, tuning)) out.push_back(std::move(c.schedule));
    return out;
  }

  std::vector<ExplainedChoice> explained(const Algorithm& a, const Problem& p, const Target& t,
                                         const AttentionCall& call, Tuning tuning) {
    Choices out;
    try {
      if (tuning == Tuning::now) tune_if_unknown(a, p, call);
      add_results(out, a, p, t, call);
      add_imported(out, a, p, t, call.device);
      if (out.empty() && best_known(a, p, t) == nullptr) add_model_choice(out, a, p, t, call);
    } catch (const Error& error) {  // a call does without
      warn(fmt::format("tuning results are not used: {}", error.what()));
    }
    return out;
  }

 private:
  using Choices = std::vector<ExplainedChoice>;
  void add_results(Choices& out, const Algorithm& a, const Problem& p, const Target& t, const AttentionCall& call) {
    if (folder_.empty()) return;
    const ResultStore names(folder_, name_of(t, call.device));
    if (::access(names.path().c_str(), R_OK) != 0) return;  // the usual case, and nothing is opened for it
    const DeviceFacts facts = facts_now(call.device);
    const ResultStore store(folder_, facts.machine);
    for (const TuneResult& r : store.nearest(bucket_of(a, p, shape_of(call), facts.machine.units))) {
      const std::string from = fmt::format("{} for {}", store.path(), to_string(r.bucket));
      add(out, r.winner, store.path(), "found by attile tune: the winner of " + from);
      for (const Point& next : r.next)
        add(out, next, store.path(), "found by attile tune: behind the winner of " + from);
    }
  }
  static void add(Choices& out, const Point& point, const std::string& where, const std::string& from) {
    try {
      const Schedule s = schedule_of(point, where);
      if (std::none_of(out.begin(), out.end(), [&](const ExplainedChoice& c) { return c.schedule == s; }))
        out.push_back({s, from});
    } catch (const Error& error) {  // of fields that this version does not have
      warn(fmt::format("a tuning result is passed over: {}", error.what()));
    }
  }

  void add_imported(Choices& out, const Algorithm& a, const Problem& p, const Target& t, Device device) {
    if (folder_.empty()) return;
    const Machine machine = name_of(t, device);
    std::optional<ScheduleFile>* file = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (const auto at = imported_.find(machine.file_name()); at != imported_.end()) file = &at->second;
    }
    if (file == nullptr) {
      std::optional<ScheduleFile> read = imported(folder_, machine);
      const std::lock_guard lock(mutex_);
      file = &imported_.try_emplace(machine.file_name(), std::move(read)).first->second;
    }
    if (!*file) return;
    for (const KnownSchedule& known : (*file)->best)
      if (known.match.matches(a, p))
        return out.push_back({made_legal(a, p, known.schedule, t),
                              fmt::format("imported: \"{}\" of {}", known.name, imported_path(folder_, machine))});
  }

  void add_model_choice(Choices& out, const Algorithm& a, const Problem& p, const Target& t,
                        const AttentionCall& call) {
    const Constants constants = shipped_constants(t);
    const SpaceRules rules = schedule_rules(a, p, shape_of(call), t, constants);
    const Space space = make_space(schedule_file(t).spaces, rules);
    if (!space.candidates.empty())
      out.push_back({schedule_of(space.candidates[space.ranked().front()].point),
                     "the model's first choice: no schedule is shipped for this problem"});
  }

  // The power limit and versions of a device do not change while a process runs.
  DeviceFacts facts_now(Device device) {
    std::optional<DeviceFacts> known;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = facts_.find(to_string(device)); found != facts_.end()) known = found->second;
    }
    if (known && device.kind != Device::Kind::cpu) return *known;
    DeviceFacts now = facts_of(device);
    if (known && known->machine.units == now.machine.units) return *known;
    const std::lock_guard lock(mutex_);
    return facts_.insert_or_assign(to_string(device), std::move(now)).first->second;
  }

  // Of this process: a child of a fork would wait for ever for a thread that only its parent has.
  std::mutex& turn() {
    const std::lock_guard lock(mutex_);
    if (turn_ == nullptr || turn_of_ != ::getpid()) turn_ = new std::mutex(), turn_of_ = ::getpid();
    return *turn_;
  }

  void tune_if_unknown(const Algorithm& a, const Problem& p, const AttentionCall& call) {
    const std::lock_guard one(turn());  // one at a time: two would disturb each other
    const DeviceFacts facts = facts_now(call.device);
    const CallShape shape = shape_of(call);
    if (ResultStore(folder_, facts.machine).find(bucket_of(a, p, shape, facts.machine.units))) return;
    if (call.device.kind == Device::Kind::cuda || call.q.data == nullptr) return tune_by_command(call);
    TuneProblem problem;
    problem.algorithm = a, problem.problem = p, problem.arguments = attention_arguments(call);
    TuneOptions options;
    options.budget = budget_;
    options.folder = folder_;
    if (const TuneReport report = tune(problem, shape, facts, options); !report.unkept.empty())
      warn(fmt::format("a tuning result is not kept: {}", report.unkept));
  }

  // A process that runs on a GPU cannot fork workers for it, and a thread behind a call has no tensors.
  void tune_by_command(const AttentionCall& call) const {
    std::vector<std::string> words = tune_words(call);
    const std::string command = command_path();
    if (words.empty() || command.empty())
      return warn(words.empty() ? "this call cannot be tuned from within a program; what is known is taken"
                                : "tuning on a GPU or in the background needs the command 'attile' beside the library "
                                  "or in PATH; what is "
                                  "known is taken");
    words.insert(words.begin(), {command, "tune", "--budget", fmt::format("{:.0f}s", budget_)});
    const ChildResult result = run_child(words);
    if (result.code != 0) warn(fmt::format("tuning failed: {}", result.output.substr(0, 400)));
  }

  const std::string folder_;
  const double budget_;
  std::shared_mutex& mutex_ = mutex_of(Guarded::tuning_results);
  std::mutex* turn_ = nullptr;
  pid_t turn_of_ = 0;
  std::map<std::string, std::optional<ScheduleFile>> imported_;
  std::map<std::string, DeviceFacts> facts_;
};

std::shared_ptr<Chooser> make_chooser() {
  try {
    return stored_choice(result_folder());
  } catch (const Error&) {  // of the environment's options, which the call itself will meet
    return nullptr;
  }
}

[[maybe_unused]] const bool installed = (use_tuning_results(), true);

}  // namespace

void use_tuning_results() { set_chooser_maker(make_chooser); }

std::optional<ExplainedChoice> explained_choice(const std::string& folder, const Algorithm& a, const Problem& p,
                                                const Target& t, const AttentionCall& call) {
  for (ExplainedChoice& c : StoredChoice(folder, 0).explained(a, p, t, call, Tuning::cached))
    if (legality(a, p, c.schedule, t).empty()) return std::move(c);
  return std::nullopt;
}

std::shared_ptr<Chooser> stored_choice(std::string folder, double budget) {
  return std::make_shared<StoredChoice>(std::move(folder), budget);
}

CallShape shape_of(const AttentionCall& call) {
  CallShape s;
  s.sequences = call.cu_seqlens_q ? std::max<std::int64_t>(call.cu_seqlens_q->shape[0] - 1, 1) : call.q.shape[0];
  s.heads = call.q.shape[1], s.kv_heads = call.k.shape[1];
  s.rows = call.q.shape[2], s.keys = call.k.shape[2];
  if (call.cu_seqlens_q)
    s.rows = (s.rows + s.sequences - 1) / s.sequences, s.keys = (s.keys + s.sequences - 1) / s.sequences;
  if (s.rows <= 0 || s.keys <= 0) return s;
  // Visible pairs of a trapezium: masks by sizes only.
  double pairs = 0;
  const std::int64_t step = std::max<std::int64_t>(s.rows / 256, 1);
  for (std::int64_t row = 0; row < s.rows; row += step) {
    const std::int64_t position = row + s.keys - s.rows;
    std::int64_t from = 0, to = s.keys;
    if (call.causal) to = std::min(to, position + 1);
    if (call.window_left >= 0) from = std::max(from, position - call.window_left);
    if (call.window_right >= 0) to = std::min(to, position + call.window_right + 1);
    pairs +=
        static_cast<double>(std::max<std::int64_t>(to - from, 0)) * static_cast<double>(std::min(step, s.rows - row));
  }
  s.visible = std::max(pairs / (static_cast<double>(s.rows) * static_cast<double>(s.keys)), 1e-6);
  return s;
}

std::vector<std::string> tune_words(const AttentionCall& call) {
  if (call.cu_seqlens_q || call.values || call.bias || call.offset != 0) return {};
  std::vector<std::string> words{"--device", to_string(call.device)};
  const auto add = [&](const std::string& flag, const auto& value) {
    words.push_back("--" + flag), words.push_back(fmt::format("{}", value));
  };
  add("dtype", to_string(call.q.dtype)), add("out-dtype", to_string(call.o.dtype));
  add("batch", call.q.shape[0]), add("heads", call.q.shape[1]), add("kv-heads", call.k.shape[1]);
  add("seqlen-q", call.q.shape[2]), add("seqlen-k", call.k.shape[2]), add("head-dim", call.q.shape[3]),
      add("value-dim", call.v.shape[3]);
  if (call.device.kind == Device::Kind::cpu) add("threads", worker_count());
  if (call.rule != Rule::softmax) add("rule", to_string(call.rule));
  if (call.causal) words.push_back("--causal");
  if (call.tf32) words.push_back("--tf32");
  if (call.lse) words.push_back("--lse");
  if (call.window_left >= 0 || call.window_right >= 0)
    words.push_back(fmt::format("--window={},{}", call.window_left, call.window_right));
  if (call.softcap > 0) add("softcap", call.softcap);
  if (call.dropout > 0) add("dropout", call.dropout);
  if (call.top_k > 0) add("top-k", call.top_k), add("top-k-renormalise", call.top_k_renormalise);
  if (call.alibi_slopes) add("alibi-slopes", "standard");
  for (const auto& [flag, there] : {std::pair{"mask", call.mask.has_value()},
                                    {"sink", call.sink.has_value()},
                                    {"prefix-len", call.prefix_len.has_value()},
                                    {"doc-ids", call.doc_ids.has_value()},
                                    {"kv-lens", call.kv_lens.has_value()}})
    if (there) add(flag, "random");
  return words;
}

}  // namespace v1
}  // namespace attile
