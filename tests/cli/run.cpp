// attile run: files in, files out, every option once.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/command_line.h"
#include "tests/support/catch_compat.h"

using namespace attile::test;
using Json = nlohmann::json;

namespace {

// Softmax attention of one row, straight from its formula.
std::vector<double> plain_row(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
                              std::size_t head, std::size_t row, double& lse) {
  std::vector<double> scores(7);
  double sum = 0;
  for (std::size_t j = 0; j < 7; ++j) {
    for (std::size_t d = 0; d < 4; ++d)
      scores[j] +=
          0.5 * static_cast<double>(q[(head * 5 + row) * 4 + d]) * static_cast<double>(k[(head * 7 + j) * 4 + d]);
    sum += std::exp(scores[j]);
  }
  lse = std::log(sum);
  std::vector<double> o(3);
  for (std::size_t j = 0; j < 7; ++j)
    for (std::size_t d = 0; d < 3; ++d)
      o[d] += std::exp(scores[j]) / sum * static_cast<double>(v[(head * 7 + j) * 3 + d]);
  return o;
}

}  // namespace

TEST_CASE("run on the layer of a real model agrees with the output and lse stored beside it") {
  const ScratchPlace place;
  const auto file = [](const char* name) { return data_path(std::string("minilm-layer3/") + name + ".npy"); };
  const Finished f = attile_command({"run", "--q", file("q"), "--k", file("k"), "--v", file("v"), "--check", "--out",
                                     (place / "o.npy").string(), "--lse-out", (place / "lse.npy").string()});
  INFO(text_of(f));
  REQUIRE(f.code == 0);
  CHECK_THAT(f.out,
             ContainsSubstring("o agrees") && ContainsSubstring("lse agrees") && ContainsSubstring("all 4464 rows"));
  for (const auto& [name, shape] : {std::pair{"o", "(1, 12, 372, 32)"}, std::pair{"lse", "(1, 12, 372)"}}) {
    const std::vector<float> want = floats_of(read_text(file(name)), shape),
                             got = floats_of(read_text(place / (std::string(name) + ".npy")), shape);
    REQUIRE(want.size() == got.size());
    double worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i)
      worst = std::max(worst, static_cast<double>(std::fabs(want[i] - got[i])));
    CHECK(worst < 2e-5);
  }
}

TEST_CASE("run writes o and lse of a hand-computed problem") {
  const SmallInputs inputs;
  const ScratchPlace place;
  const Finished f = attile_command(
      inputs.run({"--check", "--out", (place / "o.npy").string(), "--lse-out", (place / "lse.npy").string()}));
  INFO(text_of(f));
  REQUIRE(f.code == 0);
  const auto q = floats_of(read_text(inputs.path("q.npy")), "(1, 2, 5, 4, )");
  const auto k = floats_of(read_text(inputs.path("k.npy")), "(1, 2, 7, 4, )"),
             v = floats_of(read_text(inputs.path("v.npy")), "(1, 2, 7, 3, )");
  const auto o = floats_of(read_text(place / "o.npy"), "(1, 2, 5, 3)"),
             lse = floats_of(read_text(place / "lse.npy"), "(1, 2, 5)");
  for (std::size_t head = 0; head < 2; ++head)
    for (std::size_t row = 0; row < 5; ++row) {
      double want_lse = 0;
      const std::vector<double> want = plain_row(q, k, v, head, row, want_lse);
      CHECK_THAT(lse[head * 5 + row], WithinAbs(want_lse, 1e-5));
      for (std::size_t d = 0; d < 3; ++d) CHECK_THAT(o[(head * 5 + row) * 3 + d], WithinAbs(want[d], 1e-5));
    }
  CHECK(names_in(place / "") == std::vector<std::string>{"lse.npy", "o.npy"});
}

TEST_CASE("run checks generated problems of every variant and type") {
  const std::vector<std::vector<std::string>> variants = {
      {"--causal"},
      {"--window", "20,-1", "--softcap", "15"},
      {"--alibi-slopes", "standard", "--causal"},
      {"--bias", "random", "--mask", "random"},
      {"--sink", "0.5,-1", "--scale", "0.3"},
      {"--sink", "random", "--kv-lens", "70,3"},
      {"--kv-lens", "random", "--doc-ids", "random"},
      {"--causal", "--prefix-len", "5,40"},
      {"--top-k", "8"},
      {"--top-k", "8", "--top-k-renormalise", "false", "--causal"},
      {"--dropout", "0.25", "--seed", "7"},
      {"--rule", "sigmoid"},
      {"--rule", "linear", "--causal"},
      {"--rule", "softmax_plus_one"},
      {"--kv-heads", "1", "--value-dim", "24", "--out-dtype", "float16"},
  };
  std::size_t i = 0;
  for (const auto& variant : variants) {
    const char* dtype = std::vector<const char*>{"float32", "bfloat16", "float16"}[i++ % 3];
    std::vector<std::string> words{"run",        "--random", "--batch",    "2",  "--heads",    "2",
                                   "--seqlen-q", "50",       "--seqlen-k", "70", "--head-dim", "32",
                                   "--dtype",    dtype,      "--repeat",   "1",  "--check"};
    words.insert(words.end(), variant.begin(), variant.end());
    const Finished f = attile_command(words);
    INFO(variant[0] << " " << dtype << "\n" << text_of(f));
    CHECK(f.code == 0);
    CHECK_THAT(f.out, ContainsSubstring("o agrees"));
  }
  const Finished packed = attile_command({"run", "--cu-seqlens-q", "0,5,5,40", "--cu-seqlens-k", "0,9,12,80", "--heads",
                                          "2", "--repeat", "1", "--check", "--causal"});
  INFO(text_of(packed));
  CHECK(packed.code == 0);
  CHECK_THAT(packed.out, ContainsSubstring("all 80 rows"));
}

TEST_CASE("run --json holds the report") {
  const Finished f = attile_command(
      {"run", "--seqlen-q", "64", "--heads", "2", "--repeat", "3", "--json", "--check", "--causal", "--threads", "2"});
  INFO(text_of(f));
  REQUIRE(f.code == 0);
  const Json json = Json::parse(f.out);
  CHECK(json["problem"] == "B1 H2 Nq64 Nk64 D64 Dv64 float32 -> float32");
  CHECK(json["variant"] == "softmax, causal");
  CHECK(json["threads"] == 2);
  CHECK(json["flops"] == 2.0 * 2 * (64 * 65 / 2) * 128);
  CHECK(json["bytes"] == 4.0 * 2 * 64 * 64 * 4);
  CHECK(json["time"]["repeats"] == 3);
  CHECK(json["gflops"].get<double>() > 0);
  CHECK(json["roofline_share"].get<double>() > 0);
  CHECK(json["check"]["agrees"] == true);
  CHECK(json["check"]["rows"] == 128);
  CHECK(json["check"]["outputs"][0]["tolerance"].get<double>() > json["check"]["outputs"][0]["error"].get<double>());
}

TEST_CASE("the second run of a kernel comes from the disk cache") {
  const ScratchPlace cache;
  const std::vector<std::string> words{"run", "--seqlen-q", "32", "--heads", "1", "--repeat", "1", "--json"};
  for (const bool from_disk : {false, true}) {
    const Finished f = attile_command(words, {{"ATTILE_CACHE_DIR", cache.str()}});
    INFO(text_of(f));
    REQUIRE(f.code == 0);
    CHECK(Json::parse(f.out)["kernel"]["from_disk"] == from_disk);
  }
}

TEST_CASE("equal runs write equal bytes, with any number of threads") {
  const ScratchPlace place;
  for (const char* threads : {"1", "3"})
    REQUIRE(attile_command({"run", "--seqlen-q", "100", "--heads", "2", "--repeat", "1", "--threads", threads, "--out",
                            (place / threads).string()})
                .code == 0);
  CHECK(read_text(place / "1") == read_text(place / "3"));
}

TEST_CASE("a run that fails leaves an existing output as it was") {
  const SmallInputs inputs;
  const ScratchPlace place;
  const std::string out = (place / "o.npy").string();
  write_text(out, "older");
  const std::vector<std::vector<std::string>> wrong = {{"--dtype", "float31"},
                                                       {"--kv-lens", "9"},
                                                       {"--schedule", "no such"},
                                                       {"--device", "cuda"},
                                                       {"--lse-out", (place / "no" / "lse.npy").string()},
                                                       {"--lse-out", out},
                                                       {"--causal", "--rule", "linear", "--sink", "1,2"}};
  for (const auto& more : wrong) {
    std::vector<std::string> words = inputs.run({"--out", out});
    words.insert(words.end(), more.begin(), more.end());
    const Finished f = attile_command(words);
    INFO(more[0] << "\n" << text_of(f));
    CHECK(f.code > 0);
    CHECK(f.out.empty());
    CHECK(read_text(out) == "older");
    CHECK(names_in(place / "") == std::vector<std::string>{"o.npy"});
  }
  CHECK(attile_command(inputs.run({"--out", out})).code == 0);
  CHECK(floats_of(read_text(out), "(1, 2, 5, 3)").size() == 30);
}

TEST_CASE("outputs are written as the type that is asked for") {
  const SmallInputs inputs;
  const ScratchPlace place;
  for (const auto& [type, descr] :
       {std::pair{"bfloat16", "'<V2'"}, std::pair{"float16", "'<f2'"}, std::pair{"float32", "'<f4'"}}) {
    REQUIRE(attile_command(inputs.run({"--out-dtype", type, "--check", "--out", (place / "o.npy").string()})).code ==
            0);
    const std::string bytes = read_text(place / "o.npy");
    CHECK_THAT(bytes.substr(0, 128), ContainsSubstring(descr));
    CHECK(bytes.size() == 128u + 30u * (std::string(type) == "float32" ? 4 : 2));
  }
  CHECK(attile_command(inputs.run({"--out", "/dev/null"})).code == 0);
}
