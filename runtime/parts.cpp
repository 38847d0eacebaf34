#include "runtime/parts.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr std::size_t line = 64;

std::size_t rounded(std::int64_t elements) {
  return (static_cast<std::size_t>(elements) * sizeof(float) + line - 1) / line * line;
}

}  // namespace

PartsPlan::PartsPlan(const SplitAlgorithm& split, const Problem& p) {
  const auto is_feature = [&](const Dim& d) { return p.extents.contains(d.name); };
  for (const OutputDecl& o : split.partial.outputs) {
    const Dims& dims = split.merge.find_input(o.name)->dims;
    StateTensor t{o.name, {}, {}, {}};
    for (const Dim& d : dims) {
      Axis axis;
      if (d == batch)
        axis.size = split.partial.lengths == Lengths::packed ? nullptr : &CallSizes::sequences;
      else if (d == head)
        axis.size = &CallSizes::heads;
      else if (d == split.partial.parallel)
        axis.size = &CallSizes::rows;
      else if (d == part)
        axis.size = &CallSizes::parts;
      else
        axis.fixed = p.extents.at(d.name);
      t.axes.push_back(axis);
    }
    for (const int turn : {0, 1, 2})
      for (std::size_t i = dims.size(); i-- > 0;)
        if (turn == (is_feature(dims[i]) ? 0 : dims[i] == part ? 1 : 2)) t.inner_to_outer.push_back(i);
    Dims written = output_dims(split.partial, o);
    written.push_back(part);
    for (const Dim& d : written)
      for (std::size_t i = 0; i < dims.size(); ++i)
        if (dims[i] == d) t.written.push_back(i);
    states_.push_back(std::move(t));
  }
}

int PartsPlan::tensor(std::string_view name) const {
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (states_[i].name == name) return static_cast<int>(i);
  return -1;
}

std::int64_t PartsPlan::elements(const StateTensor& t, const CallSizes& sizes) const {
  std::int64_t count = 1;
  for (const Axis& axis : t.axes) count *= axis.size ? sizes.*axis.size : axis.fixed;
  return count;
}

std::size_t PartsPlan::bytes(const CallSizes& sizes) const {
  std::size_t sum = 0;
  for (const StateTensor& t : states_) sum += rounded(elements(t, sizes));
  return sum;
}

void PartsPlan::place(const CallSizes& sizes, std::byte* memory, TensorRef* writes, TensorRef* reads) const {
  for (const StateTensor& t : states_) {
    TensorRef& whole = *reads++;
    whole.data = memory;
    whole.rank = static_cast<int>(t.axes.size());
    std::int64_t stride = 1;
    for (const std::size_t i : t.inner_to_outer) {
      whole.shape[i] = t.axes[i].size ? sizes.*t.axes[i].size : t.axes[i].fixed;
      whole.strides[i] = stride;
      stride *= whole.shape[i];
    }
    TensorRef& written = *writes++;
    written.data = memory;
    for (const std::size_t i : t.written) {
      written.shape[static_cast<std::size_t>(written.rank)] = whole.shape[i];
      written.strides[static_cast<std::size_t>(written.rank++)] = whole.strides[i];
    }
    memory += rounded(elements(t, sizes));
  }
}

PartsTensors::PartsTensors(const PartsPlan& parts, BoundCall& call, std::byte* memory)
    : call_(call), count_(parts.count()), own_(call.tensors.size()), views_(2 * count_, TensorRef{}, call.pool()) {
  parts.place(call.sizes, memory, views_.data(), views_.data() + count_);
  for (std::size_t i = 0; i < count_; ++i) call_.tensors.push_back(&views_[i]);
}

void PartsTensors::read() {
  for (std::size_t i = 0; i < count_; ++i) call_.tensors[own_ + i] = &views_[count_ + i];
  call_.sizes.positions = call_.sizes.parts;
}

void Workspace::Free::operator()(std::byte* memory) const { std::free(memory); }

Workspace::Block& Workspace::kept() {
  static thread_local Block block;
  return block;
}

// Taken out, not borrowed: while this call waits, its thread may run another one.
Workspace::Workspace(std::size_t bytes) : block_(std::exchange(kept(), Block{})) {
  if (bytes <= block_.bytes) return;
  bytes = (bytes + line - 1) / line * line;
  block_ = Block{};
  block_.memory.reset(static_cast<std::byte*>(std::aligned_alloc(line, bytes)));
  if (!block_.memory)
    throw Error(ErrorKind::resource, "work space", fmt::format("no memory for {} bytes of partial results", bytes));
  block_.bytes = bytes;
}

Workspace::~Workspace() {
  if (block_.bytes > kept().bytes) kept() = std::move(block_);
}

}  // namespace v1
}  // namespace attile
