// --device, --target and --tf32 on a machine without a GPU, without a driver or without NVRTC: what is said, and that
// everything that needs none of them works.
#include <nlohmann/json.hpp>

#include "cli/ncu.h"
#include "dsl/error.h"
#include "runtime/cuda_occupancy.h"
#include "runtime/cuda_parts.h"
#include "runtime/disassembler.h"
#include "tests/cli/command_line.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;
using Json = nlohmann::json;

namespace {

using Variables = std::map<std::string, std::string>;
const std::vector<std::string> chips{"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"};

// A driver of our own; its devices are those of the list of compute capabilities.
Variables fake_driver(const std::string& chips_there) {
  return {{"LD_LIBRARY_PATH", ATTILE_FAKE_CUDA}, {"FAKE_CUDA_DEVICES", chips_there}};
}
Variables without_nvrtc(Variables more = {}) {
  more["ATTILE_NVRTC"] = "/nowhere/libnvrtc.so.13";
  return more;
}

const std::vector<std::string> small{"--seqlen-q", "40", "--heads", "2", "--head-dim", "32"};
std::vector<std::string> words(std::vector<std::string> first, const std::vector<std::string>& more = small) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

const std::vector<std::vector<std::string>> verbs{
    {"run", "--repeat", "1"}, {"bench", "--repeat", "1"}, {"explain"}, {"emit"}, {"tune", "--budget", "1s"}};

}  // namespace

TEST_CASE("every verb says why there is no GPU, with exit code 1 and nothing on standard output", "[C55]") {
  const ScratchPlace place;
  write_text(place / "libcuda.so.1", "no library");
  for (std::vector<std::string> verb : verbs) {
    verb.insert(verb.end(), {"--device", "cuda"});
    const Finished f = attile_command(words(verb), {{"LD_LIBRARY_PATH", place.str()}});
    INFO(text_of(f));
    CHECK(f.code == 1);
    CHECK(f.out.empty());
    CHECK_THAT(f.err, ContainsSubstring("attile: ") && ContainsSubstring("CUDA"));
  }
  const Finished check =
      attile_command({"check", "--device", "cuda", ATTILE_SOURCE_DIR "/tests/cases/case-06-softcap.json"},
                     {{"LD_LIBRARY_PATH", place.str()}});
  CHECK(check.code == 1);
  CHECK(check.out.empty());
  const Finished doctor = attile_command({"doctor", "--device", "cuda"}, {{"LD_LIBRARY_PATH", place.str()}});
  INFO(text_of(doctor));
  CHECK(doctor.code == 1);
  CHECK_THAT(doctor.out, ContainsSubstring("device: NOT USABLE"));
}

TEST_CASE("a device that is no word or is not there is wrong usage") {
  for (std::vector<std::string> verb :
       {std::vector<std::string>{"run"}, {"bench"}, {"explain"}, {"emit"}, {"tune"}, {"doctor"}}) {
    verb.insert(verb.end(), {"--device", "gpu"});
    const Finished f = attile_command(verb);
    INFO(verb[0] << "\n" << text_of(f));
    CHECK(f.code == 2);
    CHECK(f.out.empty());
    CHECK_THAT(f.err, ContainsSubstring("--device: \"gpu\" is not a device") &&
                          ContainsSubstring("auto, cpu, cuda and cuda:i"));
  }
  const Finished absent = attile_command(words({"run", "--device", "cuda:3"}), fake_driver("90,80"));
  INFO(text_of(absent));
  CHECK(absent.code == 2);
  CHECK_THAT(absent.err, ContainsSubstring("there is no cuda:3"));
}

TEST_CASE("auto takes the CPU where there is no GPU, and says so where a GPU cannot be used") {
  const Finished none = attile_command(words({"run", "--repeat", "1", "--check", "--json"}));
  INFO(text_of(none));
  REQUIRE(none.code == 0);
  CHECK(Json::parse(none.out)["device"] == "cpu");
  CHECK(none.err.empty());

  const Finished no_compiler =
      attile_command(words({"run", "--repeat", "1", "--json"}), without_nvrtc(fake_driver("90")));
  INFO(text_of(no_compiler));
  REQUIRE(no_compiler.code == 0);
  CHECK(Json::parse(no_compiler.out)["device"] == "cpu");
  CHECK_THAT(no_compiler.err, ContainsSubstring("the GPU is not used") && ContainsSubstring("/nowhere/libnvrtc.so.13"));

  const Finished old = attile_command(words({"run", "--repeat", "1", "--json"}), fake_driver("75"));
  INFO(text_of(old));
  REQUIRE(old.code == 0);
  CHECK_THAT(old.err, ContainsSubstring("sm_75") && ContainsSubstring("sm_80 and newer"));
}

TEST_CASE("a GPU without NVRTC, or of an old chip, is refused with the fix", "[C54]") {
  const Finished no_compiler = attile_command(words({"run", "--device", "cuda"}), without_nvrtc(fake_driver("90")));
  INFO(text_of(no_compiler));
  CHECK(no_compiler.code == 1);
  CHECK_THAT(no_compiler.err, ContainsSubstring("/nowhere/libnvrtc.so.13"));
  const Finished old = attile_command(words({"run", "--device", "cuda"}), fake_driver("75"));
  CHECK(old.code == 1);
  CHECK_THAT(old.err, ContainsSubstring("Fake H200") && ContainsSubstring("--device cpu"));
}

TEST_CASE("doctor says where kernels run") {
  const Json parts = Json::parse(attile_command({"doctor", "--json"}).out)["parts"];
  CHECK(parts["device"]["kernels run on"] == "cpu");
  const Finished cpu = attile_command({"doctor", "--device", "cpu"}, fake_driver("90"));
  CHECK(cpu.code == 0);
  CHECK_THAT(cpu.out, ContainsSubstring("device: ok"));
}

TEST_CASE("emit prints CUDA text and IR of every chip without driver and NVRTC, the same each time") {
  for (const std::string& chip : chips)
    for (const char* stage : {"algorithm", "ir", "cuda"}) {
      const std::vector<std::string> all{"emit", "--target", chip, "--stage", stage, "--causal", "--dtype", "bfloat16"};
      const Finished f = attile_command(all, without_nvrtc());
      INFO(chip << " " << stage << "\n" << f.err);
      CHECK(f.code == 0);
      CHECK(!f.out.empty());
      CHECK(f.out == attile_command(all, without_nvrtc()).out);
      if (std::string(stage) == "cuda") CHECK_THAT(f.out, ContainsSubstring("extern \"C\" __global__ void"));
    }
  const Finished passes = attile_command({"emit", "--target", "sm_90", "--pass", "all", "--causal"});
  CHECK_THAT(passes.out, ContainsSubstring("after tile_loops") && ContainsSubstring("after fuse"));
  const Finished exact = attile_command({"emit", "--target", "sm_80", "--stage", "cuda"}),
                 rounded = attile_command({"emit", "--target", "sm_80", "--stage", "cuda", "--tf32"});
  CHECK(exact.out != rounded.out);
}

TEST_CASE("emit says which chip a stage is of, and what a stage needs") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--stage", "ptx"}, "--target sm_90"},
      {{"--stage", "cuda", "--target", "x86-64-v3"}, "cuda is a stage of GPUs"},
      {{"--stage", "llvm", "--target", "sm_90"}, "llvm is a stage of CPUs"},
      {{"--stage", "wasm", "--target", "sm_90"}, "\"wasm\" is no stage"},
      {{"--target", "sm_91"}, "\"sm_91\" is not a known target"},
      {{"--target", "sm_90", "--device", "cpu"}, "leave one of the two out"}};
  for (const auto& [more, text] : wrong) {
    const Finished f = attile_command(words({"emit"}, more));
    INFO(text_of(f));
    CHECK(f.code == 2);
    CHECK(f.out.empty());
    CHECK_THAT(f.err, ContainsSubstring(text));
  }
  const Finished ptx = attile_command({"emit", "--stage", "ptx", "--target", "sm_90"}, without_nvrtc());
  CHECK(ptx.code == 1);
  CHECK_THAT(ptx.err, ContainsSubstring("/nowhere/libnvrtc.so.13"));
  const Variables bare{{"PATH", "/nowhere"}, {"VIRTUAL_ENV", ""}, {"CONDA_PREFIX", ""},
                       {"CUDA_HOME", ""},    {"CUDA_PATH", ""},   {"HOME", "/nowhere"}};
  const Finished sass = attile_command({"emit", "--stage", "sass", "--target", "sm_90"}, without_nvrtc(bare));
  INFO(text_of(sass));
  CHECK(sass.code == 1);
  if (sass.err.find("libnvrtc") == std::string::npos) CHECK_THAT(sass.err, ContainsSubstring("nvidia-cuda-nvdisasm"));
}

TEST_CASE("explain counts what a GPU's tiles move, without NVRTC") {
  const ScratchPlace place;
  const std::string file = (place / "s.yaml").string();
  write_text(file, "{lanes: fragments, tile_rows: 128, tile_keys: 64, warps: 4, stages: 2}\n");
  const auto explained = [&](const std::vector<std::string>& more) {
    const Finished f =
        attile_command(words({"explain", "--json", "--target", "sm_80", "--dtype", "bfloat16", "--schedule", file,
                              "--seqlen-q", "1024", "--heads", "4", "--head-dim", "64"},
                             more),
                       without_nvrtc());
    INFO(text_of(f));
    REQUIRE(f.code == 0);
    return Json::parse(f.out);
  };
  const Json plain = explained({});
  const double tensor = 4.0 * 1024 * 64 * 2;  // of q, k, v and o each
  CHECK(plain["legal"] == true);
  CHECK(plain["traffic"]["hbm_read"] == 3 * tensor);
  CHECK(plain["traffic"]["hbm_written"] == tensor);
  CHECK(plain["traffic"]["l2_read"] == tensor + 8 * 2 * tensor);  // eight row tiles
  CHECK(plain["traffic"]["flops"] == 4.0 * 4 * 1024 * 1024 * 64);
  CHECK(plain["traffic"]["tile_flops"] == plain["traffic"]["flops"]);
  CHECK(plain["kernels"][0]["tasks"] == 4 * 8);
  CHECK(plain["kernels"][0]["threads"] == 128);
  CHECK_THAT(plain["registers_not_known"].get<std::string>(), ContainsSubstring("/nowhere/libnvrtc.so.13"));
  CHECK_THAT(plain["not_measured"].get<std::string>(), ContainsSubstring("only named"));
  const Json causal = explained({"--causal"});
  // Row tile t sees 128 (t + 1) keys.
  CHECK(causal["traffic"]["l2_read"] == tensor + 2 * tensor * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8) / 8.0);
  CHECK(causal["traffic"]["tile_flops"].get<double>() > causal["traffic"]["flops"].get<double>());
  const Json grouped = explained({"--kv-heads", "1"});
  CHECK(grouped["traffic"]["hbm_read"] == tensor + 2 * tensor / 4);
  CHECK(grouped["traffic"]["l2_read"] == plain["traffic"]["l2_read"]);
}

TEST_CASE("explain of a GPU is a short text for people and refuses what it cannot do") {
  const Finished f = attile_command(
      {"explain", "--target", "sm_90", "--dtype", "bfloat16", "--head-dim", "128", "--causal"}, without_nvrtc());
  INFO(text_of(f));
  CHECK(f.code == 0);
  for (const char* word :
       {"best known for", "shared", "kernel", "multiprocessor", "waves", "HBM", "L2", "measured   not", "roofline"})
    CHECK_THAT(f.out, ContainsSubstring(word));
  CHECK(std::count(f.out.begin(), f.out.end(), '\n') < 25);
  CHECK(attile_command({"explain", "--target", "sm_90", "--measure"}).code == 2);
  CHECK(attile_command({"explain", "--measure"}).code == 2);
  const ScratchPlace place;
  write_text(place / "s.yaml", "{lanes: fragments, tile_rows: 512, tile_keys: 512, warps: 4}\n");
  const Finished illegal = attile_command({"explain", "--target", "sm_80", "--schedule", (place / "s.yaml").string()});
  CHECK(illegal.code == 1);
  CHECK_THAT(illegal.out, ContainsSubstring("not legal") && ContainsSubstring("shared memory"));
}

TEST_CASE("the flag --tf32 changes nothing on a CPU") {
  const ScratchPlace place;
  for (const char* flag : {"", "--tf32"}) {
    std::vector<std::string> all =
        words({"run", "--repeat", "1", "--check", "--out", (place / (std::string("o") + flag)).string()});
    if (*flag) all.push_back(flag);
    const Finished f = attile_command(all);
    INFO(text_of(f));
    CHECK(f.code == 0);
  }
  CHECK(read_text(place / "o") == read_text(place / "o--tf32"));
}

TEST_CASE("occupancy is that of NVIDIA's occupancy calculator") {
  const auto blocks = [](const char* chip, int threads, int registers, std::int64_t shared) {
    return cuda_occupancy(cuda_limits(target_from_name(chip)), threads, registers, shared);
  };
  CHECK(blocks("sm_80", 128, 255, 0).blocks() == 2);
  CHECK(blocks("sm_80", 128, 128, 0).blocks() == 4);
  CHECK(blocks("sm_80", 128, 168, 0).blocks() == 3);
  CHECK(blocks("sm_80", 128, 32, 80 << 10).blocks() == 2);
  CHECK(blocks("sm_80", 128, 32, 82 << 10).blocks() == 1);
  CHECK(blocks("sm_80", 1024, 64, 0).blocks() == 1);
  CHECK(blocks("sm_80", 32, 16, 0).blocks() == 32);
  CHECK(blocks("sm_86", 1024, 32, 0).blocks() == 1);
  CHECK(blocks("sm_86", 256, 40, 0).blocks() == 6);
  CHECK(blocks("sm_90", 256, 255, 0).blocks() == 1);
  CHECK(std::string(blocks("sm_90", 128, 255, 0).limited_by()) == "registers");
  CHECK(std::string(blocks("sm_90", 128, 32, 200 << 10).limited_by()) == "shared memory");
}

TEST_CASE("a stream is cut into parts until the device is full") {
  CHECK(cuda_parts(1000, 64, 132) == 1);
  CHECK(cuda_parts(132, 64, 132) == 1);
  CHECK(cuda_parts(8, 1024, 132) == 16);
  CHECK(cuda_parts(1, 2, 132) == 1);  // a part has at least two tiles
}

TEST_CASE("what Nsight Compute writes is read") {
  const std::string text = R"csv(==PROF== Connected to process 1
problem    B1, H8
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","attention(Arguments, ""x"")","dram__bytes_read.sum","byte","1,234,560"
"0","1","attention","dram__bytes_write.sum","byte","100"
"0","1","attention","lts__t_bytes.sum","byte","5,000"
"1","1","merge","dram__bytes_read.sum","byte","40"
)csv";
  const cli::MeasuredBytes bytes = cli::read_ncu_csv(text);
  CHECK(bytes.dram_read == 1234600);
  CHECK(bytes.dram_written == 100);
  CHECK(bytes.l2 == 5000);
  try {
    cli::read_ncu_csv("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::environment);
    CHECK_THAT(error.what(), ContainsSubstring("ERR_NVGPUCTRPERM"));
  }
}
