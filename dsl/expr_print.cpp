#include "dsl/expr_print.h"

#include <fmt/format.h>

#include <cmath>

#include "dsl/expr_ops.h"

namespace attile {
inline namespace v1 {

namespace {

// Shorter than this, a repeated expression reads better in place than behind a name.
constexpr std::size_t shortest_named = 10;
// Above this many nodes (as a tree) a lone expression is printed with named parts too.
constexpr double largest_plain = 2000;

int precedence_of(const Expr& e) {
  if (e->op == Op::constant) return e->value < 0 || std::signbit(e->value) ? unary_precedence : call_precedence;
  return op_info(e->op).precedence;
}

double tree_size(const Expr& e, std::unordered_map<const Node*, double>& memo) {
  if (auto at = memo.find(e.get()); at != memo.end()) return at->second;
  double size = 1;
  for (const Expr& arg : e->args) size += tree_size(arg, memo);
  memo.emplace(e.get(), size);
  return size;
}

std::string structure_key(const Node& node, const std::vector<int>& args) {
  std::string key = fmt::format("{}|{}|{}|{}|{}", static_cast<int>(node.op), static_cast<int>(node.kind),
                                constant_text(Kind::real, node.value), node.name, node.dim.name);
  for (const Dim& d : node.op == Op::variable ? node.dims : node.axes) key += "|" + d.name;
  for (int id : args) key += fmt::format(",{}", id);
  return key;
}

}  // namespace

std::string constant_text(Kind kind, double value) {
  if (kind == Kind::boolean) return value != 0 ? "true" : "false";
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (kind == Kind::integer) return fmt::format("{}", static_cast<std::int64_t>(value));
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

ExprPrinter::ExprPrinter(const std::vector<Expr>& roots, bool name_repeats) : name_repeats_(name_repeats) {
  for (const Expr& root : roots)
    if (!root.empty()) ++uses_[static_cast<std::size_t>(intern(root))];
}

int ExprPrinter::intern(const Expr& e) {
  if (auto at = by_node_.find(e.get()); at != by_node_.end()) return at->second;
  std::vector<int> args;
  for (const Expr& arg : e->args) args.push_back(intern(arg));
  auto [at, fresh] = by_structure_.emplace(structure_key(*e, args), static_cast<int>(uses_.size()));
  if (fresh) {
    uses_.push_back(0);
    names_.emplace_back();
    for (int arg : args) ++uses_[static_cast<std::size_t>(arg)];
  }
  by_node_.emplace(e.get(), at->second);
  return at->second;
}

std::string ExprPrinter::print(const Expr& root, std::vector<std::string>& definitions) {
  return text(root, 0, definitions);
}

std::string ExprPrinter::text(const Expr& e, int minimum, std::vector<std::string>& definitions) {
  const auto id = static_cast<std::size_t>(find(e));
  if (!names_[id].empty()) return names_[id];
  std::string own = own_text(e, definitions);
  if (name_repeats_ && uses_[id] > 1 && e->height > 0 && own.size() >= shortest_named) {
    names_[id] = fmt::format("_{}", next_name_++);
    definitions.push_back(fmt::format("{} = {}", names_[id], own));
    return names_[id];
  }
  return precedence_of(e) < minimum ? "(" + own + ")" : own;
}

std::string ExprPrinter::own_text(const Expr& e, std::vector<std::string>& definitions) {
  switch (e->op) {
    case Op::constant: return constant_text(e->kind, e->value);
    case Op::scalar:
    case Op::variable: return e->name;
    case Op::index: return e->dim.name;
    case Op::length: return fmt::format("length({})", e->dim.name);
    case Op::element: return element_text(e, definitions);
    case Op::negate:
    case Op::logical_not:
      return fmt::format("{}{}", op_info(e->op).text, text(e->args[0], unary_precedence + 1, definitions));
    default: return is_infix(e->op) ? binary_text(e, definitions) : call_text(e, definitions);
  }
}

std::string ExprPrinter::binary_text(const Expr& e, std::vector<std::string>& definitions) {
  const OpInfo& info = op_info(e->op);
  // Comparisons do not chain; everything else groups to the left.
  const bool compares = info.typing == Typing::compare || info.typing == Typing::equality;
  std::string left = text(e->args[0], info.precedence + (compares ? 1 : 0), definitions);
  std::string right = text(e->args[1], info.precedence + 1, definitions);
  return fmt::format("{} {} {}", left, info.text, right);
}

std::string ExprPrinter::call_text(const Expr& e, std::vector<std::string>& definitions) {
  std::string list;
  for (const Expr& arg : e->args) list += (list.empty() ? "" : ", ") + text(arg, 0, definitions);
  const bool inferred = e->op == Op::dot && only_common_dim(e->args[0], e->args[1]) != nullptr &&
                        *only_common_dim(e->args[0], e->args[1]) == e->dim;
  if ((e->op == Op::dot && !inferred) || e->op == Op::reduce_sum) list += ", " + e->dim.name;
  return fmt::format("{}({})", op_info(e->op).text, list);
}

std::string ExprPrinter::element_text(const Expr& e, std::vector<std::string>& definitions) {
  if (is_direct_element(*e)) return e->name;
  std::string list;
  for (const Expr& arg : e->args) list += (list.empty() ? "" : ", ") + text(arg, 0, definitions);
  if (e->value != 0) list += "; outside " + constant_text(e->kind, e->value);
  return fmt::format("{}({})", e->name, list);
}

std::string to_string(const Expr& e) {
  if (e.empty()) return "(empty)";
  std::unordered_map<const Node*, double> sizes;
  ExprPrinter printer({e}, tree_size(e, sizes) > largest_plain);
  std::vector<std::string> definitions;
  std::string text = printer.print(e, definitions);
  std::string all;
  for (const std::string& line : definitions) all += line + "; ";
  return all + text;
}

}  // namespace v1
}  // namespace attile
