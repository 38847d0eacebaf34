// An algorithm with the kernels that were made of it in this process, found by what a call poses; and attention with a
// score and a mask of the user's own as algorithms of this kind, one for each set of ready options beside them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "dsl/dsl.h"
#include "runtime/attention.h"
#include "runtime/kernel.h"

namespace attile::python {

struct CallOptions {
  std::optional<Schedule> schedule;
  Device device;
  bool tf32 = false;
  Building building = attile::building();
  RunOptions run;
};

class Variant {
 public:
  explicit Variant(Algorithm algorithm);
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;
  const Algorithm& algorithm() const { return algorithm_; }
  Kernel kernel(const Arguments& arguments, const CallOptions& options);
  void run(const Arguments& arguments, const CallOptions& options);

 private:
  // What of a call decides its problem: cheaper to gather than the problem itself.
  using Signature = std::vector<std::int64_t>;
  Signature signature(const Arguments& arguments, Device device, bool tf32) const;

  void build_behind(const Problem& problem, const CallOptions& options);

  struct Made {
    Signature signature;
    std::optional<Schedule> schedule;
    Kernel kernel;
  };
  struct Tensor {
    std::string name;
    std::vector<int> compiled;  // its dims that the kernel is compiled for
    int heads = -1, kv_heads = -1, rows = -1;
  };
  Algorithm algorithm_;
  std::vector<Tensor> tensors_;
  std::vector<Made> made_;
  // The process that builds behind, one kernel at a time: a child of a fork has no thread of its parent's.
  std::shared_ptr<std::atomic<pid_t>> building_ = std::make_shared<std::atomic<pid_t>>(0);
};

// The name that a traced score has for the score it is given.
inline constexpr const char* score_name = "score";

class Mods {
 public:
  // Either may be empty.
  Mods(Expr score, Expr mask) : score_(std::move(score)), mask_(std::move(mask)) {}
  Mods(const Mods&) = delete;
  Mods& operator=(const Mods&) = delete;
  Variant& variant(AttentionOptions options);

 private:
  Expr score_, mask_;
  std::map<std::uint64_t, std::unique_ptr<Variant>> variants_;
};

}  // namespace attile::python
