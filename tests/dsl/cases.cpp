#include "cli/case_file.h"
#include "dsl/error.h"
#include "tests/support/cases.h"
#include "tests/support/catch_compat.h"

using namespace attile;

namespace {

void check_run(const cli::CaseFile& file, const cli::CaseRun& run, DType type) {
  INFO(file.id << ": " << run.about << " in " << to_string(type));
  const cli::CaseArguments arguments(file, run, type);
  const auto outputs = evaluate(attention(run.options), arguments.inputs());
  for (const auto& [name, expected] : run.expected) {
    CHECK(outputs.at(name).shape == expected.shape);
    CHECK(cli::case_mismatch(name, expected, outputs.at(name).values, 1e-13, 1e-13) == "");
  }
}

}  // namespace

TEST_CASE("every recorded case agrees with its expected output, whatever the type") {
  const std::vector<std::string> paths = test::case_paths();
  REQUIRE(paths.size() >= 12);
  for (const std::string& path : paths) {
    const cli::CaseFile file = cli::read_case_file(path);
    for (const cli::CaseRun& run : file.runs)
      for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) check_run(file, run, type);
  }
}

TEST_CASE("a case file says what no forward pass gives") {
  const cli::CaseFile file = cli::read_case_file(ATTILE_SOURCE_DIR "/tests/cases/case-08-sink.json");
  CHECK(file.runs.size() == 3);
  CHECK(file.runs[0].not_run == std::vector<std::string>{"dk", "dq", "dsink", "dv"});
}

TEST_CASE("errors of a case file name the file and the field") {
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      cli::parse_case_file(text, "x.json");
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::argument);
      return e.what();
    }
    return "no error";
  };
  using attile::test::ContainsSubstring;
  CHECK_THAT(error_of("{"), ContainsSubstring("x.json: this is not a JSON case"));
  CHECK_THAT(error_of("[]"), ContainsSubstring("x.json: this must be an object"));
  CHECK_THAT(error_of("{\"id\": 3}"), ContainsSubstring("x.json: id: this must be a text"));
  CHECK_THAT(error_of("{\"id\": \"a\"}"), ContainsSubstring("the field \"q\" is missing"));
  const std::string head = R"({"id": "a", "q": [[[[1]]]], "k": [[[[1]]]], "v": [[[[1]]]], )";
  CHECK_THAT(error_of(R"({"id": "a", "q": [[[[1], [1, 2]]]]})"),
             ContainsSubstring("x.json: q[0][0][1]: this list has 2 entries"));
  CHECK_THAT(error_of(R"({"id": "a", "q": [[[["x"]]]]})"),
             ContainsSubstring("x.json: q[0][0][0][0]: this must be a number"));
  CHECK_THAT(error_of(head + R"("options": {"scale": 1, "windows": [1, 2]}, "expected": {}})"),
             ContainsSubstring("x.json: options.windows: this option is not known"));
  CHECK_THAT(error_of(head + R"("options": {"scale": 1, "window": [1]}, "expected": {}})"),
             ContainsSubstring("x.json: options.window: a window is [left, right]"));
  CHECK_THAT(error_of(head + R"("options": {"scale": 1, "softcap": -2}, "expected": {}})"),
             ContainsSubstring("the cap must be positive"));
  CHECK_THAT(error_of(head + R"("options": {"scale": 1, "cu_seqlens_q": [0]}, "expected": {}})"),
             ContainsSubstring("go together"));
  CHECK_THAT(error_of(head + R"("options": {"scale": 1}, "expected": {}, "more": [{"options": {}, "expected": {}}]})"),
             ContainsSubstring("x.json: more[0].options: the field \"scale\" is missing"));
}
