// Another program, run to its end without a shell.
#pragma once

#include <string>
#include <vector>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

struct ChildResult {
  int code = -1;       // exit code; minus the signal that ended it
  std::string output;  // what it wrote to stdout and, where asked for, to stderr
};

// `words`: the path of the program and its arguments. Its standard input is empty. Throws Error(environment) when it
// cannot be started.
ATTILE_API ChildResult run_child(std::vector<std::string> words, bool with_stderr = true);

}  // namespace v1
}  // namespace attile
