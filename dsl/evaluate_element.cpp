// How `evaluate` reads tensors: whole slices at their own dims, single elements at computed indices.
#include <algorithm>

#include "dsl/evaluate_tape.h"
#include "dsl/expr_ops.h"

namespace attile {
inline namespace v1 {

ElementReader::ElementReader(const Binding& binding, const Node& node, const Dims& inner,
                             const std::vector<std::int64_t>& extents)
    : binding_(binding), node_(node), tensor_(binding.tensor(node.name)), direct_(is_direct_element(node)) {
  const auto bytes = static_cast<std::int64_t>(size_of(tensor_.dtype));
  for (std::size_t i = 0; i < node.axes.size(); ++i)
    axes_.push_back({node.axes[i], tensor_.shape[i] == 1 ? 0 : tensor_.strides[i] * bytes});
  const Algorithm& a = binding.algorithm();
  streamed_ = std::find(node.dims.begin(), node.dims.end(), a.streamed) != node.dims.end();
  by_row_ = has(a.parallel);
  for (std::int64_t n : extents) size_ *= n;
  if (!direct_) return;
  std::vector<std::int64_t> strides(inner.size(), 0);
  for (const Axis& axis : axes_) {
    if (axis.dim == a.streamed) stream_stride_ = axis.stride;
    for (std::size_t d = 0; d < inner.size(); ++d)
      if (axis.dim == inner[d]) strides[d] = axis.stride;
  }
  for (std::int64_t i = 0; i < size_; ++i) {
    std::int64_t rest = i, at = 0;
    for (std::size_t d = inner.size(); d-- > 0; rest /= extents[d]) at += rest % extents[d] * strides[d];
    inner_offsets_.push_back(at);
  }
}

bool ElementReader::has(const Dim& d) const {
  return std::any_of(axes_.begin(), axes_.end(), [&](const Axis& axis) { return axis.dim == d; });
}

double ElementReader::value(std::int64_t byte_offset) const {
  return read_element(tensor_.dtype, static_cast<const char*>(tensor_.data) + byte_offset);
}

std::int64_t ElementReader::axis_start(const Axis& axis, std::int64_t sequence) const {
  return binding_.start(axis.dim, sequence) * axis.stride;
}

// A tensor packed along query or key has one entry along batch, whatever the sequence.
std::int64_t ElementReader::direct_base(const Site& site) const {
  std::int64_t base = 0;
  for (const Axis& axis : axes_) {
    std::int64_t index = 0;
    if (axis.dim == batch)
      index = site.sequence;
    else if (axis.dim == head)
      index = site.head;
    else if (axis.dim == kv_head)
      index = binding_.kv_head_of(site.head);
    else if (axis.dim == binding_.algorithm().parallel)
      index = site.row;
    base += index * axis.stride + axis_start(axis, site.sequence);
  }
  return base;
}

View ElementReader::read(const Site& site, const Block& block, const std::vector<View>& args,
                         const std::vector<IndexMap>& maps, std::vector<double>& buffer) {
  if (!direct_) return read_indexed(site, block, args, maps, buffer);
  return streamed_ && !by_row_ ? read_whole_stream(site, block, buffer) : read_direct(site, block, buffer);
}

View ElementReader::read_direct(const Site& site, const Block& block, std::vector<double>& buffer) {
  const std::int64_t base = direct_base(site);
  buffer.resize(static_cast<std::size_t>(block.count * size_));
  for (std::int64_t j = 0; j < block.count; ++j) {
    const std::int64_t at = base + (streamed_ ? block.positions[j] * stream_stride_ : 0);
    for (std::int64_t e = 0; e < size_; ++e)
      buffer[static_cast<std::size_t>(j * size_ + e)] = value(at + inner_offsets_[static_cast<std::size_t>(e)]);
  }
  return {buffer.data(), streamed_ ? size_ : 0, nullptr};
}

// The same for all rows of a sequence and kv head (k and v), so converted once for all of them.
View ElementReader::read_whole_stream(const Site& site, const Block& block, std::vector<double>& buffer) {
  const std::int64_t base = direct_base(site);
  const std::int64_t count = binding_.length(binding_.algorithm().streamed, site.sequence);
  if (base != cached_base_ || static_cast<std::int64_t>(buffer.size()) != count * size_) {
    buffer.resize(static_cast<std::size_t>(count * size_));
    for (std::int64_t p = 0; p < count; ++p)
      for (std::int64_t e = 0; e < size_; ++e)
        buffer[static_cast<std::size_t>(p * size_ + e)] =
            value(base + p * stream_stride_ + inner_offsets_[static_cast<std::size_t>(e)]);
    cached_base_ = base;
  }
  return {buffer.data(), size_, block.positions};
}

View ElementReader::read_indexed(const Site& site, const Block& block, const std::vector<View>& args,
                                 const std::vector<IndexMap>& maps, std::vector<double>& buffer) {
  buffer.resize(static_cast<std::size_t>(block.count * size_));
  std::vector<std::int64_t> at(axes_.size());
  for (std::int64_t j = 0; j < block.count; ++j)
    for (std::int64_t e = 0; e < size_; ++e) {
      for (std::size_t i = 0; i < at.size(); ++i)  // outside is outside, however far
        at[i] = static_cast<std::int64_t>(std::clamp(args[i].at(j)[maps[i](e)], -1.0, largest_integer));
      buffer[static_cast<std::size_t>(j * size_ + e)] = read_at(site, at);
    }
  return {buffer.data(), streamed_ ? size_ : 0, nullptr};
}

bool ElementReader::inside(const Axis& axis, std::int64_t index, std::int64_t sequence) const {
  if (index < 0) return false;
  if (is_batch_like(axis.dim)) return index < binding_.extent(axis.dim);
  return index < binding_.length(axis.dim, sequence);
}

double ElementReader::read_at(const Site& site, const std::vector<std::int64_t>& at) const {
  std::int64_t sequence = site.sequence, offset = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (!(axes_[i].dim == batch)) continue;
    if (!inside(axes_[i], at[i], 0)) return node_.value;
    sequence = at[i];
  }
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (!inside(axes_[i], at[i], sequence)) return node_.value;
    offset += at[i] * axes_[i].stride + axis_start(axes_[i], sequence);
  }
  return value(offset);
}

}  // namespace v1
}  // namespace attile
