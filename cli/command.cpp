#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
#include <system_error>

#include "autotune/stored_choice.h"
#include "dsl/error.h"

namespace attile::cli {
namespace {

struct Verb {
  const char *name, *doc;
  Action (*add)(CLI::App& verb);
};
constexpr Verb verbs[] = {
    {"run", "Compute attention of files or generated tensors; compare, time, write", add_run},
    {"check", "Run reference cases and compare with what they expect", add_check},
    {"emit", "Print the text of any stage of a kernel", add_emit},
    {"explain", "What a schedule needs and why it is legal or not", add_explain},
    {"bench", "Time a table of shapes", add_bench},
    {"tune", "Find the best schedule for a problem on this device, and keep it", add_tune},
    {"cache", "List, verify, clear or warm the kernels on disk", add_cache},
    {"doctor", "What of this machine is used, what is missing, and the fix", add_doctor},
};

// Levenshtein's distance.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known)
    if (const std::size_t d = distance(word, candidate); d < least) {
      least = d;
      best = candidate;
    }
  return best;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

const CLI::App& chosen(const CLI::App& app) {
  const std::vector<CLI::App*> subs = app.get_subcommands();
  return subs.empty() ? app : chosen(*subs.front());
}

std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : path_of(*app.get_parent()) + " " + app.get_name();
}

int complain(const std::string& text, int code) {
  std::fflush(stdout);
  const std::string line = fmt::format("attile: {}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
  return code;
}

int parse_and_run(CLI::App& app, int argc, char** argv, const std::vector<Action>& actions) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // help and version
    return app.exit(done) == 0 ? good : failed;
  } catch (const CLI::ParseError& error) {
    const CLI::App& verb = chosen(app);
    return complain(fmt::format("{}\nSee {} --help.", usage_text(verb, error), path_of(verb)), wrong_usage);
  }
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (app.got_subcommand(verbs[i].name)) return actions[i]();
  return wrong_usage;
}

}  // namespace

std::vector<ListLine> lines_of_list(const std::string& list) {
  std::ifstream file(list);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(list, ignored))
    throw Error(ErrorKind::environment, list,
                file ? "it is a folder, and a list is wanted" : "the list cannot be read");
  std::vector<ListLine> lines;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (!words_of(line).empty()) lines.push_back({line, fmt::format("{}:{}", list, number)});
  }
  if (file.bad()) throw Error(ErrorKind::environment, list, "the list cannot be read to its end");
  if (lines.empty()) throw Error(ErrorKind::argument, list, "the list has no line");
  return lines;
}

void at_place(const std::string& place, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    throw Error(e.kind(), place, e.what());
  }
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

void parse_line(CLI::App& app, const std::string& line) {
  std::vector<std::string> words = words_of(line);
  std::reverse(words.begin(), words.end());  // the order that CLI11 takes a vector in
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::argument, "", usage_text(app, error));
  }
}

std::string usage_text(const CLI::App& app, const CLI::ParseError& error) {
  const bool needs_verb = app.get_require_subcommand_min() > 0;
  for (const std::string& word : app.remaining()) {
    if (word.starts_with("-"))
      return fmt::format("{} is not known{}", word, suggestion(word.substr(0, word.find('=')), flags_of(app)));
    if (needs_verb) return fmt::format("\"{}\" is no verb{}", word, suggestion(word, verbs_of(app)));
    return fmt::format("\"{}\" is one argument too many", word);
  }
  if (needs_verb && app.get_subcommands().empty())
    return fmt::format("a verb is missing; there are {}", fmt::join(verbs_of(app), ", "));
  return error.what();
}

int run_command(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is an error of writing
  CLI::App app("Attention kernels, generated and compiled when they are needed.", "attile");
  use_tuning_results();
  app.set_version_flag("--version", "attile " ATTILE_VERSION);
  app.require_subcommand(1);
  std::vector<Action> actions;
  for (const Verb& verb : verbs) actions.push_back(verb.add(*app.add_subcommand(verb.name, verb.doc)));
  int code = failed;
  try {
    code = parse_and_run(app, argc, argv, actions);
  } catch (const Error& e) {
    return complain(e.what(), e.kind() == ErrorKind::argument ? wrong_usage : failed);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", failed);
  } catch (const std::system_error& e) {  // of printing
    return complain(fmt::format("the output could not be written: {}", e.what()), failed);
  } catch (const std::exception& e) {
    return complain(fmt::format("this is a fault of Attile: {}", e.what()), failed);
  }
  if (std::fflush(stdout) != 0) return complain("the output could not be written", failed);
  return code;
}

}  // namespace attile::cli
