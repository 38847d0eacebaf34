// attile tune on the CPU: a problem is tuned once and known afterwards, calls use it, results are shown, exported,
// imported and forgotten; wrong words; the page of a report.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/child_process.h"
#include "tests/cli/command_line.h"
#include "tests/support/catch_compat.h"

using namespace attile::test;
using Json = nlohmann::json;

namespace {

const std::vector<std::string> problem{"--device", "cpu", "--heads", "2", "--seqlen-q", "64", "--head-dim", "20"};

std::vector<std::string> words(std::vector<std::string> verb, const std::vector<std::string>& more = {}) {
  verb.insert(verb.end(), problem.begin(), problem.end());
  verb.insert(verb.end(), more.begin(), more.end());
  return verb;
}

// The command under a limit of the shell's.
attile::ChildResult limited(const std::string& limit, const std::string& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"/usr/bin/env", "ATTILE_CACHE_DIR=" + folder, "CUDA_VISIBLE_DEVICES=-1",
                                       "/bin/sh", "-c", limit + "; exec \"$0\" \"$@\"", ATTILE_COMMAND});
  return attile::run_child(arguments, true);
}

}  // namespace

TEST_CASE("a problem is tuned once, then known to every later process and used by its calls", "[C64]") {
  const ScratchPlace place;
  const std::map<std::string, std::string> here{{"ATTILE_CACHE_DIR", place.str()}};
  const Finished first = attile_command(words({"tune"}, {"--budget", "4s", "--json"}), here);
  INFO(text_of(first));
  REQUIRE(first.code == 0);
  const Json report = Json::parse(first.out);
  CHECK(report["candidates_timed"] >= 2);
  CHECK(report["known"] == false);
  CHECK_THAT(first.err, ContainsSubstring("tried") && ContainsSubstring("left"));
  const std::string winner = report["winner"]["schedule"];

  const Finished second = attile_command(words({"tune"}), here);
  CHECK(second.code == 0);
  CHECK_THAT(second.out, ContainsSubstring("0 candidates timed") && ContainsSubstring(winner));
  const Finished resumed = attile_command(words({"tune"}, {"--resume", "--budget", "2s", "--json"}), here);
  CHECK(resumed.code == 0);
  CHECK(Json::parse(resumed.out)["known"] == false);

  const Finished shown = attile_command({"tune", "show", "--device", "cpu", "--json"}, here);
  const Json results = Json::parse(shown.out)["results"];
  REQUIRE(results.size() == 1);
  const std::string kept = results[0]["schedule"];
  CHECK(results[0]["used"] == true);

  // What a call of that problem has, beside what it has without tuning.
  const Finished run = attile_command(words({"run"}, {"--json", "--check", "--repeat", "1"}), here);
  INFO(text_of(run));
  CHECK(run.code == 0);
  const auto tile = [](const std::string& text) { return text.substr(0, text.find(' ', 5)); };
  const std::string used = Json::parse(run.out)["schedule"];
  CHECK(used.substr(0, 5) == "tile ");
  const std::size_t rows = kept.find("tile_rows: ");
  if (rows != std::string::npos)
    CHECK_THAT(used, ContainsSubstring("tile " +
                                       kept.substr(rows + 11, kept.find_first_of(",}", rows + 11) - rows - 11) + "x"));
  INFO(tile(used));

  CHECK_THAT(attile_command({"tune", "forget", "--device", "cpu"}, here).out, ContainsSubstring("0 results removed"));
  CHECK_THAT(attile_command({"tune", "forget", "--all", "--device", "cpu"}, here).out,
             ContainsSubstring("1 results removed"));
  CHECK_THAT(attile_command({"tune", "show", "--device", "cpu"}, here).out, ContainsSubstring("0 results"));
}

TEST_CASE("results are exported as a schedule file that imports and changes what calls have") {
  const ScratchPlace place;
  const std::map<std::string, std::string> here{{"ATTILE_CACHE_DIR", place.str()}};
  REQUIRE(attile_command(words({"tune"}, {"--budget", "2s"}), here).code == 0);
  const std::string file = (place / "mine.yaml").string();
  CHECK(attile_command({"tune", "export", "--device", "cpu", "--out", file}, here).code == 0);
  CHECK_THAT(read_text(file), ContainsSubstring("target: ") && ContainsSubstring("tuned, to 20 float32 many rows") &&
                                  ContainsSubstring("gflops: "));
  const ScratchPlace other;
  const std::map<std::string, std::string> there{{"ATTILE_CACHE_DIR", other.str()}};
  const Finished imported = attile_command({"tune", "import", file, "--device", "cpu"}, there);
  INFO(text_of(imported));
  CHECK(imported.code == 0);
  CHECK_THAT(imported.out, ContainsSubstring("are preferred to the shipped ones"));
  write_text(place / "bad.yaml", "target: sm_90\nbest:\n  - nmae: x\n");
  const Finished bad = attile_command({"tune", "import", (place / "bad.yaml").string(), "--device", "cpu"}, there);
  CHECK(bad.code == 2);
  CHECK_THAT(bad.err, ContainsSubstring("bad.yaml:3:5"));
}

TEST_CASE("explain times nothing and shows units, ranks and why schedules are refused") {
  const ScratchPlace place;
  const Finished f = attile_command(words({"tune"}, {"--explain", "--rows", "3"}), {{"ATTILE_CACHE_DIR", place.str()}});
  CHECK(f.code == 0);
  CHECK_THAT(f.out, ContainsSubstring("pack_group puts several query heads") && ContainsSubstring("such as {") &&
                        ContainsSubstring("FMA ") && ContainsSubstring("caches ") && ContainsSubstring("prologue "));
  CHECK(!fs::exists(place / "tuned/.lock"));
}

TEST_CASE("the page of a report is whole and names nothing outside itself") {
  const ScratchPlace place;
  const std::string page = (place / "out.html").string();
  const Finished f =
      attile_command(words({"tune"}, {"--budget", "3s", "--report", page}), {{"ATTILE_CACHE_DIR", place.str()}});
  INFO(text_of(f));
  REQUIRE(f.code == 0);
  const std::string text = read_text(page);
  CHECK_THAT(text, Catch::Matchers::StartsWith("<!doctype html>") && ContainsSubstring("width=device-width") &&
                       ContainsSubstring("Roofline") && ContainsSubstring("Refused before building") &&
                       ContainsSubstring("</html>"));
  for (const char* outside : {"http:", "https:", "src=", "<script", "@import", "url("})
    CHECK_THAT(text, !ContainsSubstring(outside));
  const auto count = [&](const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  CHECK(count("<svg") >= 3);
  CHECK(count("<svg") == count("</svg>"));
  CHECK(count("<circle") >= 4);
  CHECK(count("<rect") >= 2);
}

TEST_CASE("the page fits a telephone and loads nothing in a browser without network") {
  std::string browser;
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"})
    if (fs::exists(path)) browser = path;
  if (browser.empty()) ATTILE_SKIP("no Chromium");
  const ScratchPlace place;
  const std::string page = (place / "out.html").string();
  REQUIRE(
      attile_command(words({"tune"}, {"--budget", "2s", "--report", page}), {{"ATTILE_CACHE_DIR", place.str()}}).code ==
      0);
  // A script of the test's own tells what the browser made of it.
  std::string text = read_text(page);
  text.insert(text.find("</main>"),
              "<p id=seen></p><script>document.getElementById('seen').textContent='seen "
              "'+document.documentElement.scrollWidth+' of '+innerWidth+' loaded "
              "'+performance.getEntriesByType('resource').length+' figures "
              "'+[...document.querySelectorAll('svg')].filter(s=>s.getBoundingClientRect().height>40).length</script>");
  write_text(page, text);
  const attile::ChildResult shown =
      attile::run_child({browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=390,800",
                         "--user-data-dir=" + place.str() + "/profile", "--dump-dom", "file://" + page});
  INFO(shown.output.substr(0, 500));
  const std::size_t at = shown.output.find("seen\">seen ");
  REQUIRE(at != std::string::npos);
  int wide = 0, window = 0, loaded = -1, figures = 0;
  REQUIRE(std::sscanf(shown.output.c_str() + at, "seen\">seen %d of %d loaded %d figures %d", &wide, &window, &loaded,
                      &figures) == 4);
  CHECK(wide <= window);
  CHECK(loaded == 0);
  CHECK(figures >= 3);
}

TEST_CASE("a list is tuned line by line, and a wrong line is named") {
  const ScratchPlace place;
  write_text(place / "list.txt",
             "--heads 1 --seqlen-q 16 --head-dim 8\n# nothing\n\n--heads 1 --seqlen-q 1 --seqlen-k 64 --head-dim 8 # "
             "few rows\n");
  const std::map<std::string, std::string> here{{"ATTILE_CACHE_DIR", place.str()}};
  const Finished f =
      attile_command({"tune", "--device", "cpu", "--budget", "1s", "--list", (place / "list.txt").string()}, here);
  INFO(text_of(f));
  CHECK(f.code == 0);
  CHECK_THAT(attile_command({"tune", "show", "--device", "cpu"}, here).out, ContainsSubstring("2 results"));
  write_text(place / "list.txt", "--heads 1\n--haeds 2\n");
  const Finished wrong =
      attile_command({"tune", "--device", "cpu", "--budget", "1s", "--list", (place / "list.txt").string()}, here);
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, ContainsSubstring("list.txt:2") && ContainsSubstring("--haeds is not known"));
}

TEST_CASE(
    "a list is one array and one page, has its defaults beside it, and goes on after a problem that cannot be tuned") {
  const ScratchPlace place;
  const std::map<std::string, std::string> here{{"ATTILE_CACHE_DIR", place.str()}};
  const std::string list = (place / "list.txt").string(), page = (place / "out.html").string();
  write_text(list, "--seqlen-q 16\n--seqlen-q 16 --kv-heads 3\n--seqlen-q 1 --seqlen-k 64 --head-dim 12\n");
  const Finished f = attile_command({"tune", "--device", "cpu", "--budget", "1s", "--heads", "2", "--head-dim", "8",
                                     "--causal", "--list", list, "--json", "--report", page},
                                    here);
  INFO(text_of(f));
  CHECK(f.code == 1);
  CHECK_THAT(f.err, ContainsSubstring("list.txt:2: "));
  const Json json = Json::parse(f.out);
  REQUIRE(json.size() == 2);
  CHECK(json[0]["variant"] == "softmax, causal");
  CHECK_THAT(json[0]["problem"].get<std::string>(), ContainsSubstring("H2") && ContainsSubstring("D8"));
  CHECK_THAT(json[1]["problem"].get<std::string>(), ContainsSubstring("H2") && ContainsSubstring("D12"));
  const std::string text = read_text(page);
  for (const Json& one : json) {
    const std::string problem = one["problem"];
    CHECK_THAT(text, ContainsSubstring("<h1>" + problem.substr(0, problem.find(" ->"))));
  }
  CHECK(text.find("<html") == text.rfind("<html"));
  for (const auto& [name, words] :
       {std::pair{place.str(), "it is a folder"}, {(place / "empty").string(), "no line"}}) {
    if (name != place.str()) write_text(name, "# nothing\n");
    for (const std::vector<std::string>& verb : {std::vector<std::string>{"tune", "--list"}, {"cache", "warm"}}) {
      std::vector<std::string> arguments = verb;
      arguments.push_back(name);
      const Finished wrong = attile_command(arguments, here);
      CHECK(wrong.code != 0);
      CHECK_THAT(wrong.err, ContainsSubstring(words));
    }
  }
}

TEST_CASE("explaining takes no flag that it would not honour") {
  for (const char* flag : {"--json", "--report=x.html"}) {
    const Finished f = attile_command(words({"tune"}, {"--explain", flag}));
    CHECK(f.code == 2);
    CHECK_THAT(f.err, ContainsSubstring("--explain"));
  }
}

TEST_CASE("a call that computes nothing is tuned and reported as any other") {
#ifdef __SANITIZE_ADDRESS__
  const std::string limit = "true";  // its shadow memory is larger
#else
  const std::string limit = "ulimit -v 3000000";
#endif
  const ScratchPlace place;
  const std::string page = (place / "page.html").string();
  const std::vector<std::string> tune{"tune",       "--device", "cpu",     "--threads", "1",        "--budget", "0.5s",
                                      "--head-dim", "16",       "--heads", "1",         "--report", page};
  for (const std::vector<std::string>& sizes : {std::vector<std::string>{"--seqlen-q=8", "--seqlen-k=0"},
                                                {"--seqlen-q=0"},
                                                {"--seqlen-q=8", "--batch=0"},
                                                {"--seqlen-q=8", "--kv-lens=0"}}) {
    CAPTURE(sizes);
    std::vector<std::string> arguments = tune;
    arguments.insert(arguments.end(), sizes.begin(), sizes.end());
    const attile::ChildResult f = limited(limit, place.str(), arguments);
    INFO(f.output);
    CHECK(f.code == 0);
    CHECK_THAT(read_text(page), ContainsSubstring("</html>"));
    fs::remove(page);
  }
}

TEST_CASE("explain and emit take what tuning found, as run does, and say so") {
  const ScratchPlace place;
  const std::map<std::string, std::string> here{{"ATTILE_CACHE_DIR", place.str()}};
  const Finished tuned = attile_command(words({"tune"}, {"--budget", "2s", "--json"}), here);
  REQUIRE(tuned.code == 0);
  const Json run = Json::parse(attile_command(words({"run"}, {"--json", "--repeat", "1"}), here).out),
             explained = Json::parse(attile_command(words({"explain"}, {"--json"}), here).out);
  CHECK(explained["schedule"] == run["schedule"]);
  CHECK_THAT(explained["chosen"].get<std::string>(), ContainsSubstring("found by attile tune"));
  std::vector<std::string> named = words({"explain"}, {"--json", "--target", "x86-64-v3"});
  named.erase(std::find(named.begin(), named.end(), "--device"), std::find(named.begin(), named.end(), "--device") + 2);
  CHECK_THAT(Json::parse(attile_command(named, here).out)["chosen"].get<std::string>(), !ContainsSubstring("tune"));
}

TEST_CASE("a cache that is to be read only is not written by any verb of tuning") {
  const ScratchPlace place;
  std::map<std::string, std::string> here{{"ATTILE_CACHE_DIR", place.str()}};
  REQUIRE(attile_command(words({"tune"}, {"--budget", "1s"}), here).code == 0);
  const std::string file = (place / "mine.yaml").string();
  REQUIRE(attile_command({"tune", "export", "--device", "cpu", "--out", file}, here).code == 0);
  const std::vector<std::string> names = names_in(place / "tuned");
  std::string before;
  for (const std::string& name : names) before += read_text(place / ("tuned/" + name));
  here["ATTILE_CACHE"] = "readonly";
  const Finished tuned = attile_command(words({"tune"}, {"--budget", "1s", "--again"}), here);
  CHECK(tuned.code == 0);
  CHECK_THAT(tuned.err, ContainsSubstring("read only"));
  for (const std::vector<std::string>& verb : {std::vector<std::string>{"tune", "forget", "--all", "--device", "cpu"},
                                               {"tune", "import", file, "--device", "cpu"},
                                               {"doctor", "--measure", "--device", "cpu"}}) {
    const Finished f = attile_command(verb, here);
    CHECK(f.code == 1);
    CHECK_THAT(text_of(f), ContainsSubstring("read only"));
  }
  CHECK(names_in(place / "tuned") == names);
  std::string after;
  for (const std::string& name : names) after += read_text(place / ("tuned/" + name));
  CHECK(after == before);
}

TEST_CASE("a store that cannot be used is told with its reason, and an empty one has nothing to forget") {
  const ScratchPlace fresh;
  const Finished none =
      attile_command({"tune", "forget", "--all", "--device", "cpu"}, {{"ATTILE_CACHE_DIR", fresh.str()}});
  CHECK(none.code == 0);
  CHECK_THAT(none.out, ContainsSubstring("0 results removed"));
  const ScratchPlace open;
  fs::permissions(open.str(), fs::perms(0777));
  for (const std::vector<std::string>& verb : {std::vector<std::string>{"tune", "forget", "--device", "cpu"},
                                               {"tune", "show", "--device", "cpu"},
                                               {"tune", "import", "--device", "cpu", ATTILE_SOURCE_DIR "/README.md"},
                                               words({"tune"}, {"--budget", "1s"})}) {
    const Finished f = attile_command(verb, {{"ATTILE_CACHE_DIR", open.str()}});
    INFO(text_of(f));
    if (verb[1] != "import") CHECK_THAT(text_of(f), ContainsSubstring("every user may write to it"));
    CHECK_THAT(text_of(f), !ContainsSubstring(" /") || !ContainsSubstring(".yaml"));
  }
}

TEST_CASE("a limit on the size of files is an error that leaves nothing behind") {
  const ScratchPlace place;
  const std::string file = (place / "out.yaml").string();
  const attile::ChildResult f =
      limited("ulimit -f 1", place.str(), {"tune", "export", "--device", "cpu", "--out", file});
  INFO(f.output);
  CHECK(f.code == 1);
  CHECK_THAT(f.output, ContainsSubstring("cannot be written"));
  for (const std::string& name : names_in(place.str())) CHECK_THAT(name, !ContainsSubstring("out.yaml"));
}

TEST_CASE("a word that the script of the shipped schedules does not know changes nothing") {
  const auto script = [](const std::string& word) {
    return attile::run_child(
        {"/usr/bin/env", "ATTILE=/bin/false", "/bin/sh", ATTILE_SOURCE_DIR "/tools/regenerate_schedules", word}, true);
  };
  CHECK(script("--help").code == 0);
  CHECK_THAT(script("--help").output, ContainsSubstring("usage: "));
  for (const char* word : {"--hlep", "cpu", "--budget"}) {
    CHECK(script(word).code == 2);
    CHECK_THAT(script(word).output, ContainsSubstring("usage: "));
  }
}

TEST_CASE("a budget that is no time is wrong usage, before any work") {
  for (const char* budget : {"", "10", "s", "-3s", "1y", "0s", "nan s", "1e9h"}) {
    CAPTURE(budget);
    const Finished f = attile_command(words({"tune"}, {std::string("--budget=") + budget}));
    CHECK(f.code == 2);
    CHECK_THAT(f.err, ContainsSubstring("budget"));
  }
}

TEST_CASE("without a cache folder a problem is tuned and the result is told not to be kept") {
  const Finished f =
      attile_command(words({"tune"}, {"--budget", "1s"}), {{"ATTILE_CACHE", "off"}, {"ATTILE_CACHE_DIR", ""}});
  INFO(text_of(f));
  CHECK(f.code == 0);
  CHECK_THAT(f.out, ContainsSubstring("winner"));
  CHECK_THAT(f.err, ContainsSubstring("not kept"));
}

TEST_CASE("doctor measures the limits of this machine, fits the model to what was tuned and keeps both") {
  const ScratchPlace place;
  const std::map<std::string, std::string> here{{"ATTILE_CACHE_DIR", place.str()}};
  REQUIRE(attile_command(words({"tune"}, {"--budget", "3s"}), here).code == 0);
  const Finished f = attile_command({"doctor", "--measure", "--device", "cpu", "--json"}, here);
  INFO(text_of(f));
  REQUIRE(f.code == 0);
  const Json json = Json::parse(f.out);
  CHECK(json["values"]["fma_gflops"] > 1);
  CHECK_THAT(json["fitted"].get<std::string>(), ContainsSubstring("1 problems"));
  CHECK_THAT(attile_command(words({"tune"}, {"--explain"}), here).out, ContainsSubstring("fitted to 1 problems"));
}
