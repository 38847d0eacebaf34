#include "tests/numeric/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <thread>

#include "runtime/parallel_for.h"
#include "runtime/parts.h"
#include "schedules/footprint.h"
#include "schedules/operands.h"
#include "tests/numeric/test_device.h"

namespace attile::test {
namespace {

std::int64_t count_of(const TensorRef& t) {
  std::int64_t n = 1;
  for (int i = 0; i < t.rank; ++i) n *= t.shape[static_cast<std::size_t>(i)];
  return n;
}

std::byte* address(const TensorRef& t, std::int64_t i) {
  std::int64_t offset = 0;
  for (auto d = static_cast<std::size_t>(t.rank); d-- > 0; i /= t.shape[d]) offset += i % t.shape[d] * t.strides[d];
  return static_cast<std::byte*>(t.data) + offset * static_cast<std::int64_t>(size_of(t.dtype));
}

double unit_of(DType dtype) {
  return dtype == DType::bfloat16 ? 1e-2 : dtype == DType::float16 ? 2e-3 : 1e-5;
}

}  // namespace

AttentionOptions with(const std::function<void(AttentionOptions&)>& set) {
  AttentionOptions options;
  set(options);
  return options;
}

Call::Call(const AttentionOptions& options, const Sizes& sizes, DType dtype) : Call(attention(options), sizes, dtype) {}

Call::Call(Algorithm algorithm, const Sizes& sizes, DType dtype)
    : algorithm_(std::move(algorithm)), sizes_(sizes), dtype_(dtype) {
  if (sizes_.kv_heads == 0) sizes_.kv_heads = sizes_.heads;
  if (sizes_.value_dim == 0) sizes_.value_dim = sizes_.head_dim;
  numbers_["scale"] = 1 / std::sqrt(static_cast<double>(sizes_.head_dim));
  put_operands(dtype);
  put_outputs(dtype);
}

void Call::put_operands(DType dtype) {
  const Sizes& s = sizes_;
  std::uint64_t state = 12345;
  const auto random = [&](std::vector<std::int64_t> shape) {
    std::int64_t n = 1;
    for (const auto extent : shape) n *= extent;
    Values values(static_cast<std::size_t>(n));
    for (double& x : values) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      x = static_cast<double>(static_cast<std::int64_t>((state >> 33) % 33) - 16) / 8;
    }
    return values;
  };
  for (const auto& [name, shape] : {std::pair("q", std::vector{s.batches, s.heads, s.rows, s.head_dim}),
                                    std::pair("k", std::vector{s.batches, s.kv_heads, s.keys, s.head_dim}),
                                    std::pair("v", std::vector{s.batches, s.kv_heads, s.keys, s.value_dim})})
    put(name, dtype, shape, random(shape));
}

void Call::put_outputs(DType dtype) {
  for (const OutputDecl& o : algorithm_.outputs) {
    std::vector<std::int64_t> shape;
    for (const Dim& d : o.value->dims)
      shape.push_back(d == batch ? sizes_.batches : d == head ? sizes_.heads : d == query ? sizes_.rows
                      : d == key ? sizes_.keys : d == slot ? selection_count(algorithm_) : sizes_.value_dim);
    put(o.name, o.kind == Kind::integer ? DType::int32 : o.name == "o" ? dtype : DType::float32, shape, {0});
  }
}

Call& Call::put(const std::string& name, DType dtype, std::vector<std::int64_t> shape, const Values& values) {
  Held& held = tensors_[name];
  held.memory = std::make_shared<GuardedTensor>(dtype, shape, row_major(shape), Edge::end);
  held.ref = held.memory->ref();
  fill(name, [&](std::int64_t i) { return values.size() == 1 ? values[0] : values.at(static_cast<std::size_t>(i)); });
  return *this;
}

void Call::lay(const std::string& name, std::vector<std::int64_t> strides, int shift) {
  const Values kept = values(name);
  Held& held = tensors_[name];
  const TensorRef& old = held.ref;
  std::vector<std::int64_t> shape(old.shape.begin(), old.shape.begin() + old.rank);
  if (strides.empty()) strides = row_major(shape);
  // One more dim of two indices, `shift` apart, makes room for the shift.
  std::vector<std::int64_t> room_shape = shape, room_strides = strides;
  room_shape.push_back(2), room_strides.push_back(shift);
  held.memory = std::make_shared<GuardedTensor>(old.dtype, room_shape, room_strides, Edge::begin);
  held.memory->fill(std::nan(""));
  std::byte* const start = held.memory->data() + static_cast<std::size_t>(shift) * size_of(old.dtype);
  held.ref = strided(start, old.dtype, shape, strides);
  fill(name, [&](std::int64_t i) { return kept[static_cast<std::size_t>(i)]; });
}

Call& Call::number(const std::string& name, double value) {
  numbers_[name] = value;
  return *this;
}

void Call::set(const std::string& name, std::int64_t i, double value) {
  const TensorRef& t = tensors_.at(name).ref;
  write_element(t.dtype, address(t, i), value);
}

void Call::fill(const std::string& name, const std::function<double(std::int64_t)>& value) {
  const TensorRef& t = tensors_.at(name).ref;
  for (std::int64_t i = 0, n = count_of(t); i < n; ++i) write_element(t.dtype, address(t, i), value(i));
}

double Call::get(const std::string& name, std::int64_t i) const {
  const TensorRef& t = tensors_.at(name).ref;
  return read_element(t.dtype, address(t, i));
}

Values Call::values(const std::string& name) const {
  Values all(static_cast<std::size_t>(count_of(tensors_.at(name).ref)));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = get(name, static_cast<std::int64_t>(i));
  return all;
}

Arguments Call::arguments() const {
  Arguments out;
  for (const auto& [name, held] : tensors_) out.tensor(name, held.ref);
  for (const ScalarDecl& s : algorithm_.scalars) {
    const double value = numbers_.at(s.name);
    s.kind == Kind::real ? out.real(s.name, value) : out.integer(s.name, static_cast<std::int64_t>(value));
  }
  return out;
}

EvaluateInputs Call::evaluate_inputs() const {
  EvaluateInputs in;
  in.batch = algorithm_.lengths == Lengths::packed ? tensors_.at("cu_seqlens_q").ref.shape[0] - 1 : sizes_.batches;
  in.heads = sizes_.heads;
  for (const InputDecl& d : algorithm_.inputs) {
    const TensorRef& t = tensors_.at(d.name).ref;
    HostTensor host{t.dtype, t.data, {t.shape.begin(), t.shape.begin() + t.rank}, {t.strides.begin(), t.strides.begin() + t.rank}};
    for (std::size_t i = 0; i < host.shape.size(); ++i)
      if (host.shape[i] == 1) host.strides[i] = 0;
    in.tensors[d.name] = host;
  }
  in.scalars = numbers_;
  return in;
}

void Call::run(const std::optional<Schedule>& schedule) {
  for (const OutputDecl& o : algorithm_.outputs)
    fill(o.name, [&](std::int64_t) { return o.kind == Kind::integer ? -77 : std::nan(""); });
  const Arguments all = arguments();
  run_there(Kernel::get(algorithm_, problem_of(algorithm_, all), schedule, test_device()), all);
}

Values Call::output(const std::string& name, const std::optional<Schedule>& schedule) {
  run(schedule);
  return values(name);
}

std::string Call::mismatch(const std::map<std::string, EvaluatedOutput>& expected, double factor) const {
  double largest = tensors_.contains("v") ? 0 : 1;
  if (largest == 0)
    for (const double x : values("v"))
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  for (const auto& [name, want] : expected) {
    double worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < want.values.size(); ++i) {
      const double g = get(name, static_cast<std::int64_t>(i)), w = want.values[i];
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      const double allowed = factor * (name == "o" ? unit_of(dtype_) * largest : 1e-5 * (1 + std::fabs(w)));
      const double excess = std::isfinite(g - w) ? std::fabs(g - w) / allowed : std::numeric_limits<double>::infinity();
      if (excess > worst) worst = excess, at = i;
    }
    if (worst > 1)
      return fmt::format("{}[{}] of {} is {} instead of {}", name, at, want.values.size(), get(name, static_cast<std::int64_t>(at)),
                         want.values[at]);
  }
  return {};
}

// Of a GPU: warps that share rows or positions, one and several stages, parts, the form that takes everything.
static std::vector<Schedule> gpu_wishes() {
  Schedule small, wide, shared, parts, lanes;
  small.lanes = Lanes::fragments, small.tile_rows = 64, small.tile_keys = 16, small.stages = 1, small.fold_scale = false;
  wide = small, wide.tile_rows = 128, wide.tile_keys = 64, wide.stages = 3, wide.rows_in_registers = true, wide.fold_scale = true;
  shared = wide, shared.partition = Partition::positions, shared.tile_rows = 16, shared.stages = 2, shared.pack_group = true;
  parts = shared, parts.splits = 3;
  lanes.lanes = Lanes::positions, lanes.tile_rows = 4, lanes.tile_keys = 32;
  Schedule rows_in_parts = small;
  rows_in_parts.splits = 2, rows_in_parts.warps = 8, rows_in_parts.tile_rows = 128;
  Schedule columns = wide;
  columns.column_warps = 2, columns.tile_rows = 32, columns.tile_keys = 32, columns.stages = 2, columns.rows_in_registers = false;
  return {small, wide, shared, parts, lanes, rows_in_parts, columns};
}

std::vector<Schedule> Call::tilings() const {
  const Target& t = test_target();
  const int lanes = t.vector_bytes / 4;
  Schedule small, ahead, outer, pair, one_row, rows_in_parts, parts, dots, dots_ahead, dot_row;
  small.panel_vectors = 1, small.block = 4, small.tile_rows = lanes, small.tile_keys = 16;
  pair.panel_vectors = 2, pair.block = 4, pair.tile_rows = 4 * lanes, pair.tile_keys = 32, pair.pack_group = true;
  one_row.lanes = Lanes::positions, one_row.tile_rows = 1, one_row.tile_keys = 16, one_row.block = 4;
  parts = one_row, parts.tile_rows = 5, parts.tile_keys = 64, parts.splits = 3, parts.pack_group = true;
  rows_in_parts = small, rows_in_parts.tile_keys = 32, rows_in_parts.splits = 2;
  ahead = small, ahead.tile_rows = 2 * lanes, ahead.pack_ahead = true;
  outer = pair, outer.order = Order::keys_outer;
  dots = small, dots.tile_keys = 32, dots.bf16_dot = true;
  dots_ahead = dots, dots_ahead.tile_keys = 16, dots_ahead.pack_ahead = true;
  dot_row = one_row, dot_row.tile_rows = 4, dot_row.tile_keys = 32, dot_row.bf16_dot = true;
  const Problem p = problem();
  std::vector<Schedule> out{default_schedule(algorithm_, p, t)};
  std::set<std::string> seen{to_string(out[0])};
  const std::vector<Schedule> wishes = t.family == TargetFamily::cuda ? gpu_wishes() : std::vector{small, ahead, outer, pair, one_row, parts, rows_in_parts, dots, dots_ahead, dot_row};
  for (const Schedule& wish : wishes) {
    const Schedule s = made_legal(algorithm_, p, wish, t);
    if (seen.insert(to_string(s)).second) out.push_back(s);
  }
  return out;
}

std::string run_all(Call& call, double factor) {
  const auto expected = evaluate(call.algorithm(), call.evaluate_inputs());
  for (const Schedule& s : call.tilings()) {
    call.run(s);
    if (const std::string found = call.mismatch(expected, factor); !found.empty()) return found + " with " + to_string(s);
  }
  return {};
}

bool same_bits(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y); });
}

bool has_nan(const Values& values) {
  return std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); });
}

void poison_reused_memory() {
  constexpr std::size_t bytes = 2 << 20;
  const int workers = worker_count();
  std::atomic<int> begun{0};
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  parallel_for(workers, [&](std::int64_t, int) {
    std::memset(worker_scratch(bytes), 0xFF, bytes);
    for (++begun; begun < workers && std::chrono::steady_clock::now() < until;) std::this_thread::yield();
  });
  Workspace workspace(bytes);
  std::memset(workspace.data(), 0xFF, bytes);
}

}  // namespace attile::test
