// The CUDA driver for one emulated device: memory is the host's, a launch has ended when it returns, streams are empty.
// Memory of the device ends where a page ends that nobody may touch, and begins full of NaN.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cuda_types.h"
#include "tests/emulator/engine.h"
#include "tests/emulator/machine.h"

namespace attile::cu {
struct ContextRecord {};
struct StreamRecord {};
struct EventRecord {};
struct MemoryPoolRecord {};
struct FunctionRecord {
  void (*run)(void** arguments);
};
struct ModuleRecord {
  void* library = nullptr;
  std::map<std::string, FunctionRecord> functions;
};
}  // namespace attile::cu

namespace {

using namespace attile::cu;

constexpr int most_shared = 227 << 10, sms = 132;
constexpr std::size_t page = 4096;

ContextRecord primary;
StreamRecord only_stream;
EventRecord only_event;
MemoryPoolRecord pool;

struct Allocation {
  char* base;
  std::size_t mapped, bytes;
};
std::mutex mutex;
// Never destroyed: modules are unloaded while the process exits.
auto& allocations = *new std::map<Address, Allocation>();  // by their first byte
std::vector<Context>& contexts() {
  thread_local auto* stack = new std::vector<Context>();
  return *stack;
}

Address allocate(std::size_t bytes) {
  const std::size_t used = (bytes + 15) / 16 * 16, mapped = (used + page - 1) / page * page + page;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return 0;
  char* end = static_cast<char*>(base) + mapped - page;
  mprotect(end, page, PROT_NONE);
  if (bytes <= std::size_t{64} << 20) std::memset(end - used, 0xFF, used);
  const std::lock_guard lock(mutex);
  const auto address = reinterpret_cast<Address>(end - used);
  allocations[address] = {static_cast<char*>(base), mapped, used};
  return address;
}
int release(Address address) {
  const std::lock_guard lock(mutex);
  const auto it = allocations.find(address);
  if (it == allocations.end()) return address == 0 ? 0 : 1;
  munmap(it->second.base, it->second.mapped);
  allocations.erase(it);
  return 0;
}
bool is_device(Address address) {
  const std::lock_guard lock(mutex);
  auto it = allocations.upper_bound(address);
  if (it == allocations.begin()) return false;
  --it;
  return address < it->first + it->second.bytes;
}
int copy(void* to, const void* from, std::size_t bytes) {
  std::memmove(to, from, bytes);
  return 0;
}
void* at(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API cuInit(unsigned) { return 0; }
API cuDriverGetVersion(int* version) {
  *version = 99000;  // of the emulated NVRTC
  return 0;
}
API cuGetErrorName(int result, const char** name) {
  *name = result == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
  return 0;
}
API cuGetErrorString(int, const char** text) {
  *text = "as the emulated device said";
  return 0;
}
API cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
API cuDeviceGet(DeviceHandle* device, int ordinal) {
  *device = ordinal;
  return 0;
}
API cuDeviceGetName(char* name, int bytes, DeviceHandle) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "Emulated sm_%d", emulator::chip());
  return 0;
}
API cuDeviceGetUuid_v2(Uuid* uuid, DeviceHandle) {
  std::memset(uuid->bytes, 0xE0, sizeof uuid->bytes);
  return 0;
}
API cuDeviceGetAttribute(int* value, DeviceAttribute attribute, DeviceHandle) {
  switch (attribute) {
    case DeviceAttribute::capability_major: *value = emulator::chip() / 10; return 0;
    case DeviceAttribute::capability_minor: *value = emulator::chip() % 10; return 0;
    case DeviceAttribute::sm_count: *value = sms; return 0;
    case DeviceAttribute::l2_bytes: *value = 50 << 20; return 0;
    case DeviceAttribute::max_shared_per_block: *value = 48 << 10; return 0;
    case DeviceAttribute::max_shared_per_block_optin: *value = most_shared; return 0;
    case DeviceAttribute::max_shared_per_sm: *value = most_shared + 1024; return 0;
    case DeviceAttribute::reserved_shared_per_block: *value = 1024; return 0;
    case DeviceAttribute::max_registers_per_sm:
    case DeviceAttribute::max_registers_per_block: *value = 65536; return 0;
    case DeviceAttribute::max_threads_per_sm: *value = 2048; return 0;
    case DeviceAttribute::max_threads_per_block: *value = 1024; return 0;
    case DeviceAttribute::max_blocks_per_sm: *value = 32; return 0;
    case DeviceAttribute::clock_khz: *value = 1000000; return 0;
    case DeviceAttribute::memory_clock_khz: *value = 1000000; return 0;
    case DeviceAttribute::memory_bus_bits: *value = 4096; return 0;
    case DeviceAttribute::warp_size: *value = 32; return 0;
    case DeviceAttribute::memory_pools_supported: *value = 1; return 0;
    default: return 1;
  }
}
API cuDeviceTotalMem_v2(std::size_t* bytes, DeviceHandle) {
  *bytes = std::size_t{16} << 30;
  return 0;
}
API cuDevicePrimaryCtxRetain(Context* context, DeviceHandle) {
  *context = &primary;
  return 0;
}
API cuDevicePrimaryCtxRelease_v2(DeviceHandle) { return 0; }
API cuCtxGetCurrent(Context* context) {
  *context = contexts().empty() ? nullptr : contexts().back();
  return 0;
}
API cuCtxSetCurrent(Context context) {
  if (!contexts().empty()) contexts().pop_back();
  if (context) contexts().push_back(context);
  return 0;
}
API cuCtxPushCurrent_v2(Context context) {
  contexts().push_back(context);
  return 0;
}
API cuCtxPopCurrent_v2(Context* context) {
  if (contexts().empty()) return 201;
  *context = contexts().back();
  contexts().pop_back();
  return 0;
}
API cuCtxGetDevice(DeviceHandle* device) {
  *device = 0;
  return contexts().empty() ? 201 : 0;
}
API cuCtxSynchronize() { return 0; }

API cuModuleLoadDataEx(Module* module, const void* image, unsigned, JitOption*, void**) {
  const std::string library = emulator::as_library(image);
  char path[] = "/tmp/attile_emulated_XXXXXX";  // a name of its own: the loader knows libraries by it
  const int file = mkstemp(path);
  if (file < 0 || ::write(file, library.data(), library.size()) != static_cast<ssize_t>(library.size())) return 999;
  ::close(file);
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) std::fprintf(stderr, "emulated device: %s\n", dlerror());
  ::unlink(path);
  if (!handle) return 200;
  *module = new ModuleRecord{handle, {}};
  return 0;
}
API cuModuleUnload(Module module) {
  dlclose(module->library);
  delete module;
  return 0;
}
API cuModuleGetFunction(Function* function, Module module, const char* name) {
  void* symbol = dlsym(module->library, (std::string("emulated_") + name).c_str());
  if (!symbol) return 500;
  *function = &module->functions.emplace(name, FunctionRecord{reinterpret_cast<void (*)(void**)>(symbol)}).first->second;
  return 0;
}
API cuFuncGetAttribute(int* value, FunctionAttribute attribute, Function) {
  *value = attribute == FunctionAttribute::max_threads_per_block ? 1024 : attribute == FunctionAttribute::registers ? 128 : 0;
  return 0;
}
API cuFuncSetAttribute(Function, FunctionAttribute, int value) { return value > most_shared ? 1 : 0; }
API cuFuncLoad(Function) { return 0; }
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function, int threads, std::size_t shared) {
  const auto by_shared = static_cast<int>((most_shared + 1024) / (shared + 1024)), by_registers = 512 / threads;
  *blocks = by_shared < by_registers ? by_shared : by_registers;
  return 0;
}
API cuLaunchKernelEx(const LaunchConfig* c, Function function, void** arguments, void**) {
  const char* wrong = emulator::run({{c->grid_x, c->grid_y, c->grid_z}, {c->block_x, c->block_y, c->block_z}, c->shared_bytes, function->run, arguments});
  if (wrong) std::fprintf(stderr, "emulated device: %s\n", wrong);
  return wrong ? 719 : 0;
}
API cuLaunchKernel(Function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Stream stream,
                   void** arguments, void** extra) {
  const LaunchConfig config{gx, gy, gz, bx, by, bz, shared, stream, nullptr, 0};
  return cuLaunchKernelEx(&config, function, arguments, extra);
}
API cuTensorMapEncodeTiled() { return 801; }

API cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{16} << 30;
  return 0;
}
API cuMemAlloc_v2(Address* address, std::size_t bytes) { return (*address = allocate(bytes)) ? 0 : 2; }
API cuMemFree_v2(Address address) { return release(address); }
API cuMemAllocAsync(Address* address, std::size_t bytes, Stream) { return cuMemAlloc_v2(address, bytes); }
API cuMemFreeAsync(Address address, Stream) { return release(address); }
API cuDeviceGetDefaultMemPool(MemoryPool* p, DeviceHandle) {
  *p = &pool;
  return 0;
}
API cuMemPoolCreate(MemoryPool* p, const void*) {
  *p = &pool;
  return 0;
}
API cuMemAllocFromPoolAsync(Address* address, std::size_t bytes, MemoryPool, Stream) { return cuMemAlloc_v2(address, bytes); }
API cuMemPoolSetAttribute(MemoryPool, MemoryPoolAttribute, void*) { return 0; }
API cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) { return copy(at(to), from, bytes); }
API cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) { return copy(to, at(from), bytes); }
API cuMemcpyDtoD_v2(Address to, Address from, std::size_t bytes) { return copy(at(to), at(from), bytes); }
API cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, Stream) { return copy(at(to), from, bytes); }
API cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, Stream) { return copy(to, at(from), bytes); }
API cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, Stream) { return copy(at(to), at(from), bytes); }
API cuMemsetD8Async(Address to, unsigned char value, std::size_t count, Stream) {
  std::memset(at(to), value, count);
  return 0;
}
API cuMemsetD32Async(Address to, unsigned value, std::size_t count, Stream) {
  for (std::size_t i = 0; i < count; ++i) static_cast<unsigned*>(at(to))[i] = value;
  return 0;
}
API cuPointerGetAttribute(void* value, PointerAttribute attribute, Address address) {
  if (!is_device(address)) return 1;
  *static_cast<unsigned*>(value) = attribute == PointerAttribute::memory_type ? 2 : 0;
  return 0;
}

API cuStreamCreate(Stream* stream, unsigned) {
  *stream = &only_stream;
  return 0;
}
API cuStreamDestroy_v2(Stream) { return 0; }
API cuStreamSynchronize(Stream) { return 0; }
API cuStreamWaitEvent(Stream, Event, unsigned) { return 0; }
API cuStreamGetCtx(Stream, Context* context) {
  *context = &primary;
  return 0;
}
API cuStreamIsCapturing(Stream, CaptureStatus* status) {
  *status = CaptureStatus::none;
  return 0;
}
API cuStreamGetCaptureInfo_v2(Stream, CaptureStatus* status, std::uint64_t*, Graph*, const GraphNode**, std::size_t*) {
  *status = CaptureStatus::none;
  return 0;
}
API cuEventCreate(Event* event, unsigned) {
  *event = &only_event;
  return 0;
}
API cuEventDestroy_v2(Event) { return 0; }
API cuEventRecord(Event, Stream) { return 0; }
API cuEventQuery(Event) { return 0; }
API cuEventSynchronize(Event) { return 0; }
API cuEventElapsedTime(float* ms, Event, Event) {
  *ms = 1;
  return 0;
}
