// Attention on a device as a program calls it: streams, contexts, graphs, threads, work space, odd calls.
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "dsl/error.h"
#include "dsl/evaluate.h"
#include "runtime/attention.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

#define NEEDS_DEVICE \
  if (cuda_device_count() == 0) ATTILE_SKIP(cuda_absence())

namespace {

// q, k, v and o in device memory, `shift` elements off the allocation's start, and the output of the untiled reference.
class DeviceCall {
 public:
  DeviceCall(std::int64_t heads, std::int64_t rows, std::int64_t keys, std::int64_t d, bool causal = true, int shift = 0, int device = 0)
      : heads_(heads), rows_(rows), keys_(keys), d_(d), shift_(shift), device_(device) {
    call.device = {Device::Kind::cuda, device};
    call.causal = causal;
    call.q = tensor(rows, 1), call.k = tensor(keys, 2), call.v = tensor(keys, 3), call.o = tensor(rows, 0);
  }
  ~DeviceCall() {
    const CurrentContext current(device_);
    for (const cu::Address memory : owned_) cuda_driver().mem_free(memory);
  }
  std::vector<float> output() const { return read(call.o); }
  void forget_output() const {
    const CurrentContext current(device_);
    cuda_check(cuda_driver().memset_d8_async(reinterpret_cast<cu::Address>(call.o.data), 0xFF, bytes(rows_), nullptr), "clearing");
    cuda_check(cuda_driver().ctx_synchronize(), "waiting");
  }
  void set(const TensorRef& t, std::int64_t head, std::int64_t row, std::int64_t column, std::uint32_t bits) const {
    const CurrentContext current(device_);
    const cu::Address at = reinterpret_cast<cu::Address>(t.data) + static_cast<std::size_t>((head * t.shape[2] + row) * d_ + column) * sizeof(float);
    cuda_check(cuda_driver().memcpy_h2d(at, &bits, sizeof bits), "copying");
  }
  // The largest |error| of the output.
  double error() const {
    const std::vector<float> q = read(call.q), k = read(call.k), v = read(call.v), got = output();
    const Algorithm a = attention(attention_options(call));
    EvaluateInputs in;
    in.batch = 1, in.heads = heads_;
    const auto host = [&](const std::vector<float>& x, std::int64_t n) {
      return HostTensor{DType::float32, const_cast<float*>(x.data()), {1, heads_, n, d_}, {0, n * d_, d_, 1}};
    };
    in.tensors = {{"q", host(q, rows_)}, {"k", host(k, keys_)}, {"v", host(v, keys_)}};
    in.scalars["scale"] = call.scale ? *call.scale : 1 / std::sqrt(static_cast<double>(d_));
    const std::vector<double> want = evaluate(a, in).at("o").values;
    double worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double e = std::fabs(got[i] - want[i]);
      worst = std::isnan(e) ? 1e9 : std::max(worst, e);
    }
    return worst;
  }

  AttentionCall call;

 private:
  std::size_t bytes(std::int64_t n) const { return static_cast<std::size_t>(heads_ * n * d_) * sizeof(float); }
  TensorRef tensor(std::int64_t n, unsigned seed) {
    const CurrentContext current(device_);
    cu::Address memory = 0;
    cuda_check(cuda_driver().mem_alloc(&memory, bytes(n) + 64), "allocating");
    owned_.push_back(memory);
    std::vector<float> values(static_cast<std::size_t>(heads_ * n * d_));
    std::uint64_t state = seed * 7919 + 1;
    for (float& x : values) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      x = static_cast<float>(static_cast<std::int64_t>(state >> 40) - (1 << 23)) / (1 << 23);
    }
    const cu::Address start = memory + static_cast<std::size_t>(shift_) * sizeof(float);
    if (!values.empty()) cuda_check(cuda_driver().memcpy_h2d(start, values.data(), bytes(n)), "copying");
    return contiguous(reinterpret_cast<void*>(start), DType::float32, {1, heads_, n, d_});
  }
  std::vector<float> read(const TensorRef& t) const {
    const CurrentContext current(device_);
    std::vector<float> values(static_cast<std::size_t>(t.shape[1] * t.shape[2] * t.shape[3]));
    cuda_check(cuda_driver().ctx_synchronize(), "waiting");
    if (!values.empty()) cuda_check(cuda_driver().memcpy_d2h(values.data(), reinterpret_cast<cu::Address>(t.data), values.size() * sizeof(float)), "copying");
    return values;
  }

  std::int64_t heads_, rows_, keys_, d_;
  int shift_, device_;
  std::vector<cu::Address> owned_;
};

cu::Context current_context() {
  cu::Context context = nullptr;
  cuda_check(cuda_driver().ctx_get_current(&context), "asking for the context");
  return context;
}

template <typename Function>
Function* function(const char* name) {
  return reinterpret_cast<Function*>(cuda_driver().symbol(name));
}

// What the test captures, replayed once.
class Graph {
 public:
  explicit Graph(cu::Stream stream) : stream_(stream) {
    cuda_check(function<cu::Result(cu::Stream, int)>("cuStreamBeginCapture_v2")(stream, 2), "beginning a capture");
  }
  void end() { cuda_check(function<cu::Result(cu::Stream, cu::Graph*)>("cuStreamEndCapture")(stream_, &graph_), "ending a capture"); }
  void replay() {
    void* executable = nullptr;
    cuda_check(function<cu::Result(void**, cu::Graph, unsigned long long)>("cuGraphInstantiateWithFlags")(&executable, graph_, 0), "instantiating a graph");
    cuda_check(function<cu::Result(void*, cu::Stream)>("cuGraphLaunch")(executable, stream_), "launching a graph");
    cuda_check(cuda_driver().stream_synchronize(stream_), "waiting for a graph");
  }

 private:
  cu::Stream stream_;
  cu::Graph graph_ = nullptr;
};

struct CallStream {
  cu::Stream handle = nullptr;
  CallStream() {
    const CurrentContext current(0);
    cuda_check(cuda_driver().stream_create(&handle, cu::stream_non_blocking), "creating a stream");
  }
  ~CallStream() { cuda_driver().stream_destroy(handle); }
};

}  // namespace

TEST_CASE("a call on any stream is right and leaves the caller's context as it was") {
  NEEDS_DEVICE;
  DeviceCall data(2, 200, 333, 64);
  const CallStream stream;
  const cu::Context before = current_context();
  for (void* on : {static_cast<void*>(nullptr), static_cast<void*>(stream.handle)}) {
    data.forget_output();
    data.call.run.stream = on;
    run_attention(data.call);
    CHECK(current_context() == before);
    CHECK(data.error() < 1e-5);
  }
}

TEST_CASE("a warm call is captured in a graph, a cold one is refused and leaves the capture usable") {
  NEEDS_DEVICE;
  const CurrentContext current(0);
  const CallStream stream;
  DeviceCall warm(1, 1, 4096, 64), cold(1, 77, 99, 40);   // the first in parts, with work space from the pool
  warm.call.run.stream = cold.call.run.stream = stream.handle;
  run_attention(warm.call);
  warm.forget_output();
  Graph graph(stream.handle);
  CHECK_THROWS_WITH(run_attention(cold.call), ContainsSubstring("nothing is loaded while a graph is captured"));
  run_attention(warm.call);
  graph.end();
  graph.replay();
  CHECK(warm.error() < 1e-5);
}

TEST_CASE("sixteen threads that make the first call together are all right") {
  NEEDS_DEVICE;
  std::vector<std::unique_ptr<DeviceCall>> calls;
  for (int i = 0; i < 16; ++i) calls.push_back(std::make_unique<DeviceCall>(1, 50 + i, 120, 24 + 8 * (i % 3)));
  std::vector<std::thread> threads;
  for (auto& one : calls) threads.emplace_back([&one] { run_attention(one->call); });
  for (std::thread& t : threads) t.join();
  for (auto& one : calls) CHECK(one->error() < 1e-5);
}

TEST_CASE("work space of the caller is used when it is enough and refused when it is not") {
  NEEDS_DEVICE;
  DeviceCall data(4, 1, 5000, 64, false);
  const std::size_t needed = attention_kernel(data.call).workspace_bytes(attention_arguments(data.call));
  REQUIRE(needed > 0);
  const CurrentContext current(0);
  cu::Address memory = 0;
  cuda_check(cuda_driver().mem_alloc(&memory, needed), "allocating");
  data.call.run.workspace = reinterpret_cast<void*>(memory), data.call.run.workspace_bytes = needed;
  run_attention(data.call);
  CHECK(data.error() < 1e-5);
  data.call.run.workspace_bytes = needed - 1;
  CHECK_THROWS_WITH(run_attention(data.call), ContainsSubstring("bytes are given and"));
  cuda_check(cuda_driver().ctx_synchronize(), "waiting");
  cuda_driver().mem_free(memory);
}

TEST_CASE("rows at odd addresses and a scale of 0 are served by twins of the kernel") {
  NEEDS_DEVICE;
  for (const int shift : {1, 2, 3, 4}) {
    DeviceCall data(2, 130, 70, 64, true, shift);
    run_attention(data.call);
    INFO(shift);
    CHECK(data.error() < 1e-5);
  }
  DeviceCall flat(2, 130, 70, 64);
  flat.call.scale = 0;
  run_attention(flat.call);
  CHECK(flat.error() < 1e-5);
}

TEST_CASE("calls without rows or without keys write what they should and nothing else") {
  NEEDS_DEVICE;
  DeviceCall no_rows(2, 0, 50, 64), no_keys(2, 50, 0, 64, false);
  run_attention(no_rows.call);
  run_attention(no_keys.call);
  for (const float x : no_keys.output()) CHECK(x == 0);
}

TEST_CASE("lengths in device memory that are no lengths are kept within the tensors") {
  NEEDS_DEVICE;
  DeviceCall data(2, 60, 200, 64, false);
  const CurrentContext current(0);
  cu::Address memory = 0;
  cuda_check(cuda_driver().mem_alloc(&memory, 4), "allocating");
  data.call.kv_lens = contiguous(reinterpret_cast<void*>(memory), DType::int32, {1});
  for (const std::int32_t length : {2000000000, 200}) {
    cuda_check(cuda_driver().memcpy_h2d(memory, &length, 4), "copying");
    data.forget_output();
    run_attention(data.call);
    AttentionCall full = data.call;
    const std::vector<float> got = data.output();
    full.kv_lens.reset();
    run_attention(full);
    CHECK(got == data.output());
  }
  const std::int32_t negative = -5;
  cuda_check(cuda_driver().memcpy_h2d(memory, &negative, 4), "copying");
  run_attention(data.call);
  for (const float x : data.output()) CHECK(x == 0);
  cuda_driver().mem_free(memory);
}

TEST_CASE("a device that is not there is an error of the caller's") {
  NEEDS_DEVICE;
  DeviceCall data(1, 10, 10, 16);
  data.call.device.index = 99;
  CHECK_THROWS_AS(run_attention(data.call), Error);
}

TEST_CASE("one process computes on every device at once", "[C56]") {
  NEEDS_DEVICE;
  const int devices = cuda_device_count();
  if (devices < 2) ATTILE_SKIP("needs two CUDA devices; one is here");
  std::vector<std::unique_ptr<DeviceCall>> calls;
  for (int i = 0; i < devices; ++i) calls.push_back(std::make_unique<DeviceCall>(2, 150, 170, 64, i % 2 == 0, 0, i));
  const cu::Context before = current_context();
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (const auto& one : calls)
    threads.emplace_back([&] {
      try {
        for (int repeat = 0; repeat < 20; ++repeat) run_attention(one->call);
      } catch (const Error&) {
        ++failed;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(failed == 0);
  for (int i = devices; i-- > 0;) {   // and from one thread, one device after the other
    calls[static_cast<std::size_t>(i)]->forget_output();
    run_attention(calls[static_cast<std::size_t>(i)]->call);
    CHECK(current_context() == before);
  }
  for (const auto& one : calls) CHECK(one->error() < 1e-5);
}

TEST_CASE("a NaN reaches its rows and no other, whatever its bits, and the largest float is none") {
  NEEDS_DEVICE;
  for (const std::uint32_t bits : {0x7FC00000u, 0xFFC00000u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {   // GPUs compute the third
    CAPTURE(bits);
    DeviceCall data(2, 70, 90, 64, false);
    data.set(data.call.q, 1, 33, 5, bits);
    run_attention(data.call);
    const std::vector<float> o = data.output();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < 2 * 70 * 64; ++i) wrong += std::isnan(o[static_cast<std::size_t>(i)]) != (i / 64 == 70 + 33);
    CHECK(wrong == 0);
  }
  DeviceCall data(1, 40, 40, 64, false);
  data.set(data.call.v, 0, 7, 3, 0x7F7FFFFFu);
  data.set(data.call.q, 0, 2, 3, 0x7F7FFFFFu);
  run_attention(data.call);
  for (const float x : data.output()) CHECK(!std::isnan(x));
}
