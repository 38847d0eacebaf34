// Every shipped best schedule compiled for its chip at problems that stand for its users: nothing spills, nothing is
// serialised, everything fits.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "codegen/embedded.h"
#include "codegen/program.h"
#include "dsl/error.h"
#include "dsl/library.h"
#include "runtime/nvrtc_compiler.h"
#include "schedules/registry.h"
#include "tests/support/needs_nvrtc.h"

using namespace attile;
using namespace attile::test;

namespace {

struct Case {
  std::string about;
  DType dtype = DType::bfloat16;
  std::int64_t head_dim = 64;
  bool causal = false, softcap = false, few_rows = false;
  std::int64_t group = 1;

  Algorithm algorithm() const {
    AttentionOptions options;
    options.causal = causal;
    options.softcap = softcap;
    return attention(options);
  }
  Problem problem() const {
    Problem p;
    for (const char* tensor : {"q", "k", "v", "o"}) p.dtypes[tensor] = dtype;
    p.extents = {{"head_dim", head_dim}, {"value_dim", head_dim}};
    p.group = group;
    p.few_rows = few_rows;
    return p;
  }
};

// The first two are compiled for every chip, the others for sm_80 and sm_90.
const std::vector<Case>& common_cases() {
  static const std::vector<Case> all{
      {"causal D128", DType::bfloat16, 128, true},
      {"decode D128 of a group", DType::bfloat16, 128, true, false, true, 8},
      {"D64", DType::bfloat16, 64},
      {"causal D64", DType::bfloat16, 64, true},
      {"D128", DType::bfloat16, 128},
      {"D256", DType::bfloat16, 256},
      {"causal D256", DType::bfloat16, 256, true},
      {"decode D128", DType::bfloat16, 128, true, false, true},
      {"float32 D64", DType::float32, 64},
      {"softcap D128", DType::bfloat16, 128, true, true},
  };
  return all;
}

bool meets(const Case& c, const KnownSchedule& known, const Target& target) {
  const KnownSchedule* best = best_known(c.algorithm(), c.problem(), target);
  return best != nullptr && best->name == known.name;
}

// A case for which this entry is the best known: of its largest head dims, masked if it may be.
std::optional<Case> case_for(const KnownSchedule& known, const Target& target) {
  constexpr std::int64_t largest = 512;
  for (const std::int64_t dim : {std::min(known.match.head_dim_to, largest), known.match.head_dim_from})
    for (const bool causal : {true, false})
      for (const bool few_rows : {false, true})
        for (const std::int64_t group : {1, 8})
          for (const DType dtype : {DType::bfloat16, DType::float32, DType::float16}) {
            const Case c{"\"" + known.name + "\"", dtype, dim, causal, false, few_rows, group};
            if (meets(c, known, target)) return c;
          }
  return std::nullopt;
}

std::vector<Case> cases_of(const Target& target) {
  if (target.name != "sm_80" && target.name != "sm_90") return {common_cases().begin(), common_cases().begin() + 2};
  std::vector<Case> cases = common_cases();
  for (const KnownSchedule& known : schedule_file(target).best) {
    const auto met = [&](const Case& c) { return meets(c, known, target); };
    if (std::any_of(cases.begin(), cases.end(), met)) continue;
    if (const std::optional<Case> c = case_for(known, target)) cases.push_back(*c);
  }
  return cases;
}

struct Job {
  std::string about;
  EmittedKernel kernel;
  Target target;
};

std::vector<Job> jobs_of(const std::string& chip) {
  const Target target = target_from_name(chip);
  std::vector<Job> jobs;
  for (const Case& c : cases_of(target)) {
    const Algorithm a = c.algorithm();
    const Schedule s = default_schedule(a, c.problem(), target);
    for (EmittedKernel& k : generate(a, c.problem(), s, target).kernels)
      jobs.push_back({fmt::format("{} {} {} [{}]", chip, c.about, k.name, to_string(s)), std::move(k), target});
  }
  return jobs;
}

// What is wrong with a compiled kernel, one line each.
std::vector<std::string> faults_of(const Job& job) {
  constexpr std::int64_t most_stack = 1024;
  constexpr std::int64_t most_spilled = 96;   // a few registers around the restart of a row tile that met a NaN
  const CompiledCuda compiled =
      compile_cuda(job.kernel.text, job.kernel.name + ".cu", job.target.arch, embedded::device_files());
  std::vector<std::string> faults;
  const auto add = [&](const std::string& fault) { faults.push_back(job.about + ": " + fault); };
  for (const std::string& warning : compiled.warnings)
    if (warning.find("C75") != std::string::npos) add(warning);
  if (compiled.resources.size() != 1) add("no resources are told");
  for (const CudaResources& r : compiled.resources) {
    if (r.spill_store_bytes > most_spilled || r.spill_load_bytes > most_spilled)
      add(fmt::format("spills {} bytes, loads {}; {} registers", r.spill_store_bytes, r.spill_load_bytes, r.registers));
    if (r.stack_bytes > most_stack) add(fmt::format("{} bytes of stack", r.stack_bytes));
    const std::int64_t shared = r.shared_bytes + job.kernel.shared_bytes;
    if (shared > job.target.shared_bytes)
      add(fmt::format("{} bytes of shared memory of {}", shared, job.target.shared_bytes));
  }
  return faults;
}

std::vector<std::string> faults_of(const std::vector<Job>& jobs) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::vector<std::string> faults;
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      std::vector<std::string> found;
      try {
        found = faults_of(jobs[i]);
      } catch (const Error& error) {
        found = {jobs[i].about + ": " + error.what()};
      }
      const std::lock_guard lock(mutex);
      faults.insert(faults.end(), found.begin(), found.end());
    }
  };
  std::thread other(work);
  work();
  other.join();
  return faults;
}

}  // namespace

TEST_CASE("every shipped schedule of a GPU is the best known of some problem") {
  for (const char* chip : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    const Target target = target_from_name(chip);
    CHECK(schedule_file(target).target == chip);
    for (const KnownSchedule& known : schedule_file(target).best) {
      INFO(chip << " " << known.name);
      CHECK(case_for(known, target).has_value());
    }
  }
}

TEST_CASE("shipped schedules of GPUs compile with few spills, no warnings of serialised products and no excess of memory") {
  const std::string chip = GENERATE("sm_80", "sm_90", "sm_86", "sm_89", "sm_100", "sm_120");
  NEEDS_NVRTC;
  if (!nvrtc_knows(chip)) ATTILE_SKIP(fmt::format("NVRTC {} does not know {}", nvrtc().version(), chip));
  for (const std::string& fault : faults_of(jobs_of(chip))) FAIL_CHECK(fault);
}
