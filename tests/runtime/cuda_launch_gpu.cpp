// The driver, NVRTC and a device together: a kernel compiled, loaded, launched on a stream, captured in a graph.
#include "dsl/error.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_module.h"
#include "runtime/nvrtc_compiler.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

#define NEEDS_DEVICE \
  if (cuda_device_count() == 0) ATTILE_SKIP(cuda_absence())

namespace {

constexpr const char* text = R"(struct Arguments { unsigned long long slots[3]; };
extern "C" __global__ void fill(Arguments a) {
  extern __shared__ float s[];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  int* out = reinterpret_cast<int*>(a.slots[0]);
  out[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<int>(a.slots[1]) + static_cast<int>(s[blockDim.x - 1 - threadIdx.x]);
}
)";
constexpr int count = 1024;

struct Filled {
  cu::Address memory = 0;
  cu::Stream stream = nullptr;
  const CudaDriver& driver = cuda_driver();
  Filled() {
    cuda_check(driver.mem_alloc(&memory, count * sizeof(int)), "allocating");
    cuda_check(driver.stream_create(&stream, cu::stream_non_blocking), "creating a stream");
  }
  ~Filled() {
    driver.mem_free(memory);
    driver.stream_destroy(stream);
  }
  void launch(const CudaKernel& kernel, std::uint64_t base) const {
    const std::uint64_t slots[3] = {memory, base, 0};
    kernel.launch({count / 256, 1, 1, 256, stream}, slots, sizeof slots);
  }
  bool holds(int base) const {
    int values[count];
    cuda_check(driver.stream_synchronize(stream), "waiting for the stream");
    cuda_check(driver.memcpy_d2h(values, memory, sizeof values), "copying");
    for (int i = 0; i < count; ++i)
      if (values[i] != base + 255 - i % 256) return false;
    return true;
  }
};

CudaKernel filling_kernel(const CudaDevice& device) {
  const std::string arch = device.arch();
  const CompiledCuda compiled = compile_cuda(text, "fill.cu", arch, {});
  return CudaModule(compiled.image(), "fill for " + arch)
      .kernel("fill", 100 << 10 <= device.shared_per_block_optin ? 99 << 10 : 48 << 10);
}

}  // namespace

TEST_CASE("a compiled kernel runs on every device and the caller's context is kept", "[C56]") {
  NEEDS_DEVICE;
  for (const CudaDevice& device : cuda_devices()) {
    CAPTURE(device.name, device.uuid, device.arch());
    CHECK(device.sms > 0);
    CHECK(device.memory_bytes > 0);
    CHECK(device.shared_per_block_optin >= 48 << 10);
    cu::Context before = nullptr, after = nullptr;
    cuda_driver().ctx_get_current(&before);
    {
      const CurrentContext current(device.index);
      const CudaKernel kernel = filling_kernel(device);
      CHECK(kernel.registers() > 0);
      CHECK(kernel.blocks_per_sm(256) >= 1);
      const Filled filled;
      CHECK(cuda_device_of(reinterpret_cast<void*>(filled.memory)) == device.index);
      CHECK(context_for(device.index, filled.stream) == current.context());
      filled.launch(kernel, 1000);
      CHECK(filled.holds(1000));
    }
    cuda_driver().ctx_get_current(&after);
    CHECK(before == after);
  }
}

TEST_CASE("a loaded kernel is captured in a graph and replayed", "[C59]") {
  NEEDS_DEVICE;
  const CurrentContext current(0);
  const CudaDriver& driver = cuda_driver();
  const auto begin = reinterpret_cast<int (*)(cu::Stream, int)>(driver.symbol("cuStreamBeginCapture_v2"));
  const auto end = reinterpret_cast<int (*)(cu::Stream, void**)>(driver.symbol("cuStreamEndCapture"));
  const auto instantiate =
      reinterpret_cast<int (*)(void**, void*, unsigned long long)>(driver.symbol("cuGraphInstantiateWithFlags"));
  const auto launch = reinterpret_cast<int (*)(void*, cu::Stream)>(driver.symbol("cuGraphLaunch"));
  REQUIRE((begin && end && instantiate && launch));
  const CudaKernel kernel = filling_kernel(cuda_device(0));  // never launched before
  const Filled filled;
  cu::CaptureStatus status = cu::CaptureStatus::none;
  void *graph = nullptr, *ready = nullptr;
  REQUIRE(begin(filled.stream, 0) == 0);  // global: nothing that could allocate or wait is allowed
  filled.launch(kernel, 7);
  CHECK(driver.stream_is_capturing(filled.stream, &status) == cu::Result::success);
  CHECK(status == cu::CaptureStatus::active);
  REQUIRE(end(filled.stream, &graph) == 0);
  REQUIRE(instantiate(&ready, graph, 0) == 0);
  for (int round = 0; round < 10; ++round) {
    cuda_check(driver.memset_d32_async(filled.memory, 0, count, filled.stream), "clearing");
    REQUIRE(launch(ready, filled.stream) == 0);
    CHECK(filled.holds(7));
  }
}

TEST_CASE("what a device cannot do is an error and the device stays usable", "[C63]") {
  NEEDS_DEVICE;
  const CurrentContext current(0);
  const CudaDevice& device = cuda_device(0);
  const CompiledCuda compiled = compile_cuda(text, "fill.cu", device.arch(), {});
  const CudaModule module(compiled.image(), "fill");
  try {
    module.kernel("fill", static_cast<std::size_t>(device.shared_per_block_optin) + 1024);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::resource);
  }
  const CudaKernel kernel = module.kernel("fill", 2048);
  const std::uint64_t slots[3] = {};
  CHECK_THROWS_AS(kernel.launch({1, 1, 1, 2048}, slots, sizeof slots), Error);
  const std::string other = device.major == 8 ? "sm_90" : "sm_80";
  try {
    CudaModule(compile_cuda(text, "fill.cu", other, {}).image(), "fill for " + other);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    CHECK_THAT(error.what(), ContainsSubstring(device.arch()));
  }
  const Filled filled;
  filled.launch(kernel, 3);
  CHECK(filled.holds(3));
}

TEST_CASE("PTX for the driver to finish runs too", "[C55]") {
  NEEDS_DEVICE;
  const CurrentContext current(0);
  const CompiledCuda compiled = compile_cuda(text, "fill.cu", cuda_device(0).arch(), {}, {.ptx = true});
  const CudaKernel kernel = CudaModule(compiled.ptx, "PTX of fill").kernel("fill", 2048);
  const Filled filled;
  filled.launch(kernel, 5);
  CHECK(filled.holds(5));
}
