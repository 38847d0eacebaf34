// Printed form, equality and hash of an algorithm.
#include <fmt/format.h>

#include <algorithm>

#include "dsl/algorithm.h"
#include "dsl/algorithm_check.h"
#include "dsl/expr_print.h"

namespace attile {
inline namespace v1 {

namespace {

std::string_view kind_name(Kind kind) {
  return kind == Kind::real ? "real" : kind == Kind::integer ? "integer" : "boolean";
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& p : parts) text += (text.empty() ? "" : ", ") + p;
  return text;
}

class AlgorithmPrinter {
 public:
  explicit AlgorithmPrinter(const Algorithm& a) : a_(a), printer_(all_expressions(a)) {}

  std::string print() {
    head();
    if (!a_.visible.empty()) statement("visible({})", a_.visible);
    for (const StateDecl& s : a_.states) state(s);
    for (const RescaleRule& r : a_.rules)
      statement("rescale({{" + join(r.sums) + "}}, " + r.reference + ", {})", r.factor);
    for (const OutputDecl& o : a_.outputs)
      statement(fmt::format("{}(\"{}\", {{}})", o.per_position ? "emit" : "output", o.name), o.value);
    return text_;
  }

 private:
  void line(const std::string& s) { text_ += s + "\n"; }

  void head() {
    static constexpr std::string_view lengths[] = {"", ".lengths(used)", ".lengths(packed)"};
    line(fmt::format("for_tiles(\"{}\", {}){}.stream({})", a_.name, a_.parallel.name,
                     lengths[static_cast<int>(a_.lengths)], a_.streamed.name));
    for (const InputDecl& in : a_.inputs) {
      std::vector<std::string> dims;
      for (const Dim& d : in.dims) dims.push_back(d.name);
      line(fmt::format("  input {}: {} [{}]", in.name, kind_name(in.kind), join(dims)));
    }
    for (const ScalarDecl& s : a_.scalars) line(fmt::format("  scalar {}: {}", s.name, kind_name(s.kind)));
  }

  // `form` holds one {} for the expression.
  void statement(const std::string& form, const Expr& e) {
    std::vector<std::string> definitions;
    const std::string text = printer_.print(e, definitions);
    for (const std::string& d : definitions) line("  " + d);
    line("  " + fmt::format(fmt::runtime(form), text));
  }

  void state(const StateDecl& s) {
    if (s.kind == StateKind::reference) return statement(s.name + " = running_max({})", s.update);
    if (s.kind == StateKind::sum) return statement(s.name + " = sum({})", s.update);
    std::vector<std::string> definitions;
    std::string text = printer_.print(s.update, definitions);
    text += fmt::format(", {}", s.count);
    if (!s.payload.empty()) text += ", " + printer_.print(s.payload, definitions);
    for (const std::string& d : definitions) line("  " + d);
    line(fmt::format("  {} = top_k({})", s.name, text));
  }

  const Algorithm& a_;
  ExprPrinter printer_;
  std::string text_;
};

bool equal_states(const StateDecl& a, const StateDecl& b) {
  return a.kind == b.kind && a.name == b.name && a.count == b.count && same(a.update, b.update) &&
         same(a.payload, b.payload);
}
bool equal_rules(const RescaleRule& a, const RescaleRule& b) {
  return a.reference == b.reference && a.sums == b.sums && same(a.factor, b.factor);
}
bool equal_outputs(const OutputDecl& a, const OutputDecl& b) {
  return a.name == b.name && a.kind == b.kind && a.per_position == b.per_position && same(a.value, b.value);
}

}  // namespace

std::string to_string(const Algorithm& a) { return AlgorithmPrinter(a).print(); }

bool operator==(const Algorithm& a, const Algorithm& b) {
  // Arguments follow from the expressions.
  return a.name == b.name && a.parallel == b.parallel && a.streamed == b.streamed && a.lengths == b.lengths &&
         same(a.visible, b.visible) &&
         std::equal(a.states.begin(), a.states.end(), b.states.begin(), b.states.end(), equal_states) &&
         std::equal(a.rules.begin(), a.rules.end(), b.rules.begin(), b.rules.end(), equal_rules) &&
         std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(), equal_outputs);
}

std::uint64_t hash_of(const Algorithm& a) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : to_string(a)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace v1
}  // namespace attile
