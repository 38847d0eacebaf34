// A compiled kernel: generated for an algorithm, a problem and this machine, kept in memory and on disk, called
// with tensors of any length and stride.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "codegen/program.h"
#include "runtime/tensor_ref.h"

namespace attile {
inline namespace v1 {

// The most memory that K and V packed ahead may take in a call; beyond it every task packs its own tiles.
inline constexpr std::int64_t packed_bytes_limit = std::int64_t{64} << 20;

// How a kernel came to be; for reports and tests.
struct BuildInfo {
  bool from_disk = false;      // every binary was read from the disk cache
  double generate_ms = 0;      // lowering and emission
  double compile_ms = 0;       // compiling, or reading from disk
  double load_ms = 0;          // linking into the process
};

class ATTILE_API Kernel {
 public:
  // Finds the kernel in memory, or generates, compiles and loads it. Safe from any thread; one compile per kernel.
  // Without a schedule the default one for this machine is taken. Throws Error(unsupported) with all reasons for an
  // illegal schedule.
  static Kernel get(const Algorithm& a, const Problem& p, const std::optional<Schedule>& s = std::nullopt);

  // Computes every output. Checks shapes, types, strides and lengths first: a call that throws has written nothing.
  //
  // Tensors: every input and output of the algorithm by name, with the dims it declares, in elements; feature dims
  // (head_dim, value_dim) have stride 1. Inputs other than product operands may have extent 1 for any dim and are then
  // broadcast. Outputs overlap nothing. Equal inputs give equal bits, whatever the number of threads.
  void run(const Arguments& arguments) const;

  const Program& program() const;
  const BuildInfo& build_info() const;

 private:
  struct State;
  void run_packed(const Arguments& arguments, class BoundCall& bound) const;
  void run_with_states(class BoundCall& bound) const;
  explicit Kernel(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// The problem that these arguments pose: types, compiled-in extents, group ratio.
ATTILE_API Problem problem_of(const Algorithm& a, const Arguments& arguments);

// The machine as a target: what kernels may use of it (ATTILE_CPU respected).
ATTILE_API const Target& host_target();

}  // namespace v1
}  // namespace attile
