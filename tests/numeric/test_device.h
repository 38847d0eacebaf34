// Which device the numeric tests run on: the CPU, or what ATTILE_TEST_DEVICE says ("cuda", "cuda:1").
#pragma once

#include "runtime/kernel.h"

namespace attile::test {

Device test_device();
const Target& test_target();
// Runs a kernel on host tensors, wherever it runs.
void run_there(const Kernel& kernel, const Arguments& host);

}  // namespace attile::test
