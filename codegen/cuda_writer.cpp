#include "codegen/cuda_writer.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "codegen/embedded.h"
#include "dsl/error.h"

namespace attile::cuda_text {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Words of C++ and names that the emitted text has for itself.
const std::set<std::string, std::less<>>& reserved() {
  static const std::set<std::string, std::less<>> words{
      "a", "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr",
      "continue", "default", "delete", "do", "double", "else", "enum", "explicit", "extern", "false", "float", "for", "friend",
      "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "operator", "or", "private",
      "protected", "public", "register", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this",
      "throw", "true", "try", "typedef", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "xor",
      "i", "j", "e", "h", "row", "column", "position", "first_position", "first_column", "first_row", "tile", "tile_row",
      "sequence", "head", "kv_head", "part", "stage", "mixed", "task", "threads", "lane", "warp", "walk", "attile", "shared",
      "row_length", "key_length", "position_length", "row_start", "position_start", "all_rows", "infinity", "log2e", "ln2",
      "a", "n", "r", "t", "w", "at", "bad", "index", "rows", "panel", "share", "group", "memory", "place", "slot", "coming", "seen",
      "early", "grown", "guarded", "sweep", "row_tile", "tile_number", "all_tiles", "first_tile", "end_tile", "value",
      "bf16", "f16", "u8", "u16", "u32", "u64", "i32", "i64", "pack", "min", "max", "exp", "log", "tanh", "floor", "abs"};
  return words;
}

// What the device headers declare for all: functions, types and constants, one to a line.
const std::set<std::string, std::less<>>& declared() {
  static const std::set<std::string, std::less<>> names = [] {
    std::set<std::string, std::less<>> found;
    const auto add_before = [&](std::string_view line, std::size_t end) {
      while (end > 0 && line[end - 1] == ' ') --end;
      std::size_t begin = end;
      while (begin > 0 && is_name(line[begin - 1])) --begin;
      found.emplace(line.substr(begin, end - begin));
    };
    for (const embedded::File& file : embedded::device_files())
      for (std::string_view rest = file.content; !rest.empty();) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        if (line.starts_with(' ')) continue;
        if (line.find("__forceinline__") != line.npos && line.find('(') != line.npos) add_before(line, line.find('('));
        if (line.starts_with("struct ") || line.starts_with("constexpr ") || line.starts_with("using "))
          add_before(line, std::min({line.size(), line.find(" {"), line.find('<'), line.find('='), line.find(';')}));
        if (line.starts_with("constexpr ") && line.find(", ") != line.npos)
          add_before(line, line.rfind('='));  // the second of two
      }
    return found;
  }();
  return names;
}

std::map<std::string_view, int> count_words(std::string_view text) {
  std::map<std::string_view, int> count;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_name(text[end])) ++end;
    if (end > i) ++count[text.substr(i, end - i)];
    i = std::max(end, i + 1);
  }
  return count;
}

// The name that a line gives to a value and does nothing else; empty if it does not.
std::string_view named_by(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  for (const std::string_view start : {"const auto ", "const i32 "})
    if (line.starts_with(start) && line.ends_with(';') && line.find(" = ") == line.rfind(" = "))
      return line.substr(start.size(), line.find(" = ") - start.size());
  return {};
}

}  // namespace

std::string without_unread(std::string text) {
  while (true) {   // what an unread line reads may be unread after it
    const auto count = count_words(text);
    std::string kept;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin) + 1;
      const std::string_view line = std::string_view(text).substr(begin, end - begin - 1), name = named_by(line);
      if (name.empty() || count.at(name) > 1) kept.append(line) += '\n';
      begin = end;
    }
    if (kept.size() == text.size()) return kept;
    text = std::move(kept);
  }
}

std::string filled(std::string_view text, std::initializer_list<Hole> holes) {
  std::string out;
  std::set<std::string_view> used;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '$') {
      out += text[i++];
      continue;
    }
    std::size_t end = i + 1;
    while (end < text.size() && is_name(text[end])) ++end;
    const std::string_view name = text.substr(i + 1, end - i - 1);
    const auto hole = std::find_if(holes.begin(), holes.end(), [&](const Hole& each) { return each.first == name; });
    internal_check(hole != holes.end(), "nothing for the hole $" + std::string(name) + " in: " + std::string(text));
    used.insert(hole->first);
    out += hole->second;
    i = end;
  }
  internal_check(used.size() == holes.size(), "a name without a hole in: " + std::string(text));
  return out;
}

void CodeWriter::line(std::string_view text, std::initializer_list<Hole> holes) {
  const std::string content = filled(text, holes);
  if (content.starts_with('}')) --depth_;
  const bool directive = content.starts_with('#');
  if (!directive) text_.append(static_cast<std::size_t>(depth_) * 2, ' ');
  text_ += content + "\n";
  if (content.ends_with('{')) ++depth_;
}

std::string identifier(std::string_view name) {
  std::string out;
  for (const char c : name) out += is_name(c) ? c : '_';
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out.front()))) out = "_" + out;
  while (reserved().contains(out) || declared().contains(out)) out += "_";
  return out;
}

}  // namespace attile::cuda_text
