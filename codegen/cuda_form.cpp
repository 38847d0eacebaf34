#include "codegen/cuda_form.h"

#include <fmt/format.h>

#include <algorithm>

namespace attile::cuda_text {

Form::Form(Frame& frame) : FrameEnvironment(frame) {
  for (const ir::ValueDecl& v : frame.kernel.values) {
    std::string name = identifier(v.name);
    while (std::find(names_.begin(), names_.end(), name) != names_.end()) name += "_";
    names_.push_back(name);
  }
}

bool Form::is_new(ir::Value v) {
  for (const auto& scope : scopes_)
    if (scope.contains(v.id)) return false;
  scopes_.back().insert(v.id);
  return true;
}

bool Form::varies(const Expr& e) const {
  std::set<const Node*> visited;
  return varies(e, visited);
}
bool Form::varies(const Expr& e, std::set<const Node*>& visited) const {
  if (!visited.insert(e.get()).second) return false;
  if (e->op == Op::variable) {
    const ir::Value v = frame_.kernel.find(e->name);
    return v.id >= 0 && decl(v).axis != ir::Axis::row;
  }
  if (e->op == Op::reduce_sum) return false;
  if (e->op == Op::element || e->op == Op::index || e->op == Op::random) {
    for (const Dim& d : e->dims)
      if (!is_batch_like(d) && d != frame_.algorithm().parallel) return true;
    if (e->op != Op::element) return e->op == Op::random;
  }
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& arg) { return varies(arg, visited); });
}

std::string Form::stored(const std::string& tensor, const std::string& value) const {
  const DType type = frame_.dtype(tensor);
  if (is_float(type)) return type == DType::float32 ? value : fmt::format("from_float<{}>({})", type_name(type), value);
  return fmt::format("static_cast<{}>({})", type_name(type), value);
}

// The element at hand in an output: rows, positions, columns and slots where it has them.
std::vector<std::string> Form::output_indices(const std::string& tensor) {
  std::vector<std::string> indices;
  for (const Dim& d : frame_.dims_of(tensor)) indices.push_back(index(d));
  return indices;
}

}  // namespace attile::cuda_text
