// The command on a device: run, check, bench and explain. Without one these tests say that they did not run.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "codegen/program.h"
#include "dsl/library.h"
#include "runtime/cuda_build.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_module.h"
#include "runtime/cuda_occupancy.h"
#include "runtime/cuda_peaks.h"
#include "runtime/cuda_timer.h"
#include "runtime/kernel.h"
#include "schedules/registry.h"
#include "tests/cli/command_line.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;
using Json = nlohmann::json;

#define NEEDS_DEVICE \
  if (cuda_device_count() == 0) ATTILE_SKIP(cuda_absence())

TEST_CASE("run on a GPU agrees with the reference for every variant and type") {
  NEEDS_DEVICE;
  const std::vector<std::vector<std::string>> variants = {
      {"--causal"},
      {"--causal", "--lse-out", "/dev/null"},
      {"--window", "20,-1", "--softcap", "15"},
      {"--alibi-slopes", "standard", "--causal"},
      {"--bias", "random", "--mask", "random"},
      {"--sink", "0.5,-1", "--scale", "0.3"},
      {"--sink", "random", "--kv-lens", "170,3"},
      {"--kv-lens", "random", "--doc-ids", "random"},
      {"--causal", "--prefix-len", "5,40"},
      {"--top-k", "8"},
      {"--dropout", "0.25", "--seed", "7"},
      {"--rule", "sigmoid"},
      {"--rule", "linear", "--causal"},
      {"--rule", "softmax_plus_one"},
      {"--kv-heads", "1", "--value-dim", "24", "--out-dtype", "float16"},
  };
  for (const char* dtype : {"bfloat16", "float16", "float32"})
    for (const auto& variant : variants) {
      std::vector<std::string> words{"run", "--device",   "cuda", "--batch",    "2",   "--heads",
                                     "2",   "--seqlen-q", "150",  "--seqlen-k", "170", "--head-dim",
                                     "64",  "--dtype",    dtype,  "--repeat",   "1",   "--check"};
      words.insert(words.end(), variant.begin(), variant.end());
      const Finished f = attile_on_gpu(words);
      INFO(variant[0] << " " << dtype << "\n" << text_of(f));
      CHECK(f.code == 0);
      CHECK_THAT(f.out, ContainsSubstring("o agrees"));
    }
}

TEST_CASE("run on a GPU takes TF32 when it may, and auto takes the GPU") {
  NEEDS_DEVICE;
  const Finished f = attile_on_gpu({"run", "--heads", "2", "--tf32", "--check", "--lse-out", "/dev/null", "--json"});
  INFO(text_of(f));
  REQUIRE(f.code == 0);
  const Json json = Json::parse(f.out);
  CHECK(json["device"] == "cuda:0");
  CHECK(json["variant"] == "softmax, tf32");
  CHECK(json["peaks"]["arithmetic"] == "mma.sync of TF32");
  CHECK(json["peaks"]["gflops"].get<double>() > 1000);
  CHECK(json["peaks"]["read_gbs"].get<double>() > 50);
  CHECK(json["kernels"][0]["registers"].get<int>() > 0);
  CHECK(json["roofline_share"].get<double>() < 1.2);
  CHECK(json["check"]["agrees"] == true);
}

TEST_CASE("a decoding step on a GPU runs in parts") {
  NEEDS_DEVICE;
  const Finished f = attile_on_gpu({"run", "--dtype", "bfloat16", "--heads", "8", "--kv-heads", "2", "--seqlen-q", "1",
                                    "--seqlen-k", "20000", "--head-dim", "128", "--check"});
  INFO(text_of(f));
  CHECK(f.code == 0);
  CHECK_THAT(f.out, ContainsSubstring("o agrees"));
}

TEST_CASE("check on a GPU passes every shipped case in every type") {
  NEEDS_DEVICE;
  std::vector<std::string> words{"check", "--device", "cuda"};
  for (const auto& entry : fs::directory_iterator(ATTILE_SOURCE_DIR "/tests/cases"))
    if (entry.path().extension() == ".json") words.push_back(entry.path().string());
  for (const bool tf32 : {false, true}) {
    if (tf32) words.push_back("--tf32");
    const Finished f = attile_on_gpu(words);
    INFO(text_of(f));
    CHECK(f.code == 0);
    CHECK_THAT(f.out, ContainsSubstring(" 0 failed") && ContainsSubstring("on cuda:0"));
  }
}

TEST_CASE("bench on a GPU shows TFLOP/s and GB/s") {
  NEEDS_DEVICE;
  const ScratchPlace place;
  const std::string file = (place / "b.json").string();
  const Finished f = attile_on_gpu({"bench", "--device", "cuda:0", "--dtype", "bfloat16", "--head-dim", "64,128",
                                    "--seqlen-q", "1,2048", "--seqlen-k", "2048", "--repeat", "3", "--json", file});
  INFO(text_of(f));
  REQUIRE(f.code == 0);
  CHECK_THAT(f.out, ContainsSubstring("TFLOP/s") && ContainsSubstring("GB/s") && !ContainsSubstring("threads"));
  for (const Json& row : Json::parse(read_text(file))["rows"]) {
    CHECK(row["device"] == "cuda:0");
    CHECK(row["share_of_limit"].get<double>() < 1.2);
    CHECK(row["gbs"].get<double>() < 30000);
  }
}

TEST_CASE("explain on a GPU names what bounds a problem") {
  NEEDS_DEVICE;
  const Finished f = attile_on_gpu(
      {"explain", "--device", "cuda", "--dtype", "bfloat16", "--head-dim", "128", "--seqlen-q", "8192", "--measure"});
  INFO(text_of(f));
  CHECK(f.code == 0);
  CHECK_THAT(f.out, ContainsSubstring("bound by   arithmetic") && ContainsSubstring("measured"));
}

TEST_CASE("occupancy that is worked out is the driver's") {
  NEEDS_DEVICE;
  const CudaDevice& device = cuda_device(0);
  const CurrentContext current(0);
  for (const bool few : {false, true})
    for (const std::int64_t dim : {64, 128, 256}) {
      const Algorithm a = attention({});
      Problem p;
      for (const char* tensor : {"q", "k", "v", "o"}) p.dtypes[tensor] = DType::bfloat16;
      p.extents = {{"head_dim", dim}, {"value_dim", dim}};
      p.few_rows = few;
      const Target target = target_of({Device::Kind::cuda, 0});
      for (const EmittedKernel& k : generate(a, p, default_schedule(a, p, target), target).kernels) {
        const CudaBuild build = build_cuda(k, target.arch);
        REQUIRE(build.resources_known);
        const CudaKernel loaded =
            CudaModule(build.image, "test").kernel(k.name, static_cast<std::size_t>(k.shared_bytes));
        INFO(k.name << " " << dim << ", " << build.resources.registers << " registers");
        CHECK(cuda_occupancy(cuda_limits(device), k.threads, loaded.registers(), k.shared_bytes + loaded.shared_bytes())
                  .blocks() == loaded.blocks_per_sm(k.threads));
        CHECK(cuda_limits(target_from_name(schedule_file(target).target)).threads_per_sm == device.threads_per_sm);
      }
    }
}

TEST_CASE("a timer's samples do not depend on how much is queued") {
  NEEDS_DEVICE;
  const double limit = measure_cuda_mma_gflops(0, DType::bfloat16);
  CHECK(limit > 1000);
  CHECK(measure_cuda_mma_gflops(0, DType::float32) < limit);
  CHECK(measure_cuda_fma_gflops(0) < limit);
  CHECK(measure_cuda_read_gbs(0) > 50);
  CudaTimer timer(0);
  const CurrentContext current(0);
  EmittedKernel wait;
  wait.name = "wait";
  wait.text =
      "struct Arguments { unsigned long long cycles; };\n"
      "extern \"C\" __global__ void wait(const Arguments a) { const long long from = clock64(); while (clock64() - "
      "from < a.cycles); }\n";
  const CudaKernel kernel = CudaModule(build_cuda(wait, cuda_device(0).arch()).image, "test").kernel("wait", 0);
  const std::uint64_t cycles = 20000;
  const auto queue = [&] { kernel.launch({1, 1, 1, 32, timer.stream()}, &cycles, sizeof cycles); };
  timer.seconds(10, queue);
  const double one = timer.seconds(5, queue), many = timer.seconds(100, queue);
  CHECK(many > 5e-6);
  CHECK(one < 1.5 * many);
  CHECK(many < 1.5 * one);
}
