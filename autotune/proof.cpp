#include "autotune/proof.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "dsl/error.h"
#include "runtime/host_tensor.h"
#include "runtime/parallel_for.h"
#include "schedules/operands.h"

namespace attile {
inline namespace v1 {
namespace {

// A selection may go either way where two scores are equal within rounding: so many of the rows compared may differ.
constexpr std::size_t undecided_share = 16;
constexpr std::int64_t least_rows = 48;
constexpr double steps_a_second = 2e8;
constexpr unsigned char no_number = 0xff;  // fills floats with NaN and integers with -1

const TensorRef* find(const Arguments& arguments, std::string_view name) {
  for (const auto& t : arguments.tensors)
    if (t.name == name) return &t.tensor;
  return nullptr;
}

std::int64_t elements(const TensorRef& t) {
  std::int64_t count = 1;
  for (int d = 0; d < t.rank; ++d) count *= t.shape[static_cast<std::size_t>(d)];
  return count;
}

EvaluateInputs inputs_of(const Algorithm& a, const Arguments& arguments) {
  EvaluateInputs in;
  for (const auto& [name, t] : arguments.tensors) {
    const bool is_output =
        std::any_of(a.outputs.begin(), a.outputs.end(), [&](const OutputDecl& o) { return o.name == name; });
    if (!is_output) in.tensors[name] = host_tensor(t);
  }
  for (const auto& number : arguments.numbers) in.scalars[number.name] = number.real;
  return in;
}

double coarseness(DType type) { return type == DType::bfloat16 ? 1e-2 : type == DType::float16 ? 2e-3 : 1e-5; }

double largest_in(const TensorRef& t) {
  double largest = 0;
  const std::int64_t count = elements(t);
  for (std::int64_t i = 0; i < count; i += 1 + count / 65536)
    if (const double v = element_at(t, i); std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  return largest;
}

bool agrees(double got, double want, double tolerance) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return true;
  return std::fabs(got - want) <= tolerance;  // false for NaN
}

}  // namespace

struct Reference::Shared {
  std::atomic<int> state;  // 0: nothing proven, 1: being written, 2: whole
};

Reference::Reference(const Algorithm& a, const Problem& p, const Arguments& arguments, double seconds)
    : arguments_(arguments) {
  packed_ = a.lengths == Lengths::packed;
  selects_ = selection_count(a) > 0;
  EvaluateInputs in = inputs_of(a, arguments);
  choose_rows(a, in, seconds);
  const std::vector<std::map<std::string, EvaluatedOutput>> parts = evaluated(a, in);
  for (const OutputDecl& decl : a.outputs)
    if (const TensorRef* t = find(arguments, decl.name)) {
      Output out{decl.name,
                 *t,
                 static_cast<std::size_t>(elements(*t)) * size_of(t->dtype),
                 {},
                 t->rank > 3 ? t->shape[3] : 1,
                 0,
                 nullptr};
      for (const auto& part : parts)
        if (const auto found = part.find(decl.name); found != part.end())
          out.values.insert(out.values.end(), found->second.values.begin(), found->second.values.end());
      out.tolerance = tolerance_of(a, p, out);
      outputs_.push_back(std::move(out));
    }
  share_memory();
}

// Rows evenly spread over the problem, the first and the last among them; as many as the time allows.
void Reference::choose_rows(const Algorithm& a, EvaluateInputs& in, double seconds) {
  const TensorRef* o = find(arguments_, a.outputs.front().name);
  if (o == nullptr || o->rank < 3)
    throw Error(ErrorKind::argument, a.name, "the outputs have no batch, head and row to compare");
  in.batch = o->shape[0], in.heads = o->shape[1];
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(in.batch), o->shape[2]);
  if (packed_) {
    const TensorRef& bounds = *find(arguments_, "cu_seqlens_q");
    in.batch = bounds.shape[0] - 1;
    lengths.clear();
    for (std::int64_t b = 0; b < in.batch; ++b)
      starts_.push_back(int_at(bounds, b)), lengths.push_back(int_at(bounds, b + 1) - starts_.back());
  }
  std::vector<std::int64_t> begin{0};
  for (const std::int64_t rows : lengths) begin.push_back(begin.back() + rows * in.heads);
  double row_steps = 1;
  for (const Operand& operand : product_operands(a))
    if (const TensorRef* t = find(arguments_, operand.tensor); t && operand.streamed)
      row_steps += static_cast<double>(t->shape[2] * t->shape[static_cast<std::size_t>(t->rank - 1)]);
  whole_seconds_ = static_cast<double>(begin.back()) * row_steps / steps_a_second;
  const auto wanted =
      std::min(begin.back(), std::max(least_rows, static_cast<std::int64_t>(seconds * steps_a_second / row_steps)));
  for (std::int64_t k = 0; k < wanted; ++k) {
    const double share = wanted == 1 ? 0 : static_cast<double>(k) / static_cast<double>(wanted - 1);
    const auto flat = static_cast<std::int64_t>(static_cast<double>(begin.back() - 1) * share);
    const auto b = std::upper_bound(begin.begin(), begin.end(), flat) - begin.begin() - 1;
    const std::int64_t rows = lengths[static_cast<std::size_t>(b)], within = flat - begin[static_cast<std::size_t>(b)];
    rows_.push_back({b, within / rows, within % rows});
  }
}

std::vector<std::map<std::string, EvaluatedOutput>> Reference::evaluated(const Algorithm& a,
                                                                         const EvaluateInputs& in) const {
  constexpr std::int64_t task_rows = 16;
  const auto all = static_cast<std::int64_t>(rows_.size());
  std::vector<std::map<std::string, EvaluatedOutput>> parts(
      static_cast<std::size_t>((all + task_rows - 1) / task_rows));
  parallel_for(static_cast<std::int64_t>(parts.size()), [&](std::int64_t task, int) {
    EvaluateInputs some = in;
    some.rows.assign(rows_.begin() + task * task_rows, rows_.begin() + std::min(all, (task + 1) * task_rows));
    parts[static_cast<std::size_t>(task)] = evaluate(a, some);
  });
  return parts;
}

double Reference::tolerance_of(const Algorithm& a, const Problem& p, const Output& out) const {
  const TensorRef* values = find(arguments_, "v");
  double coarsest = p.tf32 ? 2e-3 : 1e-5;
  for (const auto& [name, type] : p.dtypes)
    if (is_float(type) && (name == out.name || name == "q" || name == "k" || name == "v"))
      coarsest = std::max(coarsest, coarseness(type));
  // Normalised outputs are means of values; others grow with the keys, and then they are their own scale.
  const double scale =
      std::max(largest_magnitude(out.values), values && out.name == "o" && a.rule() ? largest_in(*values) : 0.0);
  return coarsest * std::max(scale, 1e-30);
}

void Reference::share_memory() {
  shared_bytes_ = 4096;
  for (const Output& out : outputs_) shared_bytes_ += (out.bytes + 63) / 64 * 64;
  void* memory = ::mmap(nullptr, shared_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorKind::resource, "tuning", fmt::format("no memory for {} bytes of outputs", shared_bytes_));
  shared_ = new (memory) Shared{};
  std::byte* at = static_cast<std::byte*>(memory) + 4096;
  for (Output& out : outputs_) out.proven = at, at += (out.bytes + 63) / 64 * 64;
}

Reference::~Reference() { ::munmap(shared_, shared_bytes_); }

std::size_t Reference::bytes() const {
  std::size_t sum = 0;
  for (const auto& t : arguments_.tensors)
    sum += static_cast<std::size_t>(elements(t.tensor)) * size_of(t.tensor.dtype);
  return sum;
}

Arguments Reference::fresh_outputs(std::vector<std::unique_ptr<std::byte[]>>& memory) const {
  Arguments out = arguments_;
  for (auto& t : out.tensors)
    for (const Output& o : outputs_) {
      if (o.name != t.name) continue;
      memory.push_back(std::make_unique<std::byte[]>(o.bytes + 64));
      std::memset(memory.back().get(), no_number, o.bytes + 64);
      const auto address = (reinterpret_cast<std::uintptr_t>(memory.back().get()) + 63) / 64 * 64;
      t.tensor = contiguous(reinterpret_cast<void*>(address), o.where.dtype,
                            std::span(o.where.shape.data(), static_cast<std::size_t>(o.where.rank)));
    }
  return out;
}

std::string Reference::check_rows(const Output& o, const TensorRef& actual) const {
  const std::int64_t heads = actual.shape[1], length = actual.shape[2];
  std::size_t wrong = 0;
  std::string first;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const EvaluateInputs::Row& row = rows_[r];
    const std::int64_t at = packed_ ? row.head * length + starts_[static_cast<std::size_t>(row.sequence)] + row.row
                                    : (row.sequence * heads + row.head) * length + row.row;
    bool good = true;
    for (std::int64_t c = 0; c < o.width && good; ++c) {
      const double got = element_at(actual, at * o.width + c);
      const double want = o.values[r * static_cast<std::size_t>(o.width) + static_cast<std::size_t>(c)];
      good = agrees(got, want, o.tolerance);
      if (!good && first.empty())
        first = fmt::format("{} at [{}][{}][{}][{}] is {:.6g}, the reference {:.6g} (allowed {:.2g})", o.name,
                            row.sequence, row.head, row.row, c, got, want, o.tolerance);
    }
    wrong += !good;
  }
  return wrong > (selects_ ? rows_.size() / undecided_share : 0) ? first : "";
}

// What nobody wrote is still NaN.
std::string Reference::check_written(const Output& o, const TensorRef& actual) const {
  if (!is_float(actual.dtype) || std::any_of(o.values.begin(), o.values.end(), [](double v) { return std::isnan(v); }))
    return "";
  const std::int64_t count = elements(actual);
  for (std::int64_t i = 0; i < count; ++i)
    if (std::isnan(element_at(actual, i)))
      return fmt::format("{} at element {} is NaN or was never written", o.name, i);
  return "";
}

// Two candidates that agree with the reference in some rows should agree with one another in all.
std::string Reference::check_all(const Output& o, const TensorRef& actual) const {
  const std::int64_t count = elements(actual);
  for (std::int64_t i = 0; i < count; ++i) {
    const double got = element_at(actual, i),
                 other = read_element(actual.dtype, o.proven + static_cast<std::size_t>(i) * size_of(actual.dtype));
    if (!agrees(got, other, 2 * o.tolerance))
      return fmt::format("{} at element {} is {:.6g}, and {:.6g} by a schedule that was proven before (allowed {:.2g})",
                         o.name, i, got, other, 2 * o.tolerance);
  }
  return "";
}

std::string Reference::check(const Arguments& outputs) const {
  for (const Output& o : outputs_) {
    const TensorRef& actual = *find(outputs, o.name);
    if (const std::string fault = check_rows(o, actual); !fault.empty()) return fault;
    if (const std::string fault = check_written(o, actual); !fault.empty()) return fault;
  }
  int state = 0;
  if (!selects_ && shared_->state.load() == 2)
    for (const Output& o : outputs_)
      if (const std::string fault = check_all(o, *find(outputs, o.name)); !fault.empty()) return fault;
  if (shared_->state.compare_exchange_strong(state, 1)) {
    for (const Output& o : outputs_) std::memcpy(o.proven, find(outputs, o.name)->data, o.bytes);
    shared_->state.store(2);
  }
  return "";
}

}  // namespace v1
}  // namespace attile
