// The one exception type. Everything that can go wrong in Attile is thrown as an Error whose text is
// in the user's terms; nothing is printed and returned, nothing else is thrown.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

enum class ErrorKind {
  argument,     // the caller's input is wrong
  unsupported,  // understood, but this build or device cannot do it
  environment,  // something outside the process is missing or broken (library, file, device)
  resource,     // memory, disk space or another limit ran out
  internal,     // a fault of Attile's own
};

ATTILE_API std::string_view to_string(ErrorKind kind);

// `where` names the public function or file position, `what_` the fault, `remedy` (may be empty) the way out.
// what() reads "<where>: <what> (<remedy>)".
class ATTILE_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string where, std::string what, std::string remedy = {});
  ~Error() override;

  ErrorKind kind() const noexcept { return kind_; }
  const std::string& where() const noexcept { return where_; }
  const std::string& message() const noexcept { return message_; }
  const std::string& remedy() const noexcept { return remedy_; }

 private:
  ErrorKind kind_;
  std::string where_, message_, remedy_;
};

// Throws ErrorKind::internal with the source location; for conditions no input can make false.
ATTILE_API void internal_check(bool holds, std::string_view what,
                               std::source_location at = std::source_location::current());

}  // namespace v1
}  // namespace attile
