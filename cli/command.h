// The command `attile`: its verbs, exit codes (0 good, 1 the work failed, 2 wrong usage) and what a wrong word gets as
// an answer. A verb is a file with one function that adds its flags and returns what to do.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace attile::cli {

int run_command(int argc, char** argv);

inline constexpr int good = 0, failed = 1, wrong_usage = 2;

// Adds the flags of a verb to its subcommand; the result runs after parsing and returns the exit code.
using Action = std::function<int()>;
Action add_run(CLI::App& verb);
Action add_check(CLI::App& verb);
Action add_emit(CLI::App& verb);
Action add_explain(CLI::App& verb);
Action add_bench(CLI::App& verb);
Action add_cache(CLI::App& verb);
Action add_tune(CLI::App& verb);
Action add_doctor(CLI::App& verb);

// attile doctor --measure: the limits of a device and the effects fitted to what was tuned, kept for the model.
int measure_device(const std::string& device, bool json);

struct ListLine {
  std::string text, place;  // "problems.txt:3"
};
// The lines of a file without comments (#), unless nothing is left of them. Throws Error for a file that cannot be read
// or has none.
std::vector<ListLine> lines_of_list(const std::string& list);
// An Error of `work` is thrown with the line as its place.
void at_place(const std::string& place, const std::function<void()>& work);
// The words of a line, as a shell without quotes would split it.
std::vector<std::string> words_of(const std::string& line);
// Parses a line of a list by the flags of `app`. Throws Error(argument) with the usage_text() of what is wrong.
void parse_line(CLI::App& app, const std::string& line);
// What parsing found wrong, as one sentence with a suggestion where a known word is near.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error);

}  // namespace attile::cli
