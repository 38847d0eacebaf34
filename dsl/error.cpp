#include "dsl/error.h"

#include <fmt/format.h>

namespace attile {
inline namespace v1 {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::argument: return "argument";
    case ErrorKind::unsupported: return "unsupported";
    case ErrorKind::environment: return "environment";
    case ErrorKind::resource: return "resource";
    case ErrorKind::internal: return "internal";
  }
  return "internal";
}

static std::string full_text(const std::string& where, const std::string& what, const std::string& remedy) {
  std::string text = where.empty() ? what : fmt::format("{}: {}", where, what);
  if (!remedy.empty()) text += fmt::format(" ({})", remedy);
  return text;
}

Error::Error(ErrorKind kind, std::string where, std::string what, std::string remedy)
    : std::runtime_error(full_text(where, what, remedy)),
      kind_(kind),
      where_(std::move(where)),
      message_(std::move(what)),
      remedy_(std::move(remedy)) {}

Error::~Error() = default;

void internal_check(bool holds, std::string_view what, std::source_location at) {
  if (holds) return;
  throw Error(ErrorKind::internal, fmt::format("{}:{}", at.file_name(), at.line()), std::string(what),
              "this is a fault of Attile; please report it with the text above");
}

}  // namespace v1
}  // namespace attile
