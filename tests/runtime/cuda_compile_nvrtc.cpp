#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "dsl/error.h"
#include "runtime/cubin.h"
#include "runtime/disassembler.h"
#include "runtime/nvrtc.h"
#include "runtime/nvrtc_compiler.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/needs_nvrtc.h"
#include "tests/support/self.h"

using namespace attile;
using namespace attile::test;

namespace {

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("no error");
}

constexpr embedded::File headers[] = {
    {"half.cuh", "#include \"sm80/twice.cuh\"\nfloat half(float x) { return twice(x) * 0.25f; }\n"},
    {"sm80/twice.cuh", "float twice(float x) { return x + x; }\n"},
};

std::string scale_kernel(int number = 0) {
  return fmt::format(R"(#include "half.cuh"
struct Arguments {{ unsigned long long slots[4]; }};
extern "C" __global__ void __launch_bounds__(128) scale(Arguments a) {{
  __shared__ float s[128];
  float* x = reinterpret_cast<float*>(a.slots[0]);
  s[threadIdx.x] = half(x[threadIdx.x]);
  __syncthreads();
  x[threadIdx.x] = s[127 - threadIdx.x] + {};
}}
)",
                     number);
}

// The text of a refused program is dumped for the report; the test takes it away again.
std::string take_dump(const Error& error) {
  const std::string text = error.what();
  const auto end = text.rfind(".cu'"), start = text.rfind('\'', end);
  REQUIRE(end != std::string::npos);
  const std::string path = text.substr(start + 1, end + 3 - start - 1), content = read_text(path);
  fs::remove(path);
  return content;
}

}  // namespace

TEST_CASE("a kernel is compiled for every chip NVRTC knows and log and cubin agree") {
  NEEDS_NVRTC;
  const auto [arch, chip] = GENERATE(values<std::pair<const char*, int>>(
      {{"sm_80", 80}, {"sm_86", 86}, {"sm_89", 89}, {"sm_90", 90}, {"sm_90a", 90}, {"sm_100", 100}, {"sm_120", 120}}));
  CAPTURE(arch, nvrtc().path);
  if (!nvrtc_knows(arch)) ATTILE_SKIP(fmt::format("NVRTC {} does not know {}", nvrtc().version(), arch));
  const CompiledCuda compiled = compile_cuda(scale_kernel(), "scale.cu", arch, headers);
  CHECK(compiled.arch == arch);
  CHECK(compiled.ptx.empty());
  CHECK(compiled.warnings.empty());
  CHECK(compiled.compile_ms > 0);
  REQUIRE(compiled.resources.size() == 1);
  const CudaResources& log = compiled.resources[0];
  CHECK(log.entry == "scale");
  CHECK(log.spill_store_bytes == 0);
  CHECK(log.shared_bytes == 512);
  CHECK(log.parameter_bytes == 32);
  CHECK(log.max_threads == 128);
  const auto cubin = read_cubin(compiled.image());
  REQUIRE(cubin);
  CHECK(cubin->arch == chip);
  REQUIRE(cubin->kernel("scale"));
  CHECK(log.registers == cubin->kernel("scale")->registers);
  CHECK(log.barriers == cubin->kernel("scale")->barriers);
  CHECK(log.stack_bytes == cubin->kernel("scale")->stack_bytes);
  CHECK(log.shared_bytes == cubin->kernel("scale")->shared_bytes);
}

TEST_CASE("spills and stack are told") {
  NEEDS_NVRTC;
  const char* text =
      "extern \"C\" __global__ void __launch_bounds__(1024) big(float* x, const float* y, int n) {\n"
      "  float r[80], a[16];\n  for (int i = 0; i < 80; i++) r[i] = y[i * 1024 + threadIdx.x];\n  __syncthreads();\n"
      "  for (int k = 0; k < 80; k++) { float s = 0; for (int i = 0; i < 80; i++) s += r[i] * r[(i + k) % 80]; r[k] = "
      "s; }\n"
      "  for (int i = 0; i < n; i++) a[i & 15] = r[i % 80];\n"
      "  for (int i = 0; i < 80; i++) x[i * 1024 + threadIdx.x] = r[i] + a[n & 15];\n}\n";
  const CompiledCuda compiled = compile_cuda(text, "big.cu", "sm_80", {});
  REQUIRE(compiled.resources.size() == 1);
  CHECK(compiled.resources[0].stack_bytes > 0);
  CHECK(compiled.resources[0].stack_bytes == read_cubin(compiled.cubin)->kernel("big")->stack_bytes);
  CHECK(compiled.resources[0].max_threads == 1024);
  CHECK(compiled.resources[0].registers <= 64);
}

TEST_CASE("one text compiles to the same bytes every time") {
  NEEDS_NVRTC;
  CHECK(compile_cuda(scale_kernel(), "scale.cu", "sm_80", headers).cubin ==
        compile_cuda(scale_kernel(), "scale.cu", "sm_80", headers).cubin);
}

TEST_CASE("PTX is kept on request") {
  NEEDS_NVRTC;
  const CompiledCuda compiled = compile_cuda(scale_kernel(), "scale.cu", "sm_80", headers, {.ptx = true});
  CHECK_FALSE(compiled.cubin.empty());
  CHECK_THAT(compiled.ptx, ContainsSubstring(".target sm_80") && ContainsSubstring(".entry scale"));
}

TEST_CASE("a text that does not parse is refused with its first error and a way to reproduce") {
  NEEDS_NVRTC;
  const std::string text = "extern \"C\" __global__ void f(float* x) { x[0] = undefined_name; float y }\n";
  const Error error = error_of([&] { compile_cuda(text, "f.cu", "sm_80", headers); });
  CHECK(error.kind() == ErrorKind::internal);
  CHECK_THAT(error.what(), ContainsSubstring("f.cu(1): error: identifier \"undefined_name\" is undefined") &&
                               ContainsSubstring("f.cu for sm_80") && ContainsSubstring("attile doctor --compile '") &&
                               ContainsSubstring("--arch sm_80"));
  CHECK(take_dump(error) == text);
}

TEST_CASE("an error of ptxas is told like one of the front end") {
  NEEDS_NVRTC;
  const Error error = error_of([] {
    compile_cuda("extern \"C\" __global__ void f(int* x) { asm volatile(\"no.such.instruction;\"); }\n", "f.cu",
                 "sm_80", {}, {.extra_flags = {"--ftz=true"}});
  });
  CHECK(error.kind() == ErrorKind::internal);
  CHECK_THAT(error.what(), ContainsSubstring("ptxas") && ContainsSubstring("--nvrtc-flag='--ftz=true'"));
  take_dump(error);
}

TEST_CASE("a header that was not given is an error and no file is read for it") {
  NEEDS_NVRTC;
  const Error error = error_of([] { compile_cuda("#include <cuda_fp16.h>\n", "f.cu", "sm_80", headers); });
  CHECK_THAT(error.what(), ContainsSubstring("cuda_fp16.h"));
  take_dump(error);
}

TEST_CASE("a chip NVRTC does not know gets PTX and a warning", "[C55]") {
  NEEDS_NVRTC;
  Warnings warnings;
  const CompiledCuda compiled = compile_cuda(scale_kernel(), "scale.cu", "sm_999", headers);
  CHECK(compiled.arch == fmt::format("compute_{}", nvrtc().archs.back()));
  CHECK(compiled.cubin.empty());
  CHECK_THAT(compiled.image(), ContainsSubstring(".entry scale"));
  REQUIRE(warnings.count() == 1);
  CHECK_THAT(warnings.texts()[0], ContainsSubstring("does not know sm_999") && ContainsSubstring(nvrtc().version()));
  CHECK(compiled.warnings == warnings.texts());
  const Error error = error_of([] { compile_cuda("int f() { return 1 }\n", "f.cu", "sm_999", headers); });
  CHECK(error.kind() == ErrorKind::unsupported);
  CHECK_THAT(error.what(), ContainsSubstring("does not know sm_999"));
  take_dump(error);
  CHECK(error_of([] { compile_cuda("", "f.cu", "sm_80a", {}); }).kind() == ErrorKind::unsupported);
}

TEST_CASE("the text for cache keys names compiler and flags") {
  NEEDS_NVRTC;
  CHECK(cuda_compiler_text({.extra_flags = {"--ftz=true"}}) ==
        fmt::format("NVRTC {} --std=c++17 -default-device --fmad=false --ptxas-options=-v --ftz=true", nvrtc().version()));
}

TEST_CASE("many threads compile at once", "[C60]") {
  NEEDS_NVRTC;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3; ++i) {
        const CompiledCuda c = compile_cuda(scale_kernel(t * 100 + i), "scale.cu", "sm_80", headers);
        const bool whole = c.resources.size() == 1 && c.resources[0].shared_bytes == 512 && !c.cubin.empty();
        bool refused = false;
        try {
          compile_cuda("#error no", "f.cu", "sm_80", {});
        } catch (const Error& error) {
          refused = std::string(error.what()).find("f.cu(1)") != std::string::npos;
          const std::string text = error.what();
          const auto end = text.rfind(".cu'");
          const auto start = text.rfind('\'', end);
          if (end != std::string::npos) fs::remove(text.substr(start + 1, end + 3 - start - 1));
        }
        wrong += !whole || !refused;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a process may exit while a thread compiles CUDA", "[C60]") {
  NEEDS_NVRTC;
  compile_cuda(scale_kernel(), "scale.cu", "sm_80", headers);  // the first of a process is not wholly guarded
  for (int round = 0; round < 8; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      std::thread([] {
        for (int i = 0;; ++i) compile_cuda(scale_kernel(i), "scale.cu", "sm_80", headers);
      }).detach();
      std::this_thread::sleep_for(std::chrono::milliseconds(10 * round));
      std::exit(0);
    }
    CHECK(wait_for(child) == 0);
  }
}

TEST_CASE("NVRTC works through a link in any folder", "[C51][C54]") {
  NEEDS_NVRTC;
  const std::string file = fs::canonical(nvrtc().path).string();
  if (in_self_run()) {
    CHECK(nvrtc().path == std::getenv("ATTILE_NVRTC"));
    CHECK_FALSE(compile_cuda(scale_kernel(), "scale.cu", "sm_80", headers).cubin.empty());
    return;
  }
  const ScratchPlace place("größe a'b $HOME 数据");
  fs::create_symlink(file, place / "libnvrtc.so.13");
  const SelfRun run =
      run_self("NVRTC works through a link*", {{"ATTILE_NVRTC", (place / "libnvrtc.so.13").string()}}, 120);
  INFO(run.output);
  CHECK(run.exit_code == 0);
}

TEST_CASE("a cubin becomes SASS text") {
  NEEDS_NVRTC;
  if (find_disassembler().empty()) ATTILE_SKIP("no nvdisasm or cuobjdump");
  const std::string sass = disassemble(compile_cuda(scale_kernel(), "scale.cu", "sm_80", headers).cubin);
  CHECK_THAT(sass, ContainsSubstring("BAR.SYNC") && ContainsSubstring("EXIT") && ContainsSubstring("scale"));
  CHECK(error_of([] { disassemble("no cubin"); }).kind() == ErrorKind::internal);
}
