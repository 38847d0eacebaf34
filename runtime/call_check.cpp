#include "runtime/call_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {
namespace {

std::string shape_text(const TensorRef& t) {
  std::string text = "[";
  for (int i = 0; i < std::min(t.rank, TensorRef::max_rank); ++i)
    text += fmt::format("{}{}", i ? ", " : "", t.shape[static_cast<std::size_t>(i)]);
  return text + "]";
}

std::string dims_text(const Dims& dims) {
  std::string text = "[";
  for (const Dim& d : dims) text += (text.size() > 1 ? ", " : "") + d.name;
  return text + "]";
}

// Where `name` stands in `list`: first at the place where the caller would put it, who keeps to one order.
template <typename List>
std::ptrdiff_t place_of(const List& list, const std::string& name, std::size_t guess) {
  if (guess < list.size() && list[guess].name == name) return static_cast<std::ptrdiff_t>(guess);
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].name == name) return static_cast<std::ptrdiff_t>(i);
  return -1;
}

// A name that is not in `known`, or that stands in `list` twice.
template <typename List, typename Known>
const std::string* surplus(const List& list, const Known& known) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (place_of(known, list[i].name, 0) < 0 || place_of(list, list[i].name, 0) != static_cast<std::ptrdiff_t>(i))
      return &list[i].name;
  return nullptr;
}

template <typename Known>
std::string names_of(const Known& known) {
  std::string names;
  for (const auto& k : known) names += (names.empty() ? "" : ", ") + k.name;
  return names.empty() ? "none" : names;
}

std::int64_t int_at(const TensorRef& t, std::int64_t i) {
  return static_cast<const std::int32_t*>(t.data)[(t.shape[0] == 1 ? 0 : i) * t.strides[0]];
}

}  // namespace

void CallCheck::refuse(std::string what, std::string remedy) const {
  throw Error(ErrorKind::argument, plan_.where_, std::move(what), std::move(remedy));
}

void CallCheck::run() {
  find_tensors();
  find_numbers();
  for (std::size_t i = 0; i < plan_.tensors_.size(); ++i) check_form(plan_.tensors_[i], ref(i));
  for (const int i : plan_.order_)
    check_extents(plan_.tensors_[static_cast<std::size_t>(i)], ref(static_cast<std::size_t>(i)));
  find_sizes();
  const bool readable = plan_.memory_ == CallPlan::Memory::host;
  if (readable && plan_.lengths_ == Lengths::used) check_used_lengths();
  if (readable && plan_.lengths_ == Lengths::packed)
    for (const auto& [number, total] :
         {std::pair(plan_.cu_seqlens_q_, call_.sizes.rows), {plan_.cu_seqlens_k_, call_.sizes.positions}})
      check_bounds(plan_.tensors_[static_cast<std::size_t>(number)], ref(static_cast<std::size_t>(number)), total);
  check_overlap();
}

void CallCheck::find_tensors() {
  call_.tensors.reserve(plan_.tensors_.size() + 8);  // 8: room for the parts of a split stream
  for (const TensorPlan& t : plan_.tensors_) {
    const auto at = place_of(arguments_.tensors, t.name, call_.tensors.size());
    if (at < 0)
      refuse(fmt::format("{} tensor '{}' {} is missing", t.is_output ? "output" : "input", t.name, dims_text(t.dims)));
    call_.tensors.push_back(&arguments_.tensors[static_cast<std::size_t>(at)].tensor);
  }
  // Every tensor of the plan was found, so with equal counts there is none beside them.
  if (arguments_.tensors.size() == plan_.tensors_.size()) return;
  const std::string& name = *surplus(arguments_.tensors, plan_.tensors_);
  if (plan_.tensor(name) >= 0) refuse(fmt::format("tensor '{}' is given twice", name));
  refuse(fmt::format("there is no tensor '{}'", name), "known: " + names_of(plan_.tensors_));
}

void CallCheck::find_numbers() {
  call_.numbers.reserve(plan_.numbers_.size());
  for (const auto& s : plan_.numbers_) {
    const auto at = place_of(arguments_.numbers, s.name, call_.numbers.size());
    if (at < 0) refuse(fmt::format("number '{}' is missing", s.name));
    const Arguments::Number& n = arguments_.numbers[static_cast<std::size_t>(at)];
    if (std::isnan(n.real)) refuse(fmt::format("number '{}' is NaN", s.name));
    if (s.kind == Kind::integer && static_cast<double>(n.integer) != n.real)
      refuse(fmt::format("number '{}' is an integer, and was given as the real number {}", s.name, n.real));
    call_.numbers.push_back(&n);
  }
  if (arguments_.numbers.size() == plan_.numbers_.size()) return;
  const std::string& name = *surplus(arguments_.numbers, plan_.numbers_);
  if (plan_.number(name) >= 0) refuse(fmt::format("number '{}' is given twice", name));
  refuse(fmt::format("there is no number '{}'", name), "known: " + names_of(plan_.numbers_));
}

void CallCheck::check_form(const TensorPlan& t, const TensorRef& r) const {
  if (r.rank != static_cast<int>(t.dims.size()))
    refuse(fmt::format("'{}' has shape {}, but its dims are {}", t.name, shape_text(r), dims_text(t.dims)));
  if (r.dtype != t.dtype)
    refuse(fmt::format("'{}' is {}, but the kernel was made for {}", t.name, to_string(r.dtype), to_string(t.dtype)));
  bool empty = false;
  for (std::size_t i = 0; i < t.dims.size(); ++i) {
    if (r.shape[i] < 0)
      refuse(fmt::format("'{}' has the negative extent {} along {}", t.name, r.shape[i], t.dims[i].name));
    if (r.shape[i] > INT32_MAX)
      refuse(
          fmt::format("'{}' has {} indices along {}; at most 2^31-1 are possible", t.name, r.shape[i], t.dims[i].name));
    empty |= r.shape[i] == 0;
  }
  if (!empty && r.data == nullptr) refuse(fmt::format("'{}' has no data", t.name));
  if (reinterpret_cast<std::uintptr_t>(r.data) % size_of(r.dtype) != 0)
    refuse(fmt::format("the address of '{}' is no multiple of its element size, {} bytes", t.name, size_of(r.dtype)));
  const std::size_t last = t.dims.size() - 1;
  if (t.unit_last && r.shape[last] > 1 && r.strides[last] != 1)
    refuse(fmt::format("the last dim of '{}' has stride {}, but must have stride 1", t.name, r.strides[last]),
           "pass a copy whose rows are contiguous");
}

void CallCheck::check_extents(const TensorPlan& t, const TensorRef& r) {
  for (std::size_t i = 0; i < t.axes.size(); ++i) {
    const auto& axis = t.axes[i];
    const std::int64_t n = r.shape[i];
    if (axis.shared < 0) {
      if (n == axis.fixed) continue;
      if (axis.packed_batch)
        refuse(
            fmt::format("'{}' has batch extent {}, but packed sequences lie in a tensor of batch extent 1", t.name, n));
      refuse(fmt::format("'{}' has {} {}, but the kernel was made for {}", t.name, t.dims[i].name, n, axis.fixed));
    }
    if (n < axis.extra) refuse(fmt::format("'{}' is empty; it needs one bound more than there are sequences", t.name));
    const std::int64_t counted = n - axis.extra;
    if (t.may_broadcast && counted == 1) continue;
    Extent& known = extents_[static_cast<std::size_t>(axis.shared)];
    if (!known.from) known = {counted, &t};
    if (known.value != counted)
      refuse(fmt::format("'{}' has {} along {}, but '{}' has {}", t.name, counted,
                         plan_.dims_[static_cast<std::size_t>(axis.shared)], known.from->name, known.value));
  }
}

std::int64_t CallCheck::extent(int shared, std::int64_t otherwise) const {
  if (shared < 0 || !extents_[static_cast<std::size_t>(shared)].from) return otherwise;
  return extents_[static_cast<std::size_t>(shared)].value;
}

void CallCheck::find_sizes() {
  CallSizes& sizes = call_.sizes;
  sizes.sequences = extent(plan_.batch_, 1);
  sizes.kv_heads = extent(plan_.kv_head_, 0);
  sizes.heads = extent(plan_.head_, std::max<std::int64_t>(sizes.kv_heads, 1));
  if (sizes.kv_heads == 0) sizes.kv_heads = sizes.heads / std::max<std::int64_t>(plan_.group_, 1);
  sizes.rows = extent(plan_.rows_, 0);
  sizes.positions = sizes.keys = extent(plan_.positions_, 0);
  if (sizes.kv_heads * plan_.group_ != sizes.heads)
    refuse(fmt::format("{} query heads on {} kv heads, but the kernel was made for {} query heads a kv head",
                       sizes.heads, sizes.kv_heads, plan_.group_));
}

void CallCheck::check_used_lengths() const {
  const TensorRef& lens = ref(static_cast<std::size_t>(plan_.kv_lens_));
  for (std::int64_t i = 0; i < call_.sizes.sequences; ++i) {
    const std::int64_t n = int_at(lens, i);
    if (n < 0 || n > call_.sizes.positions)
      refuse(fmt::format("kv_lens[{}] is {}, outside [0, {}]", i, n, call_.sizes.positions));
  }
}

void CallCheck::check_bounds(const TensorPlan& t, const TensorRef& bounds, std::int64_t total) const {
  std::int64_t before = int_at(bounds, 0);
  if (before != 0) refuse(fmt::format("{}[0] is {}, but must be 0", t.name, before));
  for (std::int64_t i = 1; i <= call_.sizes.sequences; ++i) {
    const std::int64_t bound = int_at(bounds, i);
    if (bound < before) refuse(fmt::format("{} falls from {} to {} at index {}", t.name, before, bound, i));
    if (bound > total) refuse(fmt::format("{}[{}] is {}, but there are {} tokens", t.name, i, bound, total));
    before = bound;
  }
  if (before != total) refuse(fmt::format("{} ends at {}, but there are {} tokens", t.name, before, total));
}

CallCheck::Range CallCheck::range_of(const TensorRef& t) {
  std::int64_t low = 0, high = 0;
  for (int i = 0; i < t.rank; ++i) {
    const auto n = t.shape[static_cast<std::size_t>(i)];
    if (n == 0) return {};
    const std::int64_t span = (n - 1) * t.strides[static_cast<std::size_t>(i)];
    (span < 0 ? low : high) += span;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(t.data);
  const auto bytes = static_cast<std::int64_t>(size_of(t.dtype));
  return {base + static_cast<std::uintptr_t>(low * bytes), base + static_cast<std::uintptr_t>((high + 1) * bytes)};
}

void CallCheck::check_overlap() const {
  for (std::size_t i = 0; i < plan_.tensors_.size(); ++i) {
    const TensorPlan& out = plan_.tensors_[i];
    if (!out.is_output) continue;
    check_own_overlap(out, ref(i));
    const Range mine = range_of(ref(i));
    for (std::size_t j = 0; j < plan_.tensors_.size(); ++j) {
      if (j == i) continue;
      const Range other = range_of(ref(j));
      if (mine.from < other.to && other.from < mine.to)
        refuse(fmt::format("output '{}' overlaps '{}'", out.name, plan_.tensors_[j].name),
               "an output needs memory of its own");
    }
  }
}

// Sorted by stride, each dim must step over all that the smaller ones cover.
void CallCheck::check_own_overlap(const TensorPlan& t, const TensorRef& r) const {
  std::array<std::pair<std::int64_t, std::int64_t>, TensorRef::max_rank> dims{};
  for (std::size_t i = 0; i < t.dims.size(); ++i) {
    if (r.shape[i] == 0) return;
    if (r.shape[i] > 1) dims[i] = {std::abs(r.strides[i]), r.shape[i]};
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t covered = 1;
  for (const auto& [stride, n] : dims) {
    if (n <= 1) continue;
    if (stride < covered)
      refuse(fmt::format("output '{}' overlaps itself: shape {} with such strides puts elements on one another", t.name,
                         shape_text(r)));
    covered = stride * (n - 1) + covered;
  }
}

}  // namespace v1
}  // namespace attile
