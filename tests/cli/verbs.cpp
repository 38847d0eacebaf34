// The verbs beside run: what they print, write and answer.
#include <nlohmann/json.hpp>

#include "tests/cli/command_line.h"
#include "tests/support/catch_compat.h"

using namespace attile::test;
using Json = nlohmann::json;

namespace {

std::string case_path(const std::string& name) { return ATTILE_SOURCE_DIR "/tests/cases/" + name + ".json"; }

// A case of one query and one key: o is v.
std::string tiny_case(const std::string& options, const std::string& expected) {
  return R"({"id": "tiny", "q": [[[[1]]]], "k": [[[[1]]]], "v": [[[[3]]]], "options": {"scale": 1)" + options +
         R"(}, "expected": )" + expected + "}";
}

}  // namespace

TEST_CASE("without a verb, or with a wrong one, the command says what there is") {
  const Finished none = attile_command({});
  CHECK(none.code == 2);
  CHECK_THAT(none.err, ContainsSubstring("a verb is missing; there are run, check"));
  const Finished wrong = attile_command({"bnech"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, ContainsSubstring("\"bnech\" is no verb; did you mean bench?"));
  const Finished help = attile_command({"--help"});
  CHECK(help.code == 0);
  for (const char* verb : {"run", "check", "emit", "explain", "bench", "tune", "cache", "doctor"}) {
    CHECK_THAT(help.out, ContainsSubstring(verb));
    const Finished own = attile_command({verb, "--help"});
    CHECK(own.code == 0);
    CHECK_THAT(own.out, ContainsSubstring("--help"));
  }
  const Finished version = attile_command({"--version"});
  CHECK(version.code == 0);
  CHECK_THAT(version.out, Catch::Matchers::StartsWith("attile 0."));
}

TEST_CASE("a text that cannot be written is a failure") {
  const Finished f = attile_command({"emit", "--stage", "algorithm", "--out", "/dev/full"});
  CHECK(f.code == 1);
  CHECK_THAT(f.err, ContainsSubstring("cannot be written"));
}

TEST_CASE("check passes every shipped case in every type and says what it does not run") {
  std::vector<std::string> words{"check"};
  for (const auto& entry : fs::directory_iterator(ATTILE_SOURCE_DIR "/tests/cases"))
    if (entry.path().extension() == ".json") words.push_back(entry.path().string());
  const Finished f = attile_command(words);
  INFO(text_of(f));
  CHECK(f.code == 0);
  CHECK_THAT(f.out, ContainsSubstring("dq, dsink, dv: gradients are not in this build"));
  CHECK_THAT(f.out, ContainsSubstring(" 0 failed"));
}

TEST_CASE("check tells a wrong expectation, a bad file and a good one apart") {
  const ScratchPlace place;
  write_text(place / "good.json", tiny_case("", R"({"o": [[[[3]]]]})"));
  write_text(place / "wrong.json", tiny_case("", R"({"o": [[[[2]]]]})"));
  write_text(place / "bad.json", "{");
  const auto path = [&](const char* name) { return (place / name).string(); };
  CHECK(attile_command({"check", path("good.json")}).code == 0);
  const Finished f = attile_command(
      {"check", "--dtype", "float32", path("wrong.json"), path("bad.json"), path("missing.json"), path("good.json")});
  INFO(text_of(f));
  CHECK(f.code == 1);
  CHECK_THAT(f.out, ContainsSubstring("o[0][0][0][0] is 3, but 2 is expected"));
  CHECK_THAT(f.out, ContainsSubstring("this is not a JSON case"));
  CHECK_THAT(f.out, ContainsSubstring("cannot be opened"));
  CHECK_THAT(f.out, ContainsSubstring("1 passed, 3 failed, 0 not run"));
  const Finished json =
      attile_command({"check", "--json", "--dtype", "float32", path("wrong.json"), path("good.json")});
  CHECK(json.code == 1);
  const Json parsed = Json::parse(json.out);
  CHECK(parsed["passed"] == 1);
  CHECK(parsed["cases"][0]["passed"] == false);
  CHECK(parsed["cases"][1]["dtypes"]["float32"]["worst_error_in_tolerances"] == 0.0);
}

TEST_CASE("check takes a schedule and refuses wrong words") {
  const ScratchPlace place;
  const std::string schedule = (place / "s.yaml").string();
  write_text(schedule, "lanes: positions\ntile_rows: 2\ntile_keys: 32\n");
  const Finished f =
      attile_command({"check", "--schedule", schedule, "--dtype", "float32", case_path("case-04-causal-nq5-nk2")});
  INFO(text_of(f));
  CHECK(f.code == 0);
  CHECK(attile_command({"check"}).code == 2);
  CHECK(attile_command({"check", "--dtype", "int8", case_path("case-04-causal-nq5-nk2")}).code == 2);
}

TEST_CASE("emit prints every stage of this build, the same each time") {
  const std::vector<std::pair<std::string, std::string>> stages = {
      {"algorithm", "running_max"}, {"ir", "attention"}, {"llvm", "define"}, {"asm", "vfmadd"}};
  for (const auto& [stage, text] : stages)
    for (const char* target : {"x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "host"}) {
      const std::vector<std::string> words{"emit", "--stage", stage, "--target", target, "--causal"};
      const Finished f = attile_command(words);
      INFO(stage << " " << target << "\n" << f.err);
      CHECK(f.code == 0);
      if (stage != "algorithm") CHECK_THAT(f.out, ContainsSubstring(text));
      CHECK(!f.out.empty());
      CHECK(f.out == attile_command(words).out);
    }
  const std::string wide = attile_command({"emit", "--stage", "asm", "--target", "x86-64-v4"}).out;
  CHECK_THAT(wide, ContainsSubstring("zmm"));
  CHECK_THAT(attile_command({"emit", "--stage", "asm", "--target", "x86-64-v3"}).out, !ContainsSubstring("zmm"));
}

TEST_CASE("emit shows the passes and writes files") {
  const Finished all = attile_command({"emit", "--pass", "all", "--lse"});
  CHECK(all.code == 0);
  for (const char* pass : {"after tile_loops", "after place", "after fuse"})
    CHECK_THAT(all.out, ContainsSubstring(pass));
  const Finished one = attile_command({"emit", "--pass", "place"});
  CHECK_THAT(one.out, ContainsSubstring("after place") && !ContainsSubstring("after fuse"));
  const ScratchPlace place;
  const std::string out = (place / "kernel.ll").string();
  CHECK(attile_command({"emit", "--stage", "llvm", "--out", out}).code == 0);
  CHECK(read_text(out) == attile_command({"emit", "--stage", "llvm"}).out);
}

TEST_CASE("emit refuses what nobody has") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--stage", "wasm"}, {"--target", "z80"}, {"--pass", "hope"}, {"--stge", "ir"}}) {
    std::vector<std::string> all{"emit"};
    all.insert(all.end(), words.begin(), words.end());
    const Finished f = attile_command(all);
    INFO(words[1] << "\n" << text_of(f));
    CHECK(f.code == 2);
    CHECK(f.out.empty());
  }
}

TEST_CASE("explain shows what a schedule needs and why it is refused") {
  const Finished f = attile_command({"explain", "--head-dim", "128", "--dtype", "bfloat16", "--causal"});
  INFO(text_of(f));
  CHECK(f.code == 0);
  CHECK_THAT(f.out, ContainsSubstring("legal      yes") && ContainsSubstring("scratch"));
  const Json json = Json::parse(attile_command({"explain", "--target", "x86-64-v3", "--json"}).out);
  CHECK(json["legal"] == true);
  CHECK(json["scratch_bytes"]["total"].get<int>() > 0);
  const ScratchPlace place;
  const std::string schedule = (place / "s.yaml").string();
  write_text(schedule, "tile_rows: 1\n");
  const Finished illegal = attile_command({"explain", "--schedule", schedule});
  CHECK(illegal.code == 1);
  CHECK_THAT(illegal.out, ContainsSubstring("not legal"));
}

TEST_CASE("bench writes the product of its lists as a table, JSON and CSV") {
  const ScratchPlace place;
  const std::string json_file = (place / "b.json").string(), csv_file = (place / "b.csv").string();
  const Finished f = attile_command({"bench", "--seqlen-q", "16,48", "--heads", "2", "--head-dim", "32", "--dtype",
                                     "float32,bfloat16", "--causal", "false,true", "--threads", "1", "--repeat", "2",
                                     "--json", json_file, "--csv", csv_file});
  INFO(text_of(f));
  REQUIRE(f.code == 0);
  const Json json = Json::parse(read_text(json_file));
  REQUIRE(json["rows"].size() == 8);
  for (const Json& row : json["rows"]) {
    CHECK(row["median_s"].get<double>() >= row["best_s"].get<double>());
    CHECK(row["share_of_limit"].get<double>() > 0);
    CHECK(row["samples_s"].size() == 2);
    CHECK(row["threads"] == 1);
  }
  const std::string csv = read_text(csv_file);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 9);
  CHECK(std::count(f.out.begin(), f.out.end(), '\n') == 10);
  CHECK(attile_command({"bench", "--seqlen-q", "16,x"}).code == 2);
  CHECK(attile_command({"bench", "--threads", "5000", "--seqlen-q", "16"}).code == 2);
  CHECK(attile_command({"bench", "--dtype", "float32,half", "--seqlen-q", "16"}).code == 2);
}

TEST_CASE("cache warms from a list, lists, verifies and clears") {
  const ScratchPlace cache, place;
  const std::map<std::string, std::string> variables{{"ATTILE_CACHE_DIR", cache.str()}};
  const std::string list = (place / "list.txt").string();
  write_text(list, "# two kernels\n--head-dim 32 --causal\n\n--head-dim 48 --dtype bfloat16  # the second\n");
  const Finished cold = attile_command({"cache", "warm", list}, variables);
  INFO(text_of(cold));
  REQUIRE(cold.code == 0);
  CHECK_THAT(cold.out, ContainsSubstring("2 problems, 2 built"));
  CHECK_THAT(attile_command({"cache", "warm", list}, variables).out, ContainsSubstring("2 problems, 0 built"));
  const Finished run =
      attile_command({"run", "--head-dim", "32", "--causal", "--seqlen-q", "64", "--repeat", "1", "--json"}, variables);
  CHECK(Json::parse(run.out)["kernel"]["from_disk"] == true);

  const Json listed = Json::parse(attile_command({"cache", "list", "--json"}, variables).out);
  const std::size_t entries = listed["entries"].size();  // a problem may need several kernels
  REQUIRE(entries >= 2);
  CHECK(listed["entries"][0]["bytes"].get<int>() > 0);
  CHECK_THAT(attile_command({"cache", "list"}, variables).out, ContainsSubstring(std::to_string(entries) + " kernels"));
  CHECK(attile_command({"cache", "verify"}, variables).code == 0);

  const fs::path object =
      fs::path(listed["folder"].get<std::string>()) / listed["entries"][0]["name"].get<std::string>() / "kernel.o";
  write_text(object, "damaged");
  const Finished damaged = attile_command({"cache", "verify"}, variables);
  INFO(text_of(damaged));
  CHECK(damaged.code == 1);
  CHECK_THAT(damaged.out, ContainsSubstring("1 damaged"));
  CHECK(attile_command({"cache", "verify"}, variables).code == 0);
  CHECK_THAT(attile_command({"cache", "clear"}, variables).out,
             ContainsSubstring(std::to_string(entries - 1) + " kernels removed"));
  CHECK(Json::parse(attile_command({"cache", "list", "--json"}, variables).out)["entries"].empty());
}

TEST_CASE("cache refuses a list with a fault at its line") {
  const ScratchPlace place;
  const std::string list = (place / "list.txt").string();
  write_text(list, "--head-dim 32\n--had-dim 64\n");
  const Finished f = attile_command({"cache", "warm", list});
  CHECK(f.code == 2);
  CHECK_THAT(f.err, ContainsSubstring(list + ":2: --had-dim is not known; did you mean --head-dim?"));
  CHECK(attile_command({"cache", "warm", "/no/such/list"}).code == 1);
  CHECK(attile_command({"cache", "warm"}).code == 2);
  CHECK(attile_command({"cache"}).code == 2);
  const Finished wrong = attile_command({"cache", "lst"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, ContainsSubstring("did you mean list?"));
}

TEST_CASE("doctor tells what is here, and what is missing with the fix") {
  const Finished f = attile_command({"doctor"});
  INFO(text_of(f));
  CHECK(f.code == 0);
  CHECK_THAT(f.out, ContainsSubstring("CPU: ok") && ContainsSubstring("LLVM module: ok") &&
                        ContainsSubstring("kernels run on") && ContainsSubstring("ATTILE_CACHE_DIR"));
  const Json json = Json::parse(attile_command({"doctor", "--json"}).out);
  CHECK(json["usable"] == true);
  CHECK(json["parts"]["LLVM module"]["ok"] == true);
  CHECK(!json["environment"]["ATTILE_CACHE_DIR"]["value"].get<std::string>().empty());

  const Finished missing = attile_command({"doctor"}, {{"ATTILE_LLVM_MODULE", "/no/such/module.so"}});
  CHECK(missing.code == 1);
  CHECK_THAT(missing.out, ContainsSubstring("LLVM module: NOT USABLE") && ContainsSubstring("/no/such/module.so") &&
                              ContainsSubstring("fix"));
  const Finished run = attile_command({"run", "--seqlen-q", "8"}, {{"ATTILE_LLVM_MODULE", "/no/such/module.so"}});
  CHECK(run.code == 1);
  CHECK_THAT(run.err, ContainsSubstring("/no/such/module.so"));
}

TEST_CASE("doctor shows a bad variable and a cache that cannot be written") {
  const Finished bad = attile_command({"doctor"}, {{"ATTILE_THREADS", "many"}});
  INFO(text_of(bad));
  CHECK(bad.code == 1);
  CHECK_THAT(bad.out, ContainsSubstring("ATTILE_THREADS") && ContainsSubstring("many"));
  const ScratchPlace place;
  write_text(place / "file", "");
  const Finished cache = attile_command({"doctor"}, {{"ATTILE_CACHE_DIR", (place / "file").string()}});
  INFO(text_of(cache));
  CHECK(cache.code == 0);
  CHECK_THAT(cache.out, ContainsSubstring("kernel cache: limited"));
  const Finished run = attile_command({"run", "--seqlen-q", "8", "--heads", "1", "--repeat", "1", "--check"},
                                      {{"ATTILE_CACHE_DIR", (place / "file").string()}});
  CHECK(run.code == 0);
  CHECK_THAT(run.err, ContainsSubstring("warning"));
}
