// What the worker of a candidate does in its process: builds it, runs it into buffers of its own full of NaN, compares,
// and then takes samples as it is told.
#pragma once

#include "autotune/local_device.h"

namespace attile {
inline namespace v1 {

// Lines written: "built", then, once "check" is read, "good" or "fault <why>"; then for each "warm" or "cold" read, the
// seconds of a call.
void serve_candidate(WorkerLine& line, const Point& point, const TuneProblem& problem, const Reference& reference,
                     const DeviceFacts& facts);
// For each line read, seconds of a piece of work of the GPU that is always the same.
void serve_probes(WorkerLine& line, Device device);

}  // namespace v1
}  // namespace attile
