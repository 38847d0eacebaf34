#include "runtime/options.h"

#include <map>

#include "dsl/error.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

Options from(const std::map<std::string, std::string>& variables) {
  return read_options([&](const char* name) {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("without variables every option has its default") {
  Options options = from({});
  CHECK(options.cache_dir.empty());
  CHECK(options.cache == CacheMode::on);
  CHECK(options.cache_bytes == std::uint64_t{1} << 30);
  CHECK(options.threads == 0);
  CHECK(options.cpu.empty());
  CHECK(options.log == LogLevel::warning);
}

TEST_CASE("variables set options and an empty one counts as unset") {
  Options options = from({{"ATTILE_CACHE_DIR", "/a b/größe"},
                          {"ATTILE_CACHE", "readonly"},
                          {"ATTILE_CACHE_SIZE", "3M"},
                          {"ATTILE_THREADS", "7"},
                          {"ATTILE_CPU", "x86-64-v3"},
                          {"ATTILE_LOG", ""}});
  CHECK(options.cache_dir == "/a b/größe");
  CHECK(options.cache == CacheMode::readonly);
  CHECK(options.cache_bytes == 3u << 20);
  CHECK(options.threads == 7);
  CHECK(options.cpu == "x86-64-v3");
  CHECK(options.log == LogLevel::warning);
  CHECK(from({{"ATTILE_CPU", "native"}}).cpu.empty());
}

TEST_CASE("a variable with a meaningless value is refused with the allowed ones") {
  auto [name, value] = GENERATE(values<std::pair<const char*, const char*>>({{"ATTILE_CACHE", "yes"},
                                                                             {"ATTILE_CACHE_SIZE", "many"},
                                                                             {"ATTILE_CACHE_SIZE", "5 M"},
                                                                             {"ATTILE_CACHE_SIZE", "99999999999T"},
                                                                             {"ATTILE_CACHE_SIZE", "-1"},
                                                                             {"ATTILE_THREADS", "0"},
                                                                             {"ATTILE_THREADS", "-3"},
                                                                             {"ATTILE_THREADS", "4x"},
                                                                             {"ATTILE_THREADS", "99999999999999999999"},
                                                                             {"ATTILE_CPU", "sparc"},
                                                                             {"ATTILE_LOG", "loud"}}));
  CAPTURE(name, value);
  try {
    from({{name, value}});
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::argument);
    CHECK(error.where() == name);
    CHECK_THAT(error.what(), ContainsSubstring(value) && ContainsSubstring("allowed: "));
  }
}

TEST_CASE("at most eight variables are documented and each has a line") {
  auto docs = option_docs();
  CHECK(docs.size() <= 8);
  for (const OptionDoc& doc : docs) {
    CHECK(doc.name.starts_with("ATTILE_"));
    CHECK_FALSE(doc.doc.empty());
    CHECK_FALSE(doc.allowed.empty());
  }
}

TEST_CASE("each distinct warning is said once") {
  Warnings warnings;
  warn("one");
  warn("two");
  warn("one");
  CHECK(warnings.texts() == std::vector<std::string>{"one", "two"});
}
