// The driver: found, missing, refusing, in its own words. With the fake driver of fake_cuda/, in fresh processes.
#include "runtime/cuda_driver.h"

#include <functional>
#include <unistd.h>
#include <sys/wait.h>
#include <thread>

#include "runtime/cubin.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_module.h"
#include "runtime/device.h"
#include "tests/runtime/fake_cuda/fake_cuda.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"
#include "tests/support/self.h"

using namespace attile;
using namespace attile::test;

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Runs the test of this name again with the fake driver; true in the fresh process.
bool with_fake_driver(const std::string& name, Variables variables = {}, const std::string& folder = ATTILE_FAKE_CUDA) {
  if (in_self_run()) return true;
  Variables all{
      {"LD_LIBRARY_PATH", folder}, {"CUDA_VISIBLE_DEVICES", ""}, {"FAKE_CUDA_DEVICES", ""}, {"FAKE_CUDA_FAIL", ""}};
  all.insert(all.end(), variables.begin(), variables.end());
  const SelfRun run = run_self(name, all, 60);
  INFO(run.output);
  CHECK(run.exit_code == 0);
  return false;
}

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("no error");
}

std::string kept_cubin() { return read_text(ATTILE_SOURCE_DIR "/tests/data/cubin/scale-sm_80.cubin"); }

cu::Context current_context() {
  cu::Context context = nullptr;
  cuda_driver().ctx_get_current(&context);
  return context;
}

}  // namespace

TEST_CASE("codes of the driver become errors of their kind with a way out") {
  const Error memory = cuda_error(cu::Result::out_of_memory, "allocating 64 bytes");
  CHECK(memory.kind() == ErrorKind::resource);
  CHECK_THAT(memory.what(), ContainsSubstring("allocating 64 bytes failed: CUDA_ERROR_OUT_OF_MEMORY (2)") &&
                                ContainsSubstring("free memory"));
  CHECK(cuda_error(cu::Result::launch_out_of_resources, "x").kind() == ErrorKind::resource);
  CHECK(cuda_error(cu::Result::no_binary_for_gpu, "x").kind() == ErrorKind::unsupported);
  CHECK(cuda_error(cu::Result::unsupported_ptx_version, "x").kind() == ErrorKind::environment);
  CHECK_THAT(cuda_error(cu::Result::unsupported_ptx_version, "x").remedy(), ContainsSubstring("update the driver"));
  CHECK_THAT(cuda_error(cu::Result::not_initialized, "x").remedy(), ContainsSubstring("forked"));
  const Error other = cuda_error(static_cast<cu::Result>(777), "x");
  CHECK(other.kind() == ErrorKind::environment);
  CHECK_THAT(other.what(), ContainsSubstring("777"));
  CHECK(cuda_version_text(13000) == "13.0");
  CHECK(cuda_version_text(12080) == "12.8");
  CHECK(cuda_version_text(0) == "unknown");
}

TEST_CASE("devices are read from text") {
  CHECK(parse_device("cpu") == Device{});
  CHECK(parse_device("cuda") == Device{Device::Kind::cuda, 0});
  CHECK(parse_device("cuda:7") == Device{Device::Kind::cuda, 7});
  CHECK(to_string(parse_device("cuda:1")) == "cuda:1");
  CHECK(to_string(parse_device("cpu")) == "cpu");
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999999999", "cuda: 1", "CPU"}) {
    CAPTURE(text);
    const Error error = error_of([&] { parse_device(text, "--device"); });
    CHECK(error.kind() == ErrorKind::argument);
    CHECK(error.where() == "--device");
  }
}

TEST_CASE("a UUID is written as nvidia-smi writes it") {
  cu::Uuid uuid;
  for (int i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<char>(0xf0 + i);
  CHECK(uuid_text(uuid, false) == "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
  CHECK(uuid_text(uuid, true) == "MIG-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
}

TEST_CASE("a missing driver is told in one sentence with the places and the fix and the CPU is chosen", "[C54]") {
  const ScratchPlace place;
  write_text(place / "libcuda.so.1", "no library");
  if (!with_fake_driver("a missing driver is told*", {}, place.str())) return;
  if (probe_cuda_driver().usable) ATTILE_SKIP("this machine has a driver outside the loader's path");
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Error error = error_of([] { cuda_driver(); });
    CHECK(error.kind() == ErrorKind::environment);
    CHECK_THAT(error.what(), ContainsSubstring("libcuda.so.1 was not found") && ContainsSubstring("looked in") &&
                                 ContainsSubstring("/usr/lib/wsl/lib") && ContainsSubstring("install NVIDIA's driver"));
  }
  CHECK(cuda_device_count() == 0);
  CHECK_THAT(cuda_absence(), ContainsSubstring("libcuda.so.1"));
  CHECK(cuda_devices().empty());
  CHECK(error_of([] { cuda_device(0); }).kind() == ErrorKind::environment);
  CHECK(parse_device("auto") == Device{});
  CHECK_THAT(probe_cuda_driver().fault, ContainsSubstring("not found"));
}

TEST_CASE("a driver that lacks a function is too old") {
  if (!with_fake_driver("a driver that lacks a function*", {}, ATTILE_FAKE_CUDA "-old")) return;
  const Error error = error_of([] { cuda_driver(); });
  CHECK_THAT(error.what(), ContainsSubstring("too old") && ContainsSubstring("cuTensorMapEncodeTiled") &&
                               ContainsSubstring("12.4") && ContainsSubstring("525"));
}

TEST_CASE("a child forked after the driver was started is told so at once, one forked before may use it") {
  if (!with_fake_driver("a child forked after*", {})) return;
  const auto in_child = [](const std::function<bool()>& good) {
    const pid_t child = fork();
    if (child == 0) _exit(good() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return status == 0;
  };
  CHECK(in_child([] { return cuda_driver().version > 0; }));
  cuda_driver();
  CHECK(in_child([] {
    const Error error = error_of([] { cuda_driver(); });
    return error.kind() == ErrorKind::environment && error.remedy().find("forked") != std::string::npos;
  }));
  CHECK(cuda_driver().version > 0);
}

TEST_CASE("no device is told with the variable that hides them") {
  if (!with_fake_driver("no device is told*", {{"FAKE_CUDA_FAIL", "cuInit=100"}, {"CUDA_VISIBLE_DEVICES", "7"}}))
    return;
  const Error error = error_of([] { cuda_driver(); });
  CHECK(error.kind() == ErrorKind::environment);
  CHECK_THAT(error.what(),
             ContainsSubstring("CUDA_ERROR_NO_DEVICE") && ContainsSubstring("CUDA_VISIBLE_DEVICES is '7'"));
  const CudaProbe probe = probe_cuda_driver();
  CHECK_FALSE(probe.usable);
  CHECK(probe.version == 12040);
  CHECK_THAT(probe.path, ContainsSubstring("libcuda.so.1"));
  CHECK(cuda_device_count() == 0);
}

TEST_CASE("every device has facts of its own", "[C56]") {
  if (!with_fake_driver("every device has facts*", {{"FAKE_CUDA_DEVICES", "80,90,120"}})) return;
  REQUIRE(cuda_device_count() == 3);
  CHECK(cuda_absence().empty());
  CHECK(cuda_device(0).arch() == "sm_80");
  CHECK(cuda_device(1).arch() == "sm_90");
  CHECK(cuda_device(2).arch() == "sm_120");
  CHECK(cuda_device(0).uuid == "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0");
  CHECK(cuda_device(1).uuid == "MIG-01112131-4151-6171-8191-a1b1c1d1e1f1");
  CHECK(cuda_device(0).sms == 132);
  CHECK(cuda_device(0).l2_bytes == 0);  // a fact this driver does not know
  CHECK(parse_device("auto") == Device{Device::Kind::cuda, 0});
  const Error error = error_of([] { cuda_device(3); });
  CHECK(error.kind() == ErrorKind::argument);
  CHECK_THAT(error.what(), ContainsSubstring("cuda:0 to cuda:2"));
}

TEST_CASE("the caller's context is used where it fits and is current again afterwards", "[C56]") {
  if (!with_fake_driver("the caller's context is used*", {{"FAKE_CUDA_DEVICES", "80,90"}})) return;
  CHECK(current_context() == nullptr);
  cu::Context first = nullptr;
  {
    const CurrentContext on_first(0);
    first = on_first.context();
    CHECK(current_context() == first);
    {
      const CurrentContext again(0);
      CHECK(again.context() == first);
      const CurrentContext on_second(1);
      CHECK(current_context() == on_second.context());
      CHECK(on_second.context() != first);
      CHECK_THROWS_AS(CurrentContext(2), Error);
      CHECK(current_context() == on_second.context());
    }
    CHECK(current_context() == first);
    cu::Stream stream = nullptr;
    REQUIRE(cuda_driver().stream_create(&stream, 0) == cu::Result::success);
    CHECK(context_for(0, stream) == first);
    CHECK_THAT(error_of([&] { context_for(1, stream); }).what(), ContainsSubstring("another device"));
    CHECK(current_context() == first);
    CHECK(context_for(1, nullptr) != first);
    cuda_driver().stream_destroy(stream);
  }
  CHECK(current_context() == nullptr);
}

TEST_CASE("a device that cannot be opened leaves the caller's context") {
  if (!with_fake_driver("a device that cannot be opened*", {{"FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain=2"}})) return;
  const Error error = error_of([] { CurrentContext current(0); });
  CHECK(error.kind() == ErrorKind::resource);
  CHECK_THAT(error.what(), ContainsSubstring("cuda:0") && ContainsSubstring("out of memory"));
  CHECK(current_context() == nullptr);
}

TEST_CASE("a pointer tells its device") {
  if (!with_fake_driver("a pointer tells its device")) return;
  cu::Address address = 0;
  REQUIRE(cuda_driver().mem_alloc(&address, 64) == cu::Result::success);
  CHECK(cuda_device_of(reinterpret_cast<void*>(address)) == 0);
  int local = 0;
  CHECK(cuda_device_of(&local) == -1);
  CHECK(cuda_device_of(nullptr) == -1);
  cuda_driver().mem_free(address);
}

TEST_CASE("a kernel is launched in its own context with its block of arguments", "[C58]") {
  if (!with_fake_driver("a kernel is launched*", {{"FAKE_CUDA_DEVICES", "80,80"}})) return;
  std::optional<CudaKernel> kernel;
  cu::Stream stream = nullptr;
  {
    const CurrentContext current(1);
    const CudaModule module(kept_cubin(), "scale");
    kernel = module.kernel("scale", 100 << 10);
    REQUIRE(cuda_driver().stream_create(&stream, cu::stream_non_blocking) == cu::Result::success);
    CHECK_THAT(error_of([&] { module.kernel("none", 0); }).what(), ContainsSubstring("'none'"));
    const Error error = error_of([&] { module.kernel("scale", 300 << 10); });
    CHECK(error.kind() == ErrorKind::resource);
    CHECK_THAT(error.what(), ContainsSubstring("307200 bytes of shared memory") && ContainsSubstring("smaller tiles"));
  }
  CHECK(kernel->registers() == 10);
  CHECK(kernel->blocks_per_sm(256) == 2);
  FakeLaunch seen{};
  // "scale" has a pointer and a float: 12 bytes of parameters.
  struct {
    FakeLaunch* slot;
    std::uint64_t second;
  } arguments{&seen, 42};
  CHECK_THROWS_WITH(kernel->launch({}, &arguments, 16), ContainsSubstring("argument block"));
  kernel->launch({5, 6, 7, 128, stream}, &arguments, 12);
  CHECK((seen.grid_x == 5 && seen.grid_y == 6 && seen.grid_z == 7 && seen.threads == 128));
  CHECK(seen.shared_bytes == 100 << 10);
  CHECK(seen.stream == stream);
  CHECK(seen.device == 1);
  CHECK(seen.second_slot == 42);
  CHECK(seen.attributes == 0);
  kernel->launch({1, 1, 1, 32, stream, true}, &arguments, 12);
  CHECK(seen.attributes == 1);
  CHECK(current_context() == nullptr);
  cuda_driver().stream_destroy(stream);
}

TEST_CASE("a launch beyond the limits or refused by the driver is an error", "[C34]") {
  if (!with_fake_driver("a launch beyond the limits*", {{"FAKE_CUDA_FAIL", "cuLaunchKernel=701"}})) return;
  const CurrentContext current(0);
  const CudaKernel kernel = CudaModule(kept_cubin(), "scale").kernel("scale", 0);
  const std::uint64_t slots[2] = {};
  for (const CudaLaunch& launch : {CudaLaunch{1, 65536, 1, 32}, CudaLaunch{1, 1, 65536, 32},
                                   CudaLaunch{1u << 31, 1, 1, 32}, CudaLaunch{1, 1, 1, 257}, CudaLaunch{1, 1, 1, 32}}) {
    const Error error = error_of([&] { kernel.launch(launch, slots, 12); });
    CHECK(error.kind() == ErrorKind::resource);
    CHECK_THAT(error.what(), ContainsSubstring("launching kernel 'scale'"));
  }
}

TEST_CASE("an image that is damaged or does not fit is refused with driver and chip", "[C46][C55]") {
  if (!with_fake_driver("an image that is damaged*", {{"FAKE_CUDA_FAIL", "cuModuleLoadDataEx=222"}})) return;
  const CurrentContext current(0);
  const std::string cubin = kept_cubin();
  for (const std::string& image :
       {std::string(), std::string("text"), cubin.substr(0, 60), cubin.substr(0, cubin.size() / 2)}) {
    const Error error = error_of([&] { CudaModule(image, "scale"); });
    CHECK(error.kind() == ErrorKind::environment);
    CHECK_THAT(error.what(), ContainsSubstring("damaged") && ContainsSubstring("attile cache clear"));
  }
  const Error error =
      error_of([] { CudaModule(".version 9.0\n.target sm_90\n", "scale, compiled for compute_90 by NVRTC 13.0"); });
  CHECK(error.kind() == ErrorKind::environment);
  CHECK_THAT(error.what(), ContainsSubstring("NVRTC 13.0") && ContainsSubstring("CUDA 12.4") &&
                               ContainsSubstring("sm_90 of cuda:0") && ContainsSubstring("(ptxas too old)") &&
                               ContainsSubstring("update the driver"));
}

TEST_CASE("threads that ask first together all get an answer", "[C60]") {
  if (!with_fake_driver("threads that ask first together*", {{"FAKE_CUDA_DEVICES", "90,90"}})) return;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      const CurrentContext current(t % 2);
      const CudaKernel kernel = CudaModule(kept_cubin(), "scale").kernel("scale", 0);
      FakeLaunch seen{};
      const std::uint64_t slots[2] = {reinterpret_cast<std::uint64_t>(&seen), 0};
      kernel.launch({1, 1, 1, 32}, slots, 12);
      wrong += seen.device != t % 2;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
