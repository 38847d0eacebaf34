// A compiled kernel: generated for an algorithm, a problem and a device of this machine, kept in memory and on disk,
// called with tensors of any length and stride.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "codegen/program.h"
#include "runtime/device.h"
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

// How one call runs on a GPU; the CPU ignores it.
struct RunOptions {
  void* stream = nullptr;           // a CUstream (or cudaStream_t); null: the default stream
  void* workspace = nullptr;        // device memory of Kernel::workspace_bytes; null: from the device's pool, in stream order
  std::size_t workspace_bytes = 0;
};

class KernelState;

class ATTILE_API Kernel {
 public:
  // Finds the kernel in memory, or generates, compiles and loads it. Safe from any thread; one compile per kernel.
  // Without a schedule the default one for the device is taken. Throws Error(unsupported) with all reasons for an
  // illegal schedule, Error(environment) where the device or its compiler is missing.
  static Kernel get(const Algorithm& a, const Problem& p, const std::optional<Schedule>& s = std::nullopt, Device device = {});

  // Computes every output. On the CPU it returns when they are written; on a GPU it starts the work on the stream of
  // `options` and waits for nothing: tensors are device memory, lengths are read (and kept within the tensors) there,
  // the caller's current device and context stay as they are. In the capture of a graph a kernel must have run before
  // on that device: nothing is compiled or loaded there. Checks shapes, types, strides and lengths first: a call that throws has written nothing.
  //
  // Tensors: every input and output of the algorithm by name, with the dims it declares, in elements; feature dims
  // (head_dim, value_dim) have stride 1. Inputs other than product operands may have extent 1 for any dim and are then
  // broadcast. Outputs overlap nothing. Equal inputs give equal bits, whatever the number of threads.
  void run(const Arguments& arguments, const RunOptions& options = {}) const;

  // Bytes of device memory that a call with these arguments uses beside its tensors; 0 on the CPU.
  std::size_t workspace_bytes(const Arguments& arguments) const;

  const Program& program() const;
  const BuildInfo& build_info() const;

 private:
  Kernel(std::shared_ptr<const KernelState> state, Device device) : state_(std::move(state)), device_(device) {}
  std::shared_ptr<const KernelState> state_;
  Device device_;
};

// The problem that these arguments pose: types, compiled-in extents, group ratio.
ATTILE_API Problem problem_of(const Algorithm& a, const Arguments& arguments);

// The machine as a target: what kernels may use of it (ATTILE_CPU respected).
ATTILE_API const Target& host_target();
// The same of any device. Throws Error(environment) where it is not there.
ATTILE_API Target target_of(Device device);

}  // namespace v1
}  // namespace attile
