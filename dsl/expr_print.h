// Prints expressions as the user would write them. Several expressions printed by one printer share
// sub-expressions by name ("_1 = dot(q, k) * scale"), found by structure, so that equal trees print equally
// however they were built. Internal to dsl/.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "dsl/expr.h"

namespace attile {
inline namespace v1 {

class ExprPrinter {
 public:
  // All expressions that will be printed, in order; a sub-expression used twice among them gets a name.
  // Without `name_repeats` none does.
  explicit ExprPrinter(const std::vector<Expr>& roots, bool name_repeats = true);
  // Text of one root; `definitions` receives the lines "_n = …" that it needs and that were not given before.
  std::string print(const Expr& root, std::vector<std::string>& definitions);

 private:
  int intern(const Expr& e);
  int find(const Expr& e) const { return by_node_.at(e.get()); }
  std::string text(const Expr& e, int minimum, std::vector<std::string>& definitions);
  std::string own_text(const Expr& e, std::vector<std::string>& definitions);
  std::string binary_text(const Expr& e, std::vector<std::string>& definitions);
  std::string call_text(const Expr& e, std::vector<std::string>& definitions);
  std::string element_text(const Expr& e, std::vector<std::string>& definitions);

  std::unordered_map<const Node*, int> by_node_;
  std::map<std::string, int> by_structure_;
  std::vector<int> uses_;
  std::vector<std::string> names_;  // by structure: "" until the definition is written
  int next_name_ = 1;
  bool name_repeats_;
};

// 2 as "2.0" if real, "2" if integer, "true" if boolean; shortest text that reads back to the same value.
std::string constant_text(Kind kind, double value);

}  // namespace v1
}  // namespace attile
