// What tuning found, kept for the user: one YAML file per device model, one line per result, each with a checksum. A
// line that is damaged or of another version or power limit is passed over with one warning and replaced by the next
// result for the same problem; results for several thread counts stand side by side. Any number of processes may read
// and write at once; a file changes whole or not at all. No fault of the disk is an error of the caller's.
//
// A look-up reads the one file as text and parses only lines of the problem asked for.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autotune/bucket.h"
#include "autotune/point.h"

namespace attile {
inline namespace v1 {

struct TuneResult {
  Bucket bucket;
  CallShape shape;      // that was measured
  std::string machine;  // Machine::text and versions
  std::string versions;
  Point match;  // what a schedule file says of such problems: dtype, head_dim, rows, masked, grouped
  Point winner;
  std::vector<Point> next;     // those after it, for when it does not fit or fails
  double seconds = 0;          // of the winner
  double default_seconds = 0;  // of what is taken without tuning, in the same run; 0 if not measured
  double spread = 0;           // of the winner's samples, relative
  double gflops = 0;
  bool noisy = false;     // other work on the device was seen: to be measured again
  bool complete = false;  // the search ended by itself or by its budget
  std::int64_t when = 0;  // seconds since 1970
};

// What became of a candidate: its seconds, or why it may not win.
struct Outcome {
  double seconds = 0;  // 0: it failed
  std::string fault;
  double predicted = 0;  // by the model without fitted effects; 0: not known
  bool operator==(const Outcome&) const = default;
};
// Everything that was tried for one bucket; kept beside the results and read by the tuner only.
struct TriedList {
  std::map<std::string, Outcome> outcomes;  // by to_string(Point)
  std::set<std::uint64_t> seen;             // hash_of every candidate of the space at that time
};

class ATTILE_API ResultStore {
 public:
  // `folder`: see result_folder(); empty: nothing is kept. Reads nothing yet.
  ResultStore(std::string folder, Machine machine);

  // Results of this machine and these versions that hold for the bucket, nearest first: the bucket's own, then those at
  // growing distance (equal ones in the order of their text).
  std::vector<TuneResult> nearest(const Bucket& bucket) const;
  // The bucket's own, if this version has words for its winner.
  std::optional<TuneResult> find(const Bucket& bucket) const;
  TriedList tried(const Bucket& bucket) const;
  // Of every bucket, machine and version in the file: what the model is fitted to.
  std::vector<TriedList> all_tried() const;

  // Adds or replaces the bucket's result, and what was tried. Returns why it could not be kept; empty when it was.
  std::string put(const TuneResult& result, const TriedList& tried);
  // Every good line, of any version; `faults` gets a sentence per line that is not.
  std::vector<TuneResult> all(std::vector<std::string>* faults = nullptr) const;
  // Removes results for which `gone` says so; returns their number. Throws Error(environment) where it may not or
  // cannot.
  std::size_t forget(const std::function<bool(const TuneResult&)>& gone);

  const Machine& machine() const { return machine_; }
  std::string path() const;        // of the results
  std::string tried_path() const;  // of what was tried
  // Held while one process times on this device; others wait for it.
  std::string timing_lock_path() const;

 private:
  std::string folder_;
  Machine machine_;
};

// The most results and the most bytes of a file; the oldest go first.
inline constexpr std::size_t most_results = 512;
inline constexpr std::size_t most_result_bytes = std::size_t{4} << 20;

// `tuned` in the folder of the kernel cache; empty where there is none or it may not be used.
ATTILE_API std::string result_folder();
// Why nothing may be kept in that folder, as far as options and the cache folder say; empty where it may.
ATTILE_API std::string store_fault(const std::string& folder);

// Whether two texts of machines differ in their number of units at most, which on a CPU is what a call asks for.
ATTILE_API bool same_device(const std::string& machine, const std::string& other);

// The lines of a results file; for export, import and tests.
ATTILE_API std::string result_line(const TuneResult& result);
// Throws Error(argument) for a line that is not whole.
ATTILE_API TuneResult parse_result_line(std::string_view line, const std::string& where);

}  // namespace v1
}  // namespace attile
