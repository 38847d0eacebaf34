#include "schedules/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "dsl/error.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

[[noreturn]] void refuse(const Algorithm& a, const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorKind::argument, fmt::format("problem of '{}'", a.name), what, remedy);
}

std::map<std::string, Kind> tensors_of(const Algorithm& a) {
  std::map<std::string, Kind> out;
  for (const InputDecl& i : a.inputs) out.emplace(i.name, i.kind);
  for (const OutputDecl& o : a.outputs) out.emplace(o.name, o.kind);
  return out;
}

void check_dtypes(const Algorithm& a, const Problem& p) {
  const std::map<std::string, Kind> tensors = tensors_of(a);
  for (const auto& [name, kind] : tensors) {
    const auto found = p.dtypes.find(name);
    if (found == p.dtypes.end()) refuse(a, fmt::format("the tensor '{}' has no element type", name));
    if (!holds(found->second, kind))
      refuse(a, fmt::format("the tensor '{}' is {}, but {} is needed", name, to_string(found->second), dtypes_of(kind)));
  }
  for (const char* name : {"kv_lens", "cu_seqlens_q", "cu_seqlens_k"})
    if (a.lengths != Lengths::dense && tensors.contains(name) && p.dtypes.at(name) != DType::int32)
      refuse(a, fmt::format("the tensor '{}' is {}, but lengths are int32", name, to_string(p.dtypes.at(name))));
  for (const auto& [name, type] : p.dtypes)
    if (!tensors.contains(name)) refuse(a, fmt::format("the algorithm has no tensor '{}'", name));
}

void check_extents(const Algorithm& a, const Problem& p) {
  const Dims compiled = compiled_dims(a);
  std::vector<std::string> names;
  for (const Dim& d : compiled) {
    names.push_back(d.name);
    const auto found = p.extents.find(d.name);
    if (found == p.extents.end()) refuse(a, fmt::format("the dim '{}' has no extent", d.name));
    if (found->second < 1)
      refuse(a, fmt::format("the dim '{}' has extent {}", d.name, found->second), "extents start at 1");
  }
  for (const auto& [name, value] : p.extents) {
    if (name == slot.name && selection_count(a) > 0) {
      if (value != selection_count(a))
        refuse(a, fmt::format("the dim 'slot' has extent {}, but the selection keeps {}", value, selection_count(a)));
      continue;
    }
    if (std::find(names.begin(), names.end(), name) == names.end())
      refuse(
          a, fmt::format("the extent of '{}' is not compiled in", name),
          names.empty() ? "this algorithm has no such dim" : fmt::format("give those of {}", fmt::join(names, ", ")));
  }
}

}  // namespace

std::string to_string(const Problem& p) {
  std::string out;
  for (const auto& [name, value] : p.extents) {
    const bool is_head_dim = name == head_dim.name, is_value_dim = name == value_dim.name;
    out += is_head_dim ? "D" : is_value_dim ? "Dv" : name + " ";
    out += fmt::format("{} ", value);
  }
  out += fmt::format("group {}", p.group);
  for (const auto& [name, type] : p.dtypes) out += fmt::format(" {}:{}", name, to_string(type));
  return out + (p.few_rows ? " few rows" : "") + (p.tf32 ? " tf32" : "") + (p.scattered ? " scattered" : "");
}

void check_problem(const Algorithm& a, const Problem& p) {
  check_dtypes(a, p);
  check_extents(a, p);
  if (p.group < 1)
    refuse(a, fmt::format("the group has {} query heads", p.group), "query heads per kv head start at 1");
}

}  // namespace v1
}  // namespace attile
