// What NVRTC makes of emitted texts, through the command: PTX, SASS, registers. No GPU.
#include <nlohmann/json.hpp>

#include "dsl/error.h"
#include "runtime/disassembler.h"
#include "runtime/nvrtc.h"
#include "tests/cli/command_line.h"
#include "tests/support/needs_nvrtc.h"

using namespace attile;
using namespace attile::test;
using Json = nlohmann::json;

namespace {

std::vector<std::string> emitted(const std::string& chip, const std::string& stage) {
  return {"emit", "--target", chip, "--stage", stage, "--dtype", "bfloat16", "--head-dim", "64"};
}

}  // namespace

TEST_CASE("emit prints PTX of every chip NVRTC knows") {
  NEEDS_NVRTC;
  for (const std::string chip : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    if (!nvrtc_knows(chip)) continue;
    const Finished f = attile_command(emitted(chip, "ptx"));
    INFO(chip << "\n" << f.err);
    CHECK(f.code == 0);
    CHECK_THAT(f.out, ContainsSubstring(".target " + chip) && ContainsSubstring(".entry attention") &&
                          ContainsSubstring("mma.sync"));
  }
}

TEST_CASE("emit prints SASS of every chip NVRTC knows, the second time from the cache") {
  NEEDS_NVRTC;
  if (find_disassembler().empty()) ATTILE_SKIP("no nvdisasm and no cuobjdump");
  for (const std::string chip : {"sm_80", "sm_90", "sm_120"}) {
    if (!nvrtc_knows(chip)) continue;
    const Finished f = attile_command(emitted(chip, "sass"));
    INFO(chip << "\n" << f.err);
    CHECK(f.code == 0);
    CHECK_THAT(f.out, ContainsSubstring("HMMA") && ContainsSubstring("attention"));
    CHECK(f.out == attile_command(emitted(chip, "sass")).out);
  }
}

TEST_CASE("explain shows registers, spills and occupancy of each kernel of a program") {
  NEEDS_NVRTC;
  const Finished f =
      attile_command({"explain", "--target", "sm_90", "--dtype", "bfloat16", "--head-dim", "64", "--json"});
  INFO(text_of(f));
  REQUIRE(f.code == 0);
  const Json json = Json::parse(f.out);
  REQUIRE(json["kernels"].size() >= 1);
  const Json& kernel = json["kernels"][0];
  CHECK(kernel["registers"].get<int>() > 32);
  CHECK(kernel["registers"].get<int>() <= 255);
  CHECK(kernel.contains("spill_store_bytes"));
  CHECK(kernel["occupancy"]["blocks"].get<int>() >= 1);
  CHECK(kernel["waves"].get<double>() > 0);
  CHECK(json.contains("registers_not_known") == false);
  const Finished text = attile_command({"explain", "--target", "sm_90", "--dtype", "bfloat16", "--head-dim", "64"});
  CHECK_THAT(text.out, ContainsSubstring("registers, ") && ContainsSubstring("limited by"));

  const ScratchPlace place;
  write_text(
      place / "split.yaml",
      "{lanes: fragments, partition: positions, tile_rows: 16, tile_keys: 64, warps: 4, stages: 3, splits: 0}\n");
  const Json split = Json::parse(
      attile_command({"explain", "--target", "sm_90", "--dtype", "bfloat16", "--head-dim", "64", "--seqlen-q", "1",
                      "--seqlen-k", "32768", "--heads", "4", "--schedule", (place / "split.yaml").string(), "--json"})
          .out);
  REQUIRE(split["kernels"].size() == 2);
  CHECK(split["parts"].get<int>() > 1);
  CHECK(split["kernels"][0]["tasks"] == 4 * split["parts"].get<int>());
  CHECK(split["traffic"]["partial"] == 4.0 * split["parts"].get<int>() * (64 + 2) * 4);
}
