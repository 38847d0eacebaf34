// What `attile tune` shows: progress, the table of candidates, the page of a report, the results that are kept.
#pragma once

#include <string>
#include <vector>

#include "autotune/tuner.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/kernel_flags.h"

namespace attile::cli {

// One problem with all that its report needs.
struct TuneCase {
  std::string text, variant;
  TuneProblem problem;
  CallShape shape;
  double flops = 0, bytes = 0;
};

// One line on stderr, drawn over itself on a terminal and about once a second elsewhere.
class ProgressLine {
 public:
  ~ProgressLine() { end(); }
  void show(const SearchProgress& p);
  void end();

 private:
  bool drawn_ = false;
  double shown_ = -1;
  std::string stage_;
};

std::string tune_table(const TuneCase& c, const DeviceFacts& facts, const TuneReport& report, std::size_t most);
Json tune_json(const TuneCase& c, const DeviceFacts& facts, const TuneReport& report);
// The space, what was refused and why, and the model's first choices unit by unit.
std::string explain_table(const TuneCase& c, const DeviceFacts& facts, const TuneReport& report, std::size_t most);
// A page that needs nothing beside it, with a part for each problem.
class TunePage {
 public:
  void add(const TuneCase& c, const DeviceFacts& facts, const TuneReport& report);
  std::string text() const;

 private:
  std::string title_, parts_;
};

// tune show, export, import, forget; what they need of a device is its name.
struct StoreFlags {
  std::string device = "auto", file;
  bool json = false, all = false;
  int threads = 0;  // whose results: 0 is every core
};
int show_results(const StoreFlags& flags);
int export_results(const StoreFlags& flags);
int import_results(const StoreFlags& flags);
int forget_results(const StoreFlags& flags);

// The device of --device without a CUDA driver in this process, so that it can fork workers. Throws as device_of does.
DeviceFacts facts_of_flag(const std::string& device, int threads = 0);

}  // namespace attile::cli
