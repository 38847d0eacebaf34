// CUDA text line by line: braces set the indentation, `$name` is a hole that the line's own list fills.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace attile::cuda_text {

using Hole = std::pair<std::string_view, std::string>;

// `text` with every `$name` replaced. Throws Error(internal) for a hole that `holes` does not name, or a name without
// a hole.
std::string filled(std::string_view text, std::initializer_list<Hole> holes);

class CodeWriter {
 public:
  // A line that starts with `}` closes a scope, one that ends with `{` opens one.
  void line(std::string_view text, std::initializer_list<Hole> holes = {});
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
};

// `text` without its lines `const auto name = …;` and `const i32 name = …;` whose name nothing reads.
std::string without_unread(std::string text);

// A name of the user's as an identifier of the emitted text.
std::string identifier(std::string_view name);

}  // namespace attile::cuda_text
