#include "dsl/evaluate_bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "dsl/error.h"
#include "dsl/expr_ops.h"

namespace attile {
inline namespace v1 {

namespace {

bool broadcasts(const HostTensor& t, std::size_t axis) { return t.shape[axis] == 1 && t.strides[axis] == 0; }

}  // namespace

Binding::Binding(const Algorithm& a, const EvaluateInputs& in) : algorithm_(a), in_(in) {
  if (in.batch < 0 || in.heads < 0) refuse("batch and heads cannot be negative");
  bind_scalars();
  for (const InputDecl& decl : a.inputs) check_tensor(decl);
  bind_extents();
  bind_lengths();
  for (const InputDecl& decl : a.inputs) check_extents(decl);
}

void Binding::refuse(const std::string& what, const std::string& remedy) const {
  throw Error(ErrorKind::argument, fmt::format("evaluate(\"{}\")", algorithm_.name), what, remedy);
}

bool Binding::is_bounds(const std::string& name) const {
  if (algorithm_.lengths == Lengths::used) return name == "kv_lens";
  return algorithm_.lengths == Lengths::packed && (name == "cu_seqlens_q" || name == "cu_seqlens_k");
}

bool Binding::packs(const InputDecl& decl) const {
  return std::any_of(decl.dims.begin(), decl.dims.end(), [&](const Dim& d) { return is_packed(d); });
}

void Binding::bind_scalars() const {
  for (const ScalarDecl& decl : algorithm_.scalars) {
    auto at = in_.scalars.find(decl.name);
    if (at == in_.scalars.end()) refuse(fmt::format("the scalar \"{}\" is not given", decl.name));
    const bool exact = at->second == std::floor(at->second) && std::fabs(at->second) <= largest_integer;
    if (decl.kind == Kind::integer && !exact)
      refuse(fmt::format("the scalar \"{}\" is {}, but an integer up to 2^53 is needed", decl.name, at->second));
  }
}

void Binding::check_tensor(const InputDecl& decl) const {
  auto at = in_.tensors.find(decl.name);
  if (at == in_.tensors.end()) refuse(fmt::format("the tensor \"{}\" is not given", decl.name));
  const HostTensor& t = at->second;
  if (!holds(t.dtype, decl.kind))
    refuse(fmt::format("\"{}\" is {}, but {} is needed", decl.name, to_string(t.dtype), dtypes_of(decl.kind)));
  if (t.shape.size() != decl.dims.size() || t.strides.size() != decl.dims.size())
    refuse(fmt::format("\"{}\" has {} extents and {} strides, but {} dims", decl.name, t.shape.size(), t.strides.size(),
                       decl.dims.size()));
  const bool negative = std::any_of(t.shape.begin(), t.shape.end(), [](std::int64_t n) { return n < 0; });
  if (negative) refuse(fmt::format("\"{}\" has a negative extent", decl.name));
  const bool empty = std::any_of(t.shape.begin(), t.shape.end(), [](std::int64_t n) { return n == 0; });
  if (t.data == nullptr && !empty) refuse(fmt::format("\"{}\" has no data", decl.name));
}

void Binding::add_extent(const InputDecl& decl, std::size_t axis) {
  const HostTensor& t = tensor(decl.name);
  const std::string& name = decl.dims[axis].name;
  auto [at, fresh] = extents_.emplace(name, t.shape[axis]);
  if (!fresh && at->second != t.shape[axis])
    refuse(fmt::format("\"{}\" has extent {} along {}, but {} is needed", decl.name, t.shape[axis], name, at->second),
           "an extent of 1 with stride 0 is read everywhere");
}

// Two rounds, so that a broadcast extent of 1 counts only where nothing else tells.
void Binding::bind_extents() {
  extents_ = {{"batch", in_.batch}, {"head", in_.heads}};
  for (const StateDecl& s : algorithm_.states)
    if (s.kind == StateKind::selection) extents_.emplace(slot.name, s.count);
  for (const bool broadcast : {false, true})
    for (const InputDecl& decl : algorithm_.inputs) {
      if (is_bounds(decl.name)) continue;
      for (std::size_t axis = 0; axis < decl.dims.size(); ++axis) {
        const bool packed_batch = decl.dims[axis] == batch && packs(decl);
        if (packed_batch || broadcasts(tensor(decl.name), axis) != broadcast) continue;
        if (!broadcast || extents_.find(decl.dims[axis].name) == extents_.end()) add_extent(decl, axis);
      }
    }
  auto at = extents_.find(kv_head.name);
  kv_heads_ = at == extents_.end() ? in_.heads : at->second;
  if (kv_heads_ == 0 ? in_.heads != 0 : in_.heads % kv_heads_ != 0)
    refuse(fmt::format("{} heads cannot share {} kv heads", in_.heads, kv_heads_),
           "heads must be a multiple of kv heads");
}

void Binding::check_extents(const InputDecl& decl) const {
  const HostTensor& t = tensor(decl.name);
  if (is_bounds(decl.name) || !packs(decl)) return;
  for (std::size_t axis = 0; axis < decl.dims.size(); ++axis)
    if (decl.dims[axis] == batch && t.shape[axis] != 1)
      refuse(fmt::format("\"{}\" has batch extent {}, but packed sequences stand one after another", decl.name,
                         t.shape[axis]),
             "its batch extent is 1");
}

std::vector<std::int64_t> Binding::read_integers(const std::string& name, std::int64_t count) const {
  const HostTensor& t = tensor(name);
  if (t.shape[0] != count) refuse(fmt::format("\"{}\" has {} entries, but {} are needed", name, t.shape[0], count));
  std::vector<std::int64_t> values;
  const auto* bytes = static_cast<const char*>(t.data);
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<std::int64_t>(
        read_element(t.dtype, bytes + i * t.strides[0] * static_cast<std::int64_t>(size_of(t.dtype)))));
  return values;
}

std::vector<std::int64_t> Binding::read_bounds(const std::string& name, const Dim& d) const {
  std::vector<std::int64_t> bounds = read_integers(name, in_.batch + 1);
  if (bounds[0] != 0 || !std::is_sorted(bounds.begin(), bounds.end()))
    refuse(fmt::format("\"{}\" must start at 0 and never fall", name));
  auto at = extents_.find(d.name);
  if (at != extents_.end() && bounds.back() != at->second)
    refuse(fmt::format("\"{}\" ends at {}, but the tensors have {} positions along {}", name, bounds.back(), at->second,
                       d.name));
  return bounds;
}

void Binding::bind_lengths() {
  if (algorithm_.lengths == Lengths::packed) {
    query_bounds_ = read_bounds("cu_seqlens_q", query);
    key_bounds_ = read_bounds("cu_seqlens_k", key);
    extents_.emplace(query.name, query_bounds_.back());
    extents_.emplace(key.name, key_bounds_.back());
  }
  if (algorithm_.lengths == Lengths::used) {
    used_ = read_integers("kv_lens", in_.batch);
    auto at = extents_.find(key.name);
    for (std::size_t b = 0; b < used_.size(); ++b)
      if (used_[b] < 0 || (at != extents_.end() && used_[b] > at->second))
        refuse(fmt::format("kv_lens[{}] is {}, but there are {} keys", b, used_[b],
                           at == extents_.end() ? 0 : at->second));
  }
}

std::int64_t Binding::extent(const Dim& d) const {
  auto at = extents_.find(d.name);
  if (at == extents_.end()) refuse(fmt::format("no tensor has the dim {}, so its extent is unknown", d.name));
  return at->second;
}

std::int64_t Binding::length(const Dim& d, std::int64_t sequence) const {
  const auto s = static_cast<std::size_t>(sequence);
  if (is_packed(d)) {
    const auto& bounds = d == query ? query_bounds_ : key_bounds_;
    return bounds[s + 1] - bounds[s];
  }
  return d == key && algorithm_.lengths == Lengths::used ? used_[s] : extent(d);
}

std::int64_t Binding::start(const Dim& d, std::int64_t sequence) const {
  if (!is_packed(d)) return 0;
  return (d == query ? query_bounds_ : key_bounds_)[static_cast<std::size_t>(sequence)];
}

}  // namespace v1
}  // namespace attile
