#include "runtime/bind.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/error.h"
#include "runtime/call_check.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

bool has(const Dims& dims, const Dim& d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

template <typename Named>
int position_of(const std::vector<Named>& list, std::string_view name) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].name == name) return static_cast<int>(i);
  return -1;
}

}  // namespace

CallPlan::CallPlan(const Algorithm& a, const Problem& p, Memory memory)
    : where_(a.name), memory_(memory), lengths_(a.lengths), group_(p.group) {
  for (const InputDecl& input : a.inputs) add(input.name, input.dims, false, a, p);
  for (const OutputDecl& output : a.outputs) add(output.name, output_dims(a, output), true, a, p);
  for (const bool deciding : {true, false})
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if ((tensors_[i].is_operand || tensors_[i].is_output) == deciding) order_.push_back(static_cast<int>(i));
  for (const ScalarDecl& s : a.scalars) numbers_.push_back({s.name, s.kind});
  batch_ = shared(batch), head_ = shared(head), kv_head_ = shared(kv_head);
  rows_ = shared(a.parallel), positions_ = shared(a.streamed);
  kv_lens_ = tensor("kv_lens"), cu_seqlens_q_ = tensor("cu_seqlens_q"), cu_seqlens_k_ = tensor("cu_seqlens_k");
}

void CallPlan::add(const std::string& name, const Dims& dims, bool is_output, const Algorithm& a, const Problem& p) {
  if (dims.size() > TensorRef::max_rank)
    throw Error(
        ErrorKind::argument, where_,
        fmt::format("'{}' has {} dims, and a tensor of a call has at most {}", name, dims.size(), TensorRef::max_rank));
  const std::vector<Operand> operands = product_operands(a);
  const bool operand =
      std::any_of(operands.begin(), operands.end(), [&](const Operand& o) { return o.tensor == name; });
  const bool bounds = a.lengths == Lengths::packed && name.starts_with("cu_seqlens");
  const bool packed = a.lengths == Lengths::packed && (has(dims, query) || has(dims, key));
  TensorPlan t{name, dims, p.dtypes.at(name), is_output, operand};
  t.may_broadcast = !operand && !is_output && !bounds;
  t.unit_last = !dims.empty() && p.extents.contains(dims.back().name) && dims.back() != slot;
  for (const Dim& d : dims) {
    Axis axis;
    if (packed && d == batch) {
      axis.packed_batch = true;
      axis.fixed = 1;
    } else if (d == slot && selection_count(a) > 0) {
      axis.fixed = selection_count(a);
    } else if (const auto it = p.extents.find(d.name); it != p.extents.end()) {
      axis.fixed = it->second;
    } else {
      axis.shared = shared(bounds ? batch : d, true);
      axis.extra = bounds ? 1 : 0;
    }
    t.axes.push_back(axis);
  }
  tensors_.push_back(std::move(t));
}

int CallPlan::shared(const Dim& d, bool make) {
  const auto it = std::find(dims_.begin(), dims_.end(), d.name);
  if (it != dims_.end()) return static_cast<int>(it - dims_.begin());
  if (!make) return -1;
  dims_.push_back(d.name);
  return static_cast<int>(dims_.size()) - 1;
}

int CallPlan::tensor(std::string_view name) const { return position_of(tensors_, name); }
int CallPlan::number(std::string_view name) const { return position_of(numbers_, name); }

void CallPlan::bind(const Arguments& arguments, BoundCall& call) const { CallCheck(*this, arguments, call).run(); }

}  // namespace v1
}  // namespace attile
