// What a Kernel holds, and what the back ends make of it: cpu_kernel.cpp runs a program by ORC and the thread pool,
// cuda_kernel.cpp by NVRTC and the driver. Internal to runtime.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/bind.h"
#include "runtime/kernel.h"
#include "runtime/launch.h"
#include "runtime/parts.h"

namespace attile {
inline namespace v1 {

class KernelState {
 public:
  // `memory`: whether the host can read the tensors of a call.
  KernelState(Program made, CallPlan::Memory memory);
  virtual ~KernelState() = default;
  KernelState(const KernelState&) = delete;
  KernelState& operator=(const KernelState&) = delete;

  virtual void run(const Arguments& arguments, BoundCall& bound, Device device, const RunOptions& options) const = 0;
  virtual std::size_t workspace_bytes(const BoundCall&, Device) const { return 0; }

  Program program;
  BuildInfo info;
  CallPlan call;

 protected:
  bool in_parts() const { return parts.has_value(); }
  std::optional<PartsPlan> parts;    // where the stream is split: what lies between the two kernels
  std::vector<LaunchPlan> launches;  // one per kernel

 private:
  int work_operand(std::string_view name) const;
};

std::shared_ptr<const KernelState> make_cpu_kernel(Program program, double generate_ms);
std::shared_ptr<const KernelState> make_cuda_kernel(Program program, double generate_ms);

double elapsed_ms(std::chrono::steady_clock::time_point since);

}  // namespace v1
}  // namespace attile
