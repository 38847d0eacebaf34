// What `attile explain` says of bytes, operations and limits.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "tests/cli/command_line.h"
#include "tests/support/catch_compat.h"

using namespace attile::test;

namespace {

using Json = nlohmann::json;

Json explained(std::vector<std::string> words) {
  words.insert(words.begin(), "explain");
  words.push_back("--json");
  const Finished f = attile_command(words);
  INFO(text_of(f));
  REQUIRE(f.code == 0);
  return Json::parse(f.out);
}

const Json& order(const Json& all, const std::string& name) {
  for (const Json& o : all["orders"])
    if (o["order"] == name) return o;
  static const Json none;
  return none;
}

std::int64_t total(const Json& order) {
  return order["memory_bytes"]["read"].get<std::int64_t>() + order["memory_bytes"]["written"].get<std::int64_t>();
}

}  // namespace

TEST_CASE("explain counts the bytes of each order: standard attention writes S and P, the others do not") {
  const Json e = explained({"--seqlen-q", "2048", "--heads", "2", "--head-dim", "64", "--target", "x86-64-v4"});
  const std::int64_t square = 2ll * 2048 * 2048 * 4;
  const Json& standard = order(e, "standard");
  CHECK(standard["tensors"]["s"]["written"] == square);
  CHECK(standard["tensors"]["p"]["read"] == square);
  for (const char* name : {"FA-1", "FA-2", "chosen"}) {
    CAPTURE(name);
    const Json& o = order(e, name);
    REQUIRE(o.is_object());
    CHECK(total(o) < total(standard));
    CHECK(o["tensors"].contains("s") == false);
    CHECK(o["flops"] == 4ll * 2 * 2048 * 2048 * 64);
  }
  CHECK(order(e, "FA-1")["tensors"]["k"]["read"] == 2 * 2048 * 64 * 4);
  CHECK(order(e, "FA-2")["tensors"]["q"]["read"] == 2 * 2048 * 64 * 4);
  CHECK(total(order(e, "FA-2")) < total(order(e, "FA-1")));
  CHECK(e.contains("roofline") == false);  // that chip need not be here
}

TEST_CASE("explain says that a prompt is bound by arithmetic and a decoding step by memory") {
  const Json prompt = explained({"--seqlen-q", "4096", "--threads", "1"});
  const Json step = explained({"--seqlen-q", "1", "--seqlen-k", "65536", "--threads", "1"});
  CHECK(prompt["roofline"]["bound_by"] == "arithmetic");
  CHECK(step["roofline"]["bound_by"] == "memory");
  for (const Json& e : {prompt, step}) {
    const double crossover = e["roofline"]["crossover_flops_per_byte"];
    const bool above = order(e, "chosen")["flops_per_byte"].get<double>() > crossover;
    CHECK(above == (e["roofline"]["bound_by"] == "arithmetic"));
  }
}

TEST_CASE("explain counts what a mask and ragged sequences leave") {
  const Json whole = explained({"--seqlen-q", "4096", "--target", "x86-64-v4"});
  const Json causal = explained({"--seqlen-q", "4096", "--causal", "--target", "x86-64-v4"});
  const Json window = explained({"--seqlen-q", "4096", "--window", "128,0", "--target", "x86-64-v4"});
  const auto flops = [](const Json& e) { return order(e, "chosen")["flops"].get<double>(); };
  CHECK(flops(causal) > 0.5 * flops(whole));
  CHECK(flops(causal) < 0.6 * flops(whole));
  CHECK(flops(window) < 0.15 * flops(whole));
  CHECK(order(window, "standard").is_null());  // its three steps know no window
  const Json packed = explained({"--cu-seqlens-q", "0,100,400", "--cu-seqlens-k", "0,50,500", "--seqlen-q", "400",
                                 "--seqlen-k", "500", "--heads", "1", "--head-dim", "64", "--target", "x86-64-v4"});
  CHECK(flops(packed) == 4.0 * 64 * (100 * 50 + 300 * 450));
}

TEST_CASE("explain is a short text for people") {
  const Finished f = attile_command({"explain", "--seqlen-q", "512", "--threads", "1"});
  INFO(text_of(f));
  CHECK(f.code == 0);
  for (const char* word : {"best known for", "scratch", "standard", "FA-1", "FA-2", "chosen", "roofline", "bound by"})
    CHECK_THAT(f.out, ContainsSubstring(word));
  CHECK(std::count(f.out.begin(), f.out.end(), '\n') < 25);
}
