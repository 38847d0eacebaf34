#include "schedules/operands.h"

#include <algorithm>
#include <map>

#include "dsl/derive.h"
#include "dsl/error.h"
#include "dsl/expr_walk.h"

namespace attile {
inline namespace v1 {
namespace {

const Dim* feature_of(const Algorithm& a, const Dims& dims) {
  for (const Dim& d : dims)
    if (!is_batch_like(d) && d != a.parallel && d != a.streamed && d != slot) return &d;
  return nullptr;
}

bool has(const Dims& dims, const Dim& d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

}  // namespace

std::vector<Operand> product_operands(const Algorithm& a) {
  std::vector<Expr> roots;
  for (const StateDecl& s : a.states) roots.push_back(s.update);
  for (const OutputDecl& o : a.outputs)
    if (o.per_position) roots.push_back(o.value);
  std::vector<Operand> out;
  for_each_node(roots, [&](const Node& n) {
    const Dim* feature = n.op == Op::element ? feature_of(a, n.dims) : nullptr;
    const auto known = [&](const Operand& o) { return o.tensor == n.name; };
    if (!feature || std::any_of(out.begin(), out.end(), known)) return;
    const bool streamed = has(n.dims, a.streamed);
    out.push_back({n.name, *feature, streamed, streamed && has(n.dims, a.parallel)});
  });
  return out;
}

Dims compiled_dims(const Algorithm& a) {
  std::vector<Expr> roots;
  for (const StateDecl& s : a.states) roots.push_back(s.update);
  for (const OutputDecl& o : a.outputs) roots.push_back(o.value);
  std::map<std::string, Dim> found;
  for_each_node(roots, [&](const Node& n) {
    for (const Dim& d : n.dims)
      if (feature_of(a, {d})) found.emplace(d.name, d);
  });
  Dims out;
  for (const auto& [name, dim] : found) out.push_back(dim);
  return out;
}

Dims gathered_dims(const Algorithm& a, const Expr& e) {
  Dims out;
  for_each_node({e}, [&](const Node& n) {
    const Dim* feature = n.op == Op::dot && n.dim == slot ? feature_of(a, n.dims) : nullptr;
    if (feature) out.push_back(*feature);
  });
  return out;
}

bool depends_on_tensor(const Expr& e, const std::string& tensor) {
  bool found = false;
  for_each_node({e}, [&](const Node& n) { found = found || (n.op == Op::element && n.name == tensor); });
  return found;
}

std::string split_fault(const Algorithm& a) {
  if (selection_count(a) > 0) return "for the merge of a selection no schedule is built yet";
  try {
    split(a);
  } catch (const Error& e) {
    return e.message();
  }
  return {};
}

int selection_count(const Algorithm& a) {
  for (const StateDecl& s : a.states)
    if (s.kind == StateKind::selection) return s.count;
  return 0;
}

}  // namespace v1
}  // namespace attile
