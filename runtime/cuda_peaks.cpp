#include "runtime/cuda_peaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "dsl/error.h"
#include "runtime/cuda_build.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_timer.h"

namespace attile {
inline namespace v1 {
namespace {

// Chains of independent products hide the latency; a result that depends on all of them keeps them.
constexpr const char* text = R"(struct Arguments { unsigned long long out, from, rounds; };
constexpr int threads = 256, chains = 8;

#define MMA_KERNEL(name, instruction)                                                                          \
  extern "C" __global__ void __launch_bounds__(threads, 2) name(const Arguments a) {                           \
    float c[chains][4] = {};                                                                                   \
    unsigned x[4], y[2];                                                                                       \
    for (unsigned i = 0; i < 4; ++i) x[i] = 0x3F803F80u ^ ((threadIdx.x + i) << 31);                           \
    for (unsigned i = 0; i < 2; ++i) y[i] = 0x3F803F80u ^ ((threadIdx.x / 2 + i) << 31);                       \
    for (unsigned long long round = 0; round < a.rounds; ++round)                                              \
      _Pragma("unroll") for (int i = 0; i < chains; ++i)                                                       \
        asm volatile(instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                     : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])                              \
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));                      \
    float sum = 0;                                                                                             \
    for (int i = 0; i < chains; ++i) sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];                             \
    if (sum == 0.123f) *reinterpret_cast<float*>(a.out) = sum;                                                 \
  }

MMA_KERNEL(mma_bfloat16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
MMA_KERNEL(mma_float16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
MMA_KERNEL(mma_float32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")

extern "C" __global__ void __launch_bounds__(threads, 2) fma_float32(const Arguments a) {
  float c[4 * chains];
  for (int i = 0; i < 4 * chains; ++i) c[i] = i;
  const float x = 1.0f + 1e-7f * threadIdx.x, y = 1e-3f * threadIdx.x;
  for (unsigned long long round = 0; round < a.rounds; ++round)
#pragma unroll
    for (int i = 0; i < 4 * chains; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(c[i]) : "f"(x), "f"(y));
  float sum = 0;
  for (int i = 0; i < 4 * chains; ++i) sum += c[i];
  if (sum == 0.123f) *reinterpret_cast<float*>(a.out) = sum;
}

struct alignas(16) Words { unsigned w[4]; };
// `rounds` words of 16 bytes for each thread.
extern "C" __global__ void __launch_bounds__(threads) read_all(const Arguments a) {
  const Words* from = reinterpret_cast<const Words*>(a.from);
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * threads;
  unsigned long long at = static_cast<unsigned long long>(blockIdx.x) * threads + threadIdx.x;
  unsigned all = 0;
#pragma unroll 8
  for (unsigned long long round = 0; round < a.rounds; ++round, at += step) {
    const Words words = from[at];
    all ^= words.w[0] ^ words.w[1] ^ words.w[2] ^ words.w[3];
  }
  if (all == 0x12345678u) *reinterpret_cast<unsigned*>(a.out) = all;
}
)";
constexpr unsigned threads = 256;
constexpr int bursts = 5;
constexpr double warps = threads / 32.0, chains = 8;

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    cuda_check(cuda_driver().mem_alloc(&address_, bytes), fmt::format("allocating {} bytes to measure with", bytes));
  }
  ~DeviceMemory() { cuda_driver().mem_free(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  cu::Address address() const { return address_; }

 private:
  cu::Address address_ = 0;
};

struct Slots {
  std::uint64_t out = 0, from = 0, rounds = 0;
};

// The kernels of one device, loaded once and kept for the life of the process.
struct Probe {
  explicit Probe(int device) : module(image_for(device), "the kernels that measure the device"), timer(device) {}
  static std::string image_for(int device) {
    EmittedKernel probe;
    probe.name = "peaks";
    probe.text = text;
    return build_cuda(probe, cuda_device(device).arch()).image;
  }
  CudaModule module;
  CudaTimer timer;
};

// Seconds of the best of several runs of one of the kernels above.
double best_seconds(int device, const std::string& kernel, unsigned blocks, const Slots& slots) {
  static std::mutex mutex;
  static auto* probes = new std::map<int, std::unique_ptr<Probe>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<Probe>& probe = (*probes)[device];
  if (!probe) probe = std::make_unique<Probe>(device);
  const CudaKernel function = probe->module.kernel(kernel, 0);
  const CudaLaunch launch{blocks, 1, 1, threads, probe->timer.stream()};
  double best = 0;
  for (int i = 0; i <= bursts; ++i) {
    const double seconds = probe->timer.seconds(1, [&] { function.launch(launch, &slots, sizeof slots); });
    if (i == 1 || (i > 1 && seconds < best)) best = seconds;  // the first only wakes the device
  }
  return best;
}

double gflops_of(int device, const std::string& kernel, double flops_of_round, std::uint64_t rounds) {
  const CurrentContext current(device);
  const DeviceMemory out(256);
  const auto blocks = static_cast<unsigned>(2 * cuda_device(device).sms);
  const double seconds = best_seconds(device, kernel, blocks, {out.address(), 0, rounds});
  return flops_of_round * static_cast<double>(rounds) * blocks / seconds / 1e9;
}

}  // namespace

double measure_cuda_mma_gflops(int device, DType operands) {
  const double depth = operands == DType::float32 ? 8 : 16;
  return gflops_of(device, fmt::format("mma_{}", to_string(operands)), warps * chains * 2 * 16 * 8 * depth, 2048);
}

double measure_cuda_fma_gflops(int device) { return gflops_of(device, "fma_float32", threads * chains * 4 * 2, 4096); }

double measure_cuda_read_gbs(int device) {
  const CurrentContext current(device);
  const CudaDevice& facts = cuda_device(device);
  const auto blocks = static_cast<unsigned>(8 * facts.sms);
  const std::uint64_t step = std::uint64_t{blocks} * threads * 16;
  const std::uint64_t wanted = std::max<std::uint64_t>(4 * static_cast<std::uint64_t>(facts.l2_bytes), 256u << 20);
  const std::uint64_t rounds = (wanted / step + 7) / 8 * 8, bytes = rounds * step;
  const DeviceMemory from(bytes);
  const double seconds = best_seconds(device, "read_all", blocks, {from.address(), from.address(), rounds});
  return static_cast<double>(bytes) / seconds / 1e9;
}

}  // namespace v1
}  // namespace attile
