#include "runtime/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "dsl/error.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

[[noreturn]] void refuse(const Algorithm& a, std::string what, std::string remedy = {}) {
  throw Error(ErrorKind::argument, a.name, std::move(what), std::move(remedy));
}

const TensorRef* find(const Arguments& arguments, std::string_view name) {
  for (const auto& t : arguments.tensors)
    if (t.name == name) return &t.tensor;
  return nullptr;
}

bool has(const Dims& dims, const Dim& d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }
bool is_packed(const Algorithm& a, const Dims& dims) { return a.lengths == Lengths::packed && (has(dims, query) || has(dims, key)); }

std::string shape_text(const TensorRef& t) {
  std::string text = "[";
  for (int i = 0; i < t.rank; ++i) text += fmt::format("{}{}", i ? ", " : "", t.shape[static_cast<std::size_t>(i)]);
  return text + "]";
}
std::string dims_text(const Dims& dims) {
  std::string text = "[";
  for (const Dim& d : dims) text += (text.size() > 1 ? ", " : "") + d.name;
  return text + "]";
}

struct Bound {
  const std::string& name;
  const Dims& dims;
  const TensorRef& tensor;
  bool is_output, is_operand;
};

class Checker {
 public:
  Checker(const Algorithm& a, const Problem& p, const Arguments& arguments) : a_(a), p_(p), arguments_(arguments) {}

  CallSizes run() {
    collect();
    for (const Bound& b : bound_) check_form(b);
    for (const bool operands : {true, false})   // operands and outputs decide the extents, the rest may broadcast
      for (const Bound& b : bound_)
        if ((b.is_operand || b.is_output) == operands) check_extents(b);
    check_numbers();
    CallSizes sizes = call_sizes();
    check_lengths(sizes);
    check_overlap();
    return sizes;
  }

 private:
  void collect() {
    const std::vector<Operand> operands = product_operands(a_);
    const auto add = [&](const std::string& name, const Dims& dims, bool is_output) {
      const TensorRef* t = find(arguments_, name);
      if (!t) refuse(a_, fmt::format("{} tensor '{}' {} is missing", is_output ? "output" : "input", name, dims_text(dims)));
      const bool operand = std::any_of(operands.begin(), operands.end(), [&](const Operand& o) { return o.tensor == name; });
      bound_.push_back({name, dims, *t, is_output, operand});
    };
    for (const InputDecl& input : a_.inputs) add(input.name, input.dims, false);
    for (const OutputDecl& output : a_.outputs) add(output.name, output.value->dims, true);
    for (const auto& t : arguments_.tensors)
      if (std::none_of(bound_.begin(), bound_.end(), [&](const Bound& b) { return b.name == t.name; }))
        refuse(a_, fmt::format("there is no tensor '{}'", t.name), "known: " + known_names());
  }
  std::string known_names() const {
    std::string names;
    for (const Bound& b : bound_) names += (names.empty() ? "" : ", ") + b.name;
    return names;
  }

  void check_form(const Bound& b) {
    if (b.tensor.rank != static_cast<int>(b.dims.size()))
      refuse(a_, fmt::format("'{}' has shape {}, but its dims are {}", b.name, shape_text(b.tensor), dims_text(b.dims)));
    const DType wanted = p_.dtypes.at(b.name);
    if (b.tensor.dtype != wanted)
      refuse(a_, fmt::format("'{}' is {}, but the kernel was made for {}", b.name, to_string(b.tensor.dtype), to_string(wanted)));
    bool empty = false;
    for (int i = 0; i < b.tensor.rank; ++i) empty |= b.tensor.shape[static_cast<std::size_t>(i)] == 0;
    if (!empty && b.tensor.data == nullptr) refuse(a_, fmt::format("'{}' has no data", b.name));
    if (reinterpret_cast<std::uintptr_t>(b.tensor.data) % size_of(b.tensor.dtype) != 0)
      refuse(a_, fmt::format("the address of '{}' is no multiple of its element size, {} bytes", b.name, size_of(b.tensor.dtype)));
    const std::size_t last = b.dims.size() - 1;
    const bool feature_last = !b.dims.empty() && p_.extents.contains(b.dims[last].name) && b.dims[last] != slot;
    if (feature_last && b.tensor.shape[last] > 1 && b.tensor.strides[last] != 1)
      refuse(a_, fmt::format("the last dim of '{}' has stride {}, but must have stride 1", b.name, b.tensor.strides[last]),
             "pass a copy whose rows are contiguous");
  }

  void check_extents(const Bound& b) {
    const bool packed = is_packed(a_, b.dims);
    for (std::size_t i = 0; i < b.dims.size(); ++i) {
      const Dim& d = b.dims[i];
      const std::int64_t extent = b.tensor.shape[i];
      if (extent > INT32_MAX) refuse(a_, fmt::format("'{}' has {} indices along {}; at most 2^31-1 are possible", b.name, extent, d.name));
      if (packed && d == batch) {
        if (extent != 1) refuse(a_, fmt::format("'{}' has batch extent {}, but packed sequences lie in a tensor of batch extent 1", b.name, extent));
        continue;
      }
      if (const auto it = p_.extents.find(d.name); it != p_.extents.end()) {
        if (extent != it->second)
          refuse(a_, fmt::format("'{}' has {} {}, but the kernel was made for {}", b.name, d.name, extent, it->second));
        continue;
      }
      const std::string name = b.name.starts_with("cu_seqlens") ? "batch" : d.name;
      const std::int64_t counted = b.name.starts_with("cu_seqlens") ? extent - 1 : extent;
      const auto [it, fresh] = extents_.try_emplace(name, counted, &b);
      if (fresh || it->second.first == counted) continue;
      const bool may_broadcast = !b.is_operand && !b.is_output && counted == 1;
      if (!may_broadcast)
        refuse(a_, fmt::format("'{}' has {} along {}, but '{}' has {}", b.name, counted, name, it->second.second->name, it->second.first));
    }
  }

  void check_numbers() {
    for (const ScalarDecl& s : a_.scalars) {
      const auto it = std::find_if(arguments_.numbers.begin(), arguments_.numbers.end(), [&](const auto& n) { return n.name == s.name; });
      if (it == arguments_.numbers.end()) refuse(a_, fmt::format("number '{}' is missing", s.name));
      if (std::isnan(it->real)) refuse(a_, fmt::format("number '{}' is NaN", s.name));
    }
    for (const auto& n : arguments_.numbers)
      if (std::none_of(a_.scalars.begin(), a_.scalars.end(), [&](const ScalarDecl& s) { return s.name == n.name; }))
        refuse(a_, fmt::format("there is no number '{}'", n.name));
  }

  std::int64_t extent(const Dim& d, std::int64_t otherwise) const {
    const auto it = extents_.find(d.name);
    return it == extents_.end() ? otherwise : it->second.first;
  }
  CallSizes call_sizes() const {
    CallSizes sizes;
    sizes.sequences = extent(batch, 1);
    sizes.kv_heads = extent(kv_head, 0);
    sizes.heads = extent(head, std::max<std::int64_t>(sizes.kv_heads, 1));
    if (sizes.kv_heads == 0) sizes.kv_heads = sizes.heads / std::max<std::int64_t>(p_.group, 1);
    sizes.rows = extent(a_.parallel, 0);
    sizes.positions = extent(a_.streamed, 0);
    if (sizes.kv_heads * p_.group != sizes.heads)
      refuse(a_, fmt::format("{} query heads on {} kv heads, but the kernel was made for {} query heads a kv head", sizes.heads, sizes.kv_heads, p_.group));
    return sizes;
  }

  void check_lengths(const CallSizes& sizes) {
    if (a_.lengths == Lengths::used) {
      const TensorRef& lens = *find(arguments_, "kv_lens");
      for (std::int64_t i = 0; i < sizes.sequences; ++i) {
        const std::int64_t n = int_at(lens, i);
        if (n < 0 || n > sizes.positions) refuse(a_, fmt::format("kv_lens[{}] is {}, outside [0, {}]", i, n, sizes.positions));
      }
    }
    if (a_.lengths == Lengths::packed) {
      check_bounds("cu_seqlens_q", sizes.rows, sizes.sequences);
      check_bounds("cu_seqlens_k", sizes.positions, sizes.sequences);
    }
  }
  // Broadcast tensors of lengths have stride 0 by extent 1.
  static std::int64_t int_at(const TensorRef& t, std::int64_t i) {
    return static_cast<const std::int32_t*>(t.data)[(t.shape[0] == 1 ? 0 : i) * t.strides[0]];
  }
  void check_bounds(const char* name, std::int64_t total, std::int64_t sequences) {
    const TensorRef& bounds = *find(arguments_, name);
    if (bounds.shape[0] < 1) refuse(a_, fmt::format("'{}' is empty; it needs one bound more than there are sequences", name));
    if (int_at(bounds, 0) != 0) refuse(a_, fmt::format("{}[0] is {}, but must be 0", name, int_at(bounds, 0)));
    for (std::int64_t i = 0; i < sequences; ++i) {
      const std::int64_t from = int_at(bounds, i), to = static_cast<const std::int32_t*>(bounds.data)[(i + 1) * bounds.strides[0]];
      if (to < from) refuse(a_, fmt::format("{} falls from {} to {} at index {}", name, from, to, i + 1));
      if (to > total) refuse(a_, fmt::format("{}[{}] is {}, but there are {} tokens", name, i + 1, to, total));
    }
    const std::int64_t last = static_cast<const std::int32_t*>(bounds.data)[sequences * bounds.strides[0]];
    if (last != total) refuse(a_, fmt::format("{} ends at {}, but there are {} tokens", name, last, total));
  }

  struct Range { std::uintptr_t from, to; };
  static Range range_of(const TensorRef& t) {
    std::int64_t low = 0, high = 0;
    for (int i = 0; i < t.rank; ++i) {
      const auto n = t.shape[static_cast<std::size_t>(i)];
      if (n == 0) return {0, 0};
      const std::int64_t span = (n - 1) * t.strides[static_cast<std::size_t>(i)];
      (span < 0 ? low : high) += span;
    }
    const auto base = reinterpret_cast<std::uintptr_t>(t.data);
    const auto bytes = static_cast<std::int64_t>(size_of(t.dtype));
    return {base + static_cast<std::uintptr_t>(low * bytes), base + static_cast<std::uintptr_t>((high + 1) * bytes)};
  }
  void check_overlap() {
    for (const Bound& out : bound_) {
      if (!out.is_output) continue;
      check_own_overlap(out);
      const Range r = range_of(out.tensor);
      for (const Bound& other : bound_) {
        if (&other == &out) continue;
        const Range o = range_of(other.tensor);
        if (r.from < o.to && o.from < r.to) refuse(a_, fmt::format("output '{}' overlaps '{}'", out.name, other.name), "an output needs memory of its own");
      }
    }
  }
  // Sorted by stride, each dim must step over all that the smaller ones cover.
  void check_own_overlap(const Bound& out) {
    std::vector<std::pair<std::int64_t, std::int64_t>> dims;
    for (int i = 0; i < out.tensor.rank; ++i) {
      const auto n = out.tensor.shape[static_cast<std::size_t>(i)];
      if (n == 0) return;
      if (n > 1) dims.emplace_back(std::abs(out.tensor.strides[static_cast<std::size_t>(i)]), n);
    }
    std::sort(dims.begin(), dims.end());
    std::int64_t covered = 1;
    for (const auto& [stride, n] : dims) {
      if (stride < covered) refuse(a_, fmt::format("output '{}' overlaps itself: shape {} with such strides puts elements on one another", out.name, shape_text(out.tensor)));
      covered = stride * (n - 1) + covered;
    }
  }

  const Algorithm& a_;
  const Problem& p_;
  const Arguments& arguments_;
  std::vector<Bound> bound_;
  std::map<std::string, std::pair<std::int64_t, const Bound*>> extents_;
};

}  // namespace

CallSizes check_call(const Algorithm& a, const Problem& p, const Arguments& arguments) { return Checker(a, p, arguments).run(); }

std::int64_t row_tiles(const EmittedKernel& k, const Algorithm& a, const Problem& p, const CallSizes& sizes) {
  const std::int64_t rows = sizes.rows * (k.group_in_rows ? p.group : 1);
  if (a.lengths == Lengths::packed) return rows / k.tile_rows + sizes.sequences;
  return (rows + k.tile_rows - 1) / k.tile_rows;
}

std::int64_t task_count(const EmittedKernel& k, const Algorithm& a, const Problem& p, const CallSizes& sizes) {
  const std::int64_t heads = k.group_in_rows ? sizes.kv_heads : sizes.heads;
  const std::int64_t sequences = a.lengths == Lengths::packed ? (sizes.sequences > 0 ? 1 : 0) : sizes.sequences;
  return row_tiles(k, a, p, sizes) * heads * sequences * sizes.parts;
}

std::vector<std::uint64_t> argument_block(const EmittedKernel& k, const Algorithm& a, const Problem& p, const CallSizes& sizes,
                                          const Arguments& arguments) {
  std::vector<std::uint64_t> slots;
  slots.reserve(k.parameters.size());
  const auto size = [&](const std::string& name) -> std::int64_t {
    if (name == "sequences") return sizes.sequences;
    if (name == "heads") return sizes.heads;
    if (name == "kv_heads") return sizes.kv_heads;
    if (name == "rows") return sizes.rows;
    if (name == "positions") return sizes.positions;
    if (name == "parts") return sizes.parts;
    if (name == "row_tiles") return row_tiles(k, a, p, sizes);
    internal_check(false, "unknown size " + name);
    return 0;
  };
  for (const Parameter& parameter : k.parameters) {
    const auto dim = static_cast<std::size_t>(parameter.dim);
    const TensorRef* t = find(arguments, parameter.name);
    std::uint64_t value = 0;
    switch (parameter.kind) {
      case Parameter::Kind::data: value = reinterpret_cast<std::uint64_t>(t->data); break;
      case Parameter::Kind::stride: value = static_cast<std::uint64_t>(t->shape[dim] == 1 ? 0 : t->strides[dim]); break;
      case Parameter::Kind::extent: value = static_cast<std::uint64_t>(t->shape[dim]); break;
      case Parameter::Kind::size: value = static_cast<std::uint64_t>(size(parameter.name)); break;
      case Parameter::Kind::real:
      case Parameter::Kind::integer:
        for (const auto& n : arguments.numbers)
          if (n.name == parameter.name)
            value = parameter.kind == Parameter::Kind::real ? std::bit_cast<std::uint32_t>(static_cast<float>(n.real)) : static_cast<std::uint64_t>(n.integer);
        break;
    }
    slots.push_back(value);
  }
  return slots;
}

}  // namespace v1
}  // namespace attile
