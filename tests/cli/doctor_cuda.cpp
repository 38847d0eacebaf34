// What `attile doctor` says about CUDA, with a driver of our own and without any.
#include <nlohmann/json.hpp>

#include "tests/cli/command_line.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile::test;
using Json = nlohmann::json;

TEST_CASE("doctor shows driver and devices") {
  const Finished f = attile_command(
      {"doctor"},
      {{"LD_LIBRARY_PATH", ATTILE_FAKE_CUDA}, {"FAKE_CUDA_DEVICES", "90,120"}, {"CUDA_VISIBLE_DEVICES", ""}});
  INFO(text_of(f));
  CHECK(f.code == 0);
  CHECK_THAT(f.out,
             ContainsSubstring("CUDA driver: ok") && ContainsSubstring("CUDA 12.4") && ContainsSubstring("cuda:0") &&
                 ContainsSubstring("Fake H200, sm_90, 149 GB, 132 SMs, GPU-00102030") && ContainsSubstring("sm_120"));
}

TEST_CASE("doctor works without driver, compiler and disassembler and tells the fix") {
  const ScratchPlace place;
  write_text(place / "libcuda.so.1", "no library");
  const Finished f = attile_command({"doctor", "--json"}, {{"LD_LIBRARY_PATH", place.str()},
                                                           {"ATTILE_NVRTC", "/nowhere/libnvrtc.so.13"},
                                                           {"PATH", "/nowhere"},
                                                           {"VIRTUAL_ENV", ""},
                                                           {"HOME", "/nowhere"}});
  INFO(text_of(f));
  CHECK(f.code == 0);
  const Json parts = Json::parse(f.out)["parts"];
  CHECK(parts["NVRTC"]["ok"] == false);
  CHECK_THAT(parts["NVRTC"]["missing"].get<std::string>(), ContainsSubstring("/nowhere/libnvrtc.so.13"));
  CHECK_THAT(parts["CUDA driver"]["fix"].get<std::string>(), !ContainsSubstring("nothing"));
  if (parts["SASS disassembler"]["ok"] == false)
    CHECK(parts["SASS disassembler"]["fix"] == "pip install nvidia-cuda-nvdisasm");
}

TEST_CASE("doctor tells that devices are hidden") {
  const Finished f = attile_command(
      {"doctor"},
      {{"LD_LIBRARY_PATH", ATTILE_FAKE_CUDA}, {"FAKE_CUDA_FAIL", "cuInit=100"}, {"CUDA_VISIBLE_DEVICES", "9"}});
  INFO(text_of(f));
  CHECK(f.code == 0);
  CHECK_THAT(f.out, ContainsSubstring("CUDA driver: limited") && ContainsSubstring("CUDA_VISIBLE_DEVICES is '9'"));
}

TEST_CASE("doctor --compile refuses a file that is not there") {
  const Finished f = attile_command({"doctor", "--compile", "/nowhere/x.cu"});
  CHECK(f.code != 0);
  CHECK_THAT(f.err, ContainsSubstring("/nowhere/x.cu"));
}
