// attile tune: the best schedule for a problem on this device, found by measuring, and kept.
#include "cli/tune.h"

#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "autotune/worker.h"
#include "cli/call_data.h"
#include "cli/output_file.h"
#include "cli/work.h"
#include "dsl/error.h"
#include "runtime/parallel_for.h"

namespace attile::cli {
namespace {

struct TuneFlags {
  KernelFlags kernel;
  StoreFlags store;
  std::string budget = "30s", report, list;
  bool resume = false, again = false, explain = false, json = false;
  int rows = 12;  // of the table
};

std::atomic<bool> interrupted = false;
void interrupt(int) { interrupted = true; }

// The first Ctrl-C ends the search with what is known, the second ends the process.
class Interruptible {
 public:
  Interruptible() {
    struct sigaction action {};
    action.sa_handler = interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, &before_);
  }
  ~Interruptible() { ::sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

// "10s", "2m", "exhaustive" as seconds; 0 without an end.
double budget_of(const std::string& text) {
  if (text == "exhaustive") return 0;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double scale = unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || scale == 0 || !(value > 0) || value * scale > 7 * 24 * 3600)
    throw Error(ErrorKind::argument, "--budget", fmt::format("\"{}\" is no time", text),
                "such as 10s, 2m or exhaustive");
  return value * scale;
}

struct LoadedCase {
  std::unique_ptr<CallData> data;
  TuneCase tune;
};

LoadedCase load_case(const KernelFlags& flags, Device device) {
  const DType out =
      flags.attention.dtype.empty() ? DType::float32 : parse_float_dtype(flags.attention.dtype, "--dtype");
  LoadedCase c;
  c.data = std::make_unique<CallData>(flags.attention, Contents::values, flags.lse, out);
  AttentionCall& call = c.data->call();
  call.device = device;
  c.tune.text = c.data->problem_text();
  c.tune.variant = variant_text(flags.attention);
  c.tune.problem.algorithm = attention(attention_options(call));
  c.tune.problem.arguments = attention_arguments(call);
  c.tune.problem.problem = problem_of(c.tune.problem.algorithm, c.tune.problem.arguments);
  c.tune.problem.problem.tf32 = call.tf32;
  const std::int64_t sequences = std::max<std::int64_t>(c.data->sequences(), 1);
  double pairs = 0, all = 0, rows = 0, keys = 0;
  for (const SequenceSizes& s : sequences_of(call, c.data->sequences())) {
    rows += static_cast<double>(s.rows), keys += static_cast<double>(s.keys);
    all += static_cast<double>(s.rows) * static_cast<double>(s.keys);
    for (std::int64_t row = 0; row < s.rows; ++row) {
      const KeyRange range = visible_keys(call, s, row);
      pairs += static_cast<double>(range.to - range.from);
    }
  }
  const auto mean = [&](double sum) { return static_cast<std::int64_t>(sum / static_cast<double>(sequences) + 0.5); };
  c.tune.shape = {sequences, call.q.shape[1], call.k.shape[1], mean(rows), mean(keys), all > 0 ? pairs / all : 1};
  const Work work = work_of(call, c.data->sequences());
  c.tune.flops = work.flops, c.tune.bytes = work.bytes;
  return c;
}

TuneOptions options_of(const TuneFlags& f, const TuneCase& c, ProgressLine& progress) {
  TuneOptions o;
  o.budget = budget_of(f.budget);
  o.resume = f.resume, o.again = f.again;
  o.folder = result_folder();
  o.flops = c.flops;
  o.stop = &interrupted;
  o.progress = [&progress](const SearchProgress& p) { progress.show(p); };
  o.note = [](const std::string& text) { fmt::print(stderr, "attile: {}\n", text); };
  return o;
}

// What is known without timing anything.
TuneReport explained(const TuneCase& c, const DeviceFacts& facts, const std::string& folder) {
  TuneReport report;
  report.constants = device_constants(facts, folder);
  report.space = tuning_space(c.problem, c.shape, facts, report.constants);
  const ResultStore store(folder, facts.machine);
  const Bucket bucket = bucket_of(c.problem.algorithm, c.problem.problem, c.shape, facts.machine.units);
  report.result = store.find(bucket);
  report.found.tried = store.tried(bucket);
  report.known = true;
  return report;
}

void write_page(const std::string& path, const std::string& page) {
  OutputFile file(path);
  file.write(page);
  file.finish();
}

// What all problems of a run add to.
struct Told {
  Json documents = Json::array();
  TunePage page;
};

int tune_one(const TuneFlags& f, const KernelFlags& kernel, const DeviceFacts& facts, Told& told) {
  const LoadedCase c = load_case(kernel, facts.device);
  if (f.explain) {
    fmt::print("{}", explain_table(c.tune, facts, explained(c.tune, facts, result_folder()),
                                   static_cast<std::size_t>(f.rows)));
    return good;
  }
  ProgressLine progress;
  const TuneReport report = tune(c.tune.problem, c.tune.shape, facts, options_of(f, c.tune, progress));
  progress.end();
  if (f.json)
    told.documents.push_back(tune_json(c.tune, facts, report));
  else
    fmt::print("{}", tune_table(c.tune, facts, report, static_cast<std::size_t>(f.rows)));
  if (!report.unkept.empty()) fmt::print(stderr, "attile: the result is not kept: {}\n", report.unkept);
  if (!f.report.empty()) told.page.add(c.tune, facts, report);
  return report.result ? good : failed;
}

// Words beside --list hold for every line that does not say otherwise.
KernelFlags flags_of_line(const std::string& line, const KernelFlags& base) {
  CLI::App app("", "");
  KernelFlags flags = base;
  add_size_flags(app, flags.attention);
  add_variant_flags(app, flags.attention);
  app.add_option("--out-dtype", flags.attention.out_dtype, "");
  app.add_flag("--lse", flags.lse, "");
  parse_line(app, line);
  return flags;
}

// Wrong words are wrong usage before any work; a problem that cannot be tuned does not keep the others from it.
int tune_list(const TuneFlags& f, const DeviceFacts& facts, Told& told) {
  const std::vector<ListLine> lines = lines_of_list(f.list);
  std::vector<KernelFlags> problems;
  for (const ListLine& line : lines)
    at_place(line.place, [&] { problems.push_back(flags_of_line(line.text, f.kernel)); });
  int code = good;
  for (std::size_t i = 0; i < lines.size() && !interrupted; ++i) {
    try {
      code = std::max(code, tune_one(f, problems[i], facts, told));
    } catch (const Error& e) {
      std::fflush(stdout);
      fmt::print(stderr, "attile: {}: {}\n", lines[i].place, e.what());
      code = failed;
    }
  }
  return code;
}

int run(const TuneFlags& f) {
  budget_of(f.budget);  // a wrong word is wrong usage, before any work
  if (f.explain && (f.json || !f.report.empty()))
    throw Error(ErrorKind::argument, "--explain",
                fmt::format("it is a text only, without {}", f.json ? "--json" : "--report"),
                "leave one of the two out");
  const DeviceFacts facts = facts_of_flag(f.kernel.machine.device, f.kernel.machine.threads);
  const Interruptible interruptible;
  Told told;
  const int code = f.list.empty() ? tune_one(f, f.kernel, facts, told) : tune_list(f, facts, told);
  if (f.json) fmt::print("{}\n", json_text(f.list.empty() ? told.documents.front() : told.documents));
  if (!f.report.empty()) write_page(f.report, told.page.text());
  return code;
}

void add_flags(CLI::App& verb, TuneFlags& f) {
  add_size_flags(verb, f.kernel.attention);
  add_variant_flags(verb, f.kernel.attention);
  verb.add_option("--out-dtype", f.kernel.attention.out_dtype, "Type of the output (as --dtype)")
      ->type_name("TYPE")
      ->group("Attention");
  verb.add_flag("--lse", f.kernel.lse, "With the log-sum-exp as a second output")->group("Attention");
  add_machine_flags(verb, f.kernel.machine);
  verb.add_option("--budget", f.budget, "Time to take: 10s, 2m, exhaustive (30s)")->type_name("TIME");
  verb.add_flag("--resume", f.resume, "More candidates for a problem that is known");
  verb.add_flag("--again", f.again, "Everything anew");
  verb.add_flag("--explain", f.explain,
                "Nothing is timed: the candidates, what the model says of them, why others are refused");
  verb.add_option("--report", f.report, "A page with everything that was measured, of every problem of a list")
      ->type_name("FILE.html");
  verb.add_option("--list", f.list,
                  "A text file with a problem on each line, as flags; # begins a comment. Flags beside --list hold for "
                  "each line "
                  "that does not say otherwise")
      ->type_name("FILE");
  verb.add_option("--rows", f.rows, "Candidates that the table shows (12)")
      ->check(CLI::Range(1, 100000).description(""));
  verb.add_flag("--json", f.json, "The report as JSON; of a list, as an array");
}

}  // namespace

DeviceFacts facts_of_flag(const std::string& text, int threads) {
  set_worker_count(threads);
  if (parse_device(text == "auto" ? "cpu" : text, "--device").kind == Device::Kind::cpu && text != "auto")
    return facts_of(Device{});
  // Looking for a GPU starts its driver, which this process must not have when it forks.
  Worker worker([&](WorkerLine& line) {
    try {
      line.write(to_string(device_of(text)));
    } catch (const Error& e) {
      std::string fault = fmt::format("!{}{}", static_cast<int>(e.kind()), e.what());
      std::replace(fault.begin(), fault.end(), '\n', ' ');
      line.write(fault);
    }
  });
  constexpr double patience = 120;
  const std::optional<std::string> answer = worker.receive(patience);
  if (!answer)
    throw Error(ErrorKind::environment, "--device",
                fmt::format("a child process that looked for it {}", worker.fate(patience)));
  if (answer->starts_with('!')) throw Error(static_cast<ErrorKind>(answer->at(1) - '0'), "", answer->substr(2));
  return facts_from_child(parse_device(*answer, "--device"));
}

Action add_tune(CLI::App& verb) {
  auto flags = std::make_shared<TuneFlags>();
  add_flags(verb, *flags);
  verb.require_subcommand(0, 1);
  const auto add = [&](const char* name, const char* doc) {
    CLI::App* sub = verb.add_subcommand(name, doc);
    sub->add_option("--device", flags->store.device, "auto (the first GPU, else cpu), cpu, cuda or cuda:i")
        ->type_name("DEVICE");
    sub->add_option("--threads", flags->store.threads,
                    "On a CPU: results for calls with so many threads; 0 is every core")
        ->check(CLI::Range(0, 4096).description(""));
    return sub;
  };
  CLI::App* shows = add("show", "Every result that is kept for the device");
  CLI::App* exports = add("export", "The results as a schedule file, such as those that are shipped");
  CLI::App* imports = add("import", "A schedule file whose schedules are preferred to the shipped ones");
  CLI::App* forgets = add("forget", "Remove results: those of other versions, or all");
  shows->add_flag("--json", flags->store.json, "The same as JSON");
  exports->add_option("--out", flags->store.file, "The file (standard output)")->type_name("FILE");
  imports->add_option("file", flags->store.file, "A schedule file")->type_name("FILE")->required();
  forgets->add_flag("--all", flags->store.all, "Those of this version too, and what was imported");
  return [=] {
    if (shows->parsed()) return show_results(flags->store);
    if (exports->parsed()) return export_results(flags->store);
    if (imports->parsed()) return import_results(flags->store);
    return forgets->parsed() ? forget_results(flags->store) : run(*flags);
  };
}

}  // namespace attile::cli
