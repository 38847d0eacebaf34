// A CUDA driver without devices, for tests of everything that stands before one: put its folder in LD_LIBRARY_PATH.
// FAKE_CUDA_DEVICES lists compute capabilities ("80,90"); FAKE_CUDA_FAIL lists results of functions
// ("cuInit=100,cuModuleLoadDataEx=222"). A launched kernel writes what it was started with where its first argument
// slot points.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime/cuda_types.h"
#include "tests/runtime/fake_cuda/fake_cuda.h"

namespace attile::cu {
struct ContextRecord {
  int device = 0;
  int retained = 0;
};
struct StreamRecord {
  ContextRecord* context = nullptr;
};
struct FunctionRecord {
  ContextRecord* context = nullptr;
};
struct ModuleRecord {
  ContextRecord* context = nullptr;
  FunctionRecord scale{context};
};
}  // namespace attile::cu

namespace {

using namespace attile::cu;

constexpr int most_shared = 227 << 10;

int planned(const char* function) {
  const char* list = std::getenv("FAKE_CUDA_FAIL");
  const char* found = list ? std::strstr(list, (std::string(function) + "=").c_str()) : nullptr;
  return found ? std::atoi(found + std::strlen(function) + 1) : 0;
}
#define PLANNED \
  if (int result = planned(__func__)) return result

std::vector<int> capabilities() {
  std::vector<int> all;
  const char* list = std::getenv("FAKE_CUDA_DEVICES");
  for (const char* at = list ? list : "90"; *at;) {
    all.push_back(std::atoi(at));
    const char* comma = std::strchr(at, ',');
    at = comma ? comma + 1 : at + std::strlen(at);
  }
  return all;
}

ContextRecord primary[16];
thread_local std::vector<Context> stack;
std::mutex mutex;
std::set<Address> allocated;

Context current() { return stack.empty() ? nullptr : stack.back(); }

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int
// Functions that must be there and that no test of this folder calls.
#define ABSENT(name) \
  API name() { return 801; }

API cuInit(unsigned) {
  PLANNED;
  return capabilities().empty() ? 100 : 0;
}
API cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}
API cuGetErrorName(int result, const char** name) {
  *name = result == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
  return result == 2 ? 0 : 1;
}
API cuGetErrorString(int result, const char** text) {
  *text = result == 2 ? "out of memory" : nullptr;
  return result == 2 ? 0 : 1;
}
API cuDeviceGetCount(int* count) {
  *count = static_cast<int>(capabilities().size());
  return 0;
}
API cuDeviceGet(DeviceHandle* device, int ordinal) {
  *device = ordinal;
  return 0;
}
API cuDeviceGetName(char* name, int bytes, DeviceHandle device) {
  std::strncpy(name, device == 1 ? "Fake H200 MIG 1g.18gb" : "Fake H200", static_cast<std::size_t>(bytes));
  return 0;
}
API cuDeviceGetUuid_v2(Uuid* uuid, DeviceHandle device) {
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(16 * i + device);
  return 0;
}
API cuDeviceGetAttribute(int* value, DeviceAttribute attribute, DeviceHandle device) {
  const int chip = capabilities()[static_cast<std::size_t>(device)];
  switch (attribute) {
    case DeviceAttribute::capability_major: *value = chip / 10; return 0;
    case DeviceAttribute::capability_minor: *value = chip % 10; return 0;
    case DeviceAttribute::sm_count: *value = 132; return 0;
    case DeviceAttribute::max_shared_per_block_optin: *value = most_shared; return 0;
    case DeviceAttribute::max_threads_per_block: *value = 1024; return 0;
    default: return 1;
  }
}
API cuDeviceTotalMem_v2(std::size_t* bytes, DeviceHandle) {
  *bytes = std::size_t{139} << 30;
  return 0;
}
API cuDevicePrimaryCtxRetain(Context* context, DeviceHandle device) {
  PLANNED;
  std::lock_guard lock(mutex);
  primary[device].device = device;
  ++primary[device].retained;
  *context = &primary[device];
  return 0;
}
ABSENT(cuDevicePrimaryCtxRelease_v2)
API cuCtxGetCurrent(Context* context) {
  *context = current();
  return 0;
}
API cuCtxSetCurrent(Context context) {
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(context);
  return 0;
}
API cuCtxPushCurrent_v2(Context context) {
  PLANNED;
  stack.push_back(context);
  return 0;
}
API cuCtxPopCurrent_v2(Context* context) {
  *context = current();
  if (!stack.empty()) stack.pop_back();
  return *context ? 0 : 201;
}
API cuCtxGetDevice(DeviceHandle* device) {
  if (!current()) return 201;
  *device = current()->device;
  return 0;
}
ABSENT(cuCtxSynchronize)

API cuModuleLoadDataEx(Module* module, const void*, unsigned count, JitOption* options, void** values) {
  if (int result = planned(__func__)) {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == JitOption::error_log) std::strcpy(static_cast<char*>(values[i]), "ptxas too old\nsecond line");
    return result;
  }
  if (!current()) return 201;
  *module = new ModuleRecord{current()};
  return 0;
}
API cuModuleUnload(Module module) {
  const bool wrong = current() != module->context;
  delete module;
  return wrong ? 201 : 0;
}
API cuModuleGetFunction(Function* function, Module module, const char* name) {
  if (std::strcmp(name, "scale") != 0) return 500;
  *function = &module->scale;
  return 0;
}
API cuFuncGetAttribute(int* value, FunctionAttribute attribute, Function) {
  *value = attribute == FunctionAttribute::max_threads_per_block ? 256 : 10;
  return 0;
}
API cuFuncSetAttribute(Function, FunctionAttribute, int value) { return value > most_shared ? 1 : 0; }
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function, int threads, std::size_t shared) {
  *blocks =
      static_cast<int>(std::min<std::size_t>(2048 / static_cast<std::size_t>(threads), most_shared / (shared + 1)));
  return 0;
}
API cuLaunchKernelEx(const LaunchConfig* c, Function function, void** arguments, void**) {
  PLANNED;
  if (current() != function->context) return 201;
  const auto* slots = static_cast<const std::uint64_t*>(arguments[0]);
  auto* seen = reinterpret_cast<attile::test::FakeLaunch*>(slots[0]);
  *seen = {c->grid_x, c->grid_y,         c->grid_z, c->block_x,        c->shared_bytes,
           c->stream, current()->device, slots[1],  c->attribute_count};
  return 0;
}
API cuLaunchKernel(Function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Stream stream, void** arguments, void** extra) {
  PLANNED;
  const LaunchConfig config{gx, gy, gz, bx, by, bz, shared, stream, nullptr, 0};
  return cuLaunchKernelEx(&config, function, arguments, extra);
}

API cuMemAlloc_v2(Address* address, std::size_t bytes) {
  PLANNED;
  *address = reinterpret_cast<Address>(std::malloc(bytes));
  std::lock_guard lock(mutex);
  allocated.insert(*address);
  return 0;
}
API cuMemFree_v2(Address address) {
  std::lock_guard lock(mutex);
  allocated.erase(address);
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
API cuPointerGetAttribute(void* value, PointerAttribute attribute, Address address) {
  std::lock_guard lock(mutex);
  if (!allocated.count(address)) return 1;
  *static_cast<unsigned*>(value) = attribute == PointerAttribute::memory_type ? 2 : 0;
  return 0;
}
API cuStreamCreate(Stream* stream, unsigned) {
  if (!current()) return 201;
  *stream = new StreamRecord{current()};
  return 0;
}
API cuStreamDestroy_v2(Stream stream) {
  delete stream;
  return 0;
}
API cuStreamGetCtx(Stream stream, Context* context) {
  *context = stream->context;
  return 0;
}

ABSENT(cuMemGetInfo_v2)
ABSENT(cuMemAllocAsync)
ABSENT(cuMemFreeAsync)
ABSENT(cuDeviceGetDefaultMemPool)
ABSENT(cuMemPoolSetAttribute)
ABSENT(cuMemcpyHtoD_v2)
ABSENT(cuMemcpyDtoH_v2)
ABSENT(cuMemcpyDtoD_v2)
ABSENT(cuMemcpyHtoDAsync_v2)
ABSENT(cuMemcpyDtoHAsync_v2)
ABSENT(cuMemcpyDtoDAsync_v2)
ABSENT(cuMemsetD8Async)
ABSENT(cuMemsetD32Async)
ABSENT(cuStreamSynchronize)
ABSENT(cuStreamWaitEvent)
ABSENT(cuStreamIsCapturing)
ABSENT(cuStreamGetCaptureInfo_v2)
ABSENT(cuEventCreate)
ABSENT(cuEventDestroy_v2)
ABSENT(cuEventRecord)
ABSENT(cuEventQuery)
ABSENT(cuEventSynchronize)
ABSENT(cuEventElapsedTime)
#ifndef FAKE_CUDA_OLD
ABSENT(cuTensorMapEncodeTiled)
#endif
