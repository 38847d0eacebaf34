#include "tests/numeric/problem_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/numeric/test_device.h"

namespace attile::test {

std::string ProblemCase::describe() const {
  const AttentionOptions& o = options;
  std::string on;
  const auto flag = [&](bool set, const char* name) { if (set) on += fmt::format(" {}", name); };
  flag(o.causal, "causal"), flag(o.window, "window"), flag(o.softcap, "softcap"), flag(o.alibi, "alibi");
  flag(o.bias, "bias"), flag(o.mask, "mask"), flag(o.sink, "sink"), flag(o.prefix, "prefix"), flag(o.documents, "documents");
  flag(o.dropout, "dropout"), flag(o.lse, "lse"), flag(nan_in_hidden, "nan_in_hidden");
  if (o.top_k) on += fmt::format(" top_k={}{}", o.top_k, o.top_k_renormalise ? "r" : "");
  if (o.lengths == Lengths::used) on += " used";
  if (o.lengths == Lengths::packed) on += " packed";
  return fmt::format("seed {}: {}{} B{} H{}/{} Nq{} Nk{} D{}/{} {}->{} [{}]", seed, to_string(o.rule), on, batches, heads, kv_heads, rows,
                     positions, head_dim, value_dim, to_string(dtype), to_string(out_dtype), to_string(schedule));
}

// SplitMix64.
std::uint64_t CaseData::next() {
  std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
double CaseData::unit() { return static_cast<double>(next() >> 11) / 9007199254740992.0; }

CaseData::CaseData(const ProblemCase& c) : case_(c), algorithm_(attention(c.options)), state_(c.seed * 77 + 5) {
  add_inputs();
  add_outputs();
}

// Dims in a random memory order, rows padded at random; the feature dim innermost.
void CaseData::add(const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
  std::vector<std::size_t> order(shape.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (shape.size() > 2)
    for (std::size_t i = shape.size() - 1; i-- > 1;) std::swap(order[i], order[next() % (i + 1)]);
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<std::int64_t>(shape[order[i]], 1);
    if (i + 1 == order.size() && next() % 3 == 0) step += static_cast<std::int64_t>(next() % 5);
  }
  tensors_[name] = std::make_unique<GuardedTensor>(dtype, shape, strides, next() % 2 ? Edge::begin : Edge::end);
}

void CaseData::add_inputs() {
  const ProblemCase& c = case_;
  const bool packed = c.options.lengths == Lengths::packed;
  const std::int64_t outer = packed ? 1 : c.batches;
  std::int64_t total_q = c.rows, total_k = c.positions;
  if (packed) {
    total_q = total_k = 0;
    for (const auto n : c.lengths_q) total_q += n;
    for (const auto n : c.lengths_k) total_k += n;
  }
  const auto random_reals = [&](const std::string& name, double magnitude) {
    GuardedTensor& t = tensor(name);
    for (std::int64_t i = 0; i < t.count(); ++i) t.set(i, (unit() * 2 - 1) * magnitude);
  };
  add("q", c.dtype, {outer, c.heads, total_q, c.head_dim});
  add("k", c.dtype, {outer, c.kv_heads, total_k, c.head_dim});
  add("v", c.dtype, {outer, c.kv_heads, total_k, c.value_dim});
  random_reals("q", 2), random_reals("k", 2), random_reals("v", 1);
  numbers_["scale"] = 1 / std::sqrt(static_cast<double>(c.head_dim));
  const auto ints = [&](const std::string& name, std::vector<std::int64_t> shape, std::int64_t low, std::int64_t high) {
    add(name, DType::int32, std::move(shape));
    for (std::int64_t i = 0; i < tensor(name).count(); ++i) tensor(name).set(i, static_cast<double>(low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1))));
  };
  const AttentionOptions& o = c.options;
  const auto broadcast = [&](std::int64_t n) { return next() % 2 ? n : 1; };
  if (o.alibi) add("alibi_slopes", DType::float32, {broadcast(c.batches), c.heads}), random_reals("alibi_slopes", 0.3);
  if (o.bias) {
    add("bias", c.bias_dtype, {broadcast(c.batches), broadcast(c.heads), broadcast(c.rows), c.positions});
    random_reals("bias", 1);
    for (std::int64_t i = 0; i < tensor("bias").count(); ++i)
      if (next() % 11 == 0) tensor("bias").set(i, -std::numeric_limits<double>::infinity());
  }
  if (o.mask) {
    add("mask", DType::boolean, {broadcast(c.batches), broadcast(c.heads), broadcast(c.rows), c.positions});
    for (std::int64_t i = 0; i < tensor("mask").count(); ++i) tensor("mask").set(i, static_cast<double>(next() % 4 != 0));
  }
  if (o.sink) add("sink", DType::float32, {c.heads}), random_reals("sink", 3);
  if (o.prefix) ints("prefix_len", {c.batches}, 0, c.positions);
  if (o.documents) {
    add("doc_ids", DType::int32, {c.batches, c.positions});
    for (std::int64_t b = 0, id = 0; b < c.batches; ++b)
      for (std::int64_t j = 0; j < c.positions; ++j) tensor("doc_ids").set(b * c.positions + j, static_cast<double>(id += next() % 9 == 0));
  }
  if (o.softcap) numbers_["softcap"] = 1.5;
  if (o.window) numbers_["window_left"] = c.window_left, numbers_["window_right"] = c.window_right;
  if (o.dropout) {
    numbers_["seed"] = static_cast<double>(next() >> 20), numbers_["offset"] = static_cast<double>(next() % 1000);
    const double p = 0.3;
    numbers_["dropout_threshold"] = std::round(p * 4294967296.0), numbers_["dropout_scale"] = 1 / (1 - p);
  }
  if (o.lengths == Lengths::used) {
    add("kv_lens", DType::int32, {c.batches});
    for (std::int64_t b = 0; b < c.batches; ++b) tensor("kv_lens").set(b, static_cast<double>(c.lengths_k[static_cast<std::size_t>(b)]));
  }
  if (packed)
    for (const auto& [name, lengths] : {std::pair("cu_seqlens_q", c.lengths_q), std::pair("cu_seqlens_k", c.lengths_k)}) {
      add(name, DType::int32, {static_cast<std::int64_t>(lengths.size()) + 1});
      std::int64_t sum = 0;
      tensor(name).set(0, 0);
      for (std::size_t i = 0; i < lengths.size(); ++i) tensor(name).set(static_cast<std::int64_t>(i) + 1, static_cast<double>(sum += lengths[i]));
    }
  // With causal and more rows than keys ahead, trailing keys may be hidden from all; used lengths hide the rest.
  if (c.nan_in_hidden && o.lengths == Lengths::used)
    for (const char* name : {"k", "v"}) {
      GuardedTensor& t = tensor(name);
      const std::int64_t d = t.shape()[3];
      for (std::int64_t b = 0; b < c.batches; ++b)
        for (std::int64_t h = 0; h < c.kv_heads; ++h)
          for (std::int64_t j = c.lengths_k[static_cast<std::size_t>(b)]; j < c.positions; ++j)
            for (std::int64_t e = 0; e < d; ++e) t.set(((b * c.kv_heads + h) * c.positions + j) * d + e, std::nan(""));
    }
  // One key whose K and V are not numbers: only the rows that see it may show it.
  if (c.nan_in_hidden && o.lengths == Lengths::dense && c.positions > 0)
    for (const char* name : {"k", "v"}) {
      const std::int64_t d = tensor(name).shape()[3];
      for (std::int64_t e = 0; e < d; ++e) tensor(name).set((c.positions - 1) * d + e, name[0] == 'v' && e % 2 ? INFINITY : std::nan(""));
    }
}

void CaseData::add_outputs() {
  const ProblemCase& c = case_;
  const bool packed = c.options.lengths == Lengths::packed;
  const std::int64_t outer = packed ? 1 : c.batches;
  const std::int64_t rows = packed ? tensor("q").shape()[2] : c.rows;
  add("o", c.out_dtype, {outer, c.heads, rows, c.value_dim});
  if (c.options.lse) add("lse", DType::float32, {outer, c.heads, rows});
  if (c.options.top_k_outputs) {
    add("values", DType::float32, {outer, c.heads, rows, c.options.top_k});
    add("indices", DType::int32, {outer, c.heads, rows, c.options.top_k});
  }
}

void CaseData::fill_outputs(double value) {
  for (const OutputDecl& o : algorithm_.outputs) tensor(o.name).fill(tensor(o.name).dtype() == DType::int32 ? -77 : value);
}

Arguments CaseData::arguments() const {
  Arguments out;
  for (const auto& [name, t] : tensors_) out.tensor(name, t->ref());
  for (const ScalarDecl& s : algorithm_.scalars) {
    const double value = numbers_.at(s.name);
    s.kind == Kind::real ? out.real(s.name, value) : out.integer(s.name, static_cast<std::int64_t>(value));
  }
  return out;
}

EvaluateInputs CaseData::evaluate_inputs() const {
  EvaluateInputs in;
  in.batch = case_.options.lengths == Lengths::packed ? static_cast<std::int64_t>(case_.lengths_q.size()) : case_.batches;
  in.heads = case_.heads;
  for (const InputDecl& d : algorithm_.inputs) {
    const GuardedTensor& t = *tensors_.at(d.name);
    HostTensor host{t.dtype(), t.data(), t.shape(), t.strides()};
    for (std::size_t i = 0; i < host.shape.size(); ++i)   // evaluate's form of a broadcast dim
      if (host.shape[i] == 1) host.strides[i] = 0;
    in.tensors[d.name] = host;
  }
  in.scalars = numbers_;
  return in;
}

namespace {

struct Tolerance { double absolute, relative; };

// Rows or positions of the longest sequence.
double longest(const ProblemCase& c, const std::vector<std::int64_t>& packed, std::int64_t dense) {
  return static_cast<double>(c.options.lengths == Lengths::packed ? *std::max_element(packed.begin(), packed.end()) : dense);
}

Tolerance tolerance(const ProblemCase& c, const std::string& output) {
  if (output == "lse" || output == "values") return {c.options.softcap ? 4e-5 : 2e-5, 2e-5};
  const DType worst = c.dtype == DType::bfloat16 || c.out_dtype == DType::bfloat16 ? DType::bfloat16
                      : c.dtype == DType::float16 || c.out_dtype == DType::float16 ? DType::float16 : DType::float32;
  // Without a normaliser the rounding errors of the weights add up over the positions instead of averaging out.
  const bool adds_up = c.options.rule == Rule::linear || c.options.rule == Rule::sigmoid;
  const double rows = longest(c, c.lengths_q, c.rows), positions = longest(c, c.lengths_k, c.positions);
  const double reach = c.options.alibi ? 1 + 0.3 * (rows + positions) / 4 : 1.0;   // of a score
  const double linear = adds_up ? std::max(4.0, 1.5 * reach * std::sqrt(positions)) : 1.0;
  if (worst == DType::float32) return {1e-5 * linear, 1e-5};
  return worst == DType::float16 ? Tolerance{2e-3 * linear, 2e-3} : Tolerance{1.0e-2 * linear, 1e-2};
}

// Scores that differ by rounding may change places: an index is right if its score is, within the tolerance, the one
// expected at this place, or the last one where the index fell out at the end.
bool same_selection(const std::map<std::string, EvaluatedOutput>& expected, std::int64_t at, std::int64_t slots, double got, const Tolerance& t) {
  const std::vector<double>&indices = expected.at("indices").values, &values = expected.at("values").values;
  const auto first = static_cast<std::size_t>(at / slots * slots), here = static_cast<std::size_t>(at), end = first + static_cast<std::size_t>(slots);
  const auto close = [&](std::size_t other) { return std::fabs(values[other] - values[here]) <= t.absolute + t.relative * std::fabs(values[here]); };
  for (std::size_t i = first; i < end; ++i)
    if (indices[i] == got) return close(i);
  return got >= 0 && indices[end - 1] >= 0 && close(end - 1);
}

// Rows of a top-k case whose last kept score and first dropped one differ by no more than rounding: `o` may come from
// either. Found by asking the reference for one score more.
std::vector<bool> rows_with_a_tie(CaseData& data, const ProblemCase& c) {
  if (c.options.top_k == 0 || c.options.top_k == 128) return {};  // 128: no more can be asked for
  ProblemCase wider = c;
  wider.options.top_k = c.options.top_k + 1, wider.options.top_k_outputs = true;
  const std::vector<double> values = evaluate(attention(wider.options), data.evaluate_inputs()).at("values").values;
  const auto slots = static_cast<std::size_t>(wider.options.top_k);
  const Tolerance t = tolerance(c, "values");
  std::vector<bool> ties;
  for (std::size_t end = slots; end <= values.size(); end += slots)
    ties.push_back(std::fabs(values[end - 1] - values[end - 2]) <= t.absolute + t.relative * std::fabs(values[end - 2]));
  return ties;
}

bool agrees(double got, double want, const Tolerance& t) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::fabs(got - want) <= t.absolute + t.relative * std::fabs(want);
}

}  // namespace

std::string run_and_compare(const ProblemCase& c) {
  CaseData data(c);
  data.fill_outputs(std::nan(""));
  const Arguments arguments = data.arguments();
  Problem problem = problem_of(data.algorithm(), arguments);
  problem.few_rows = false;   // the schedule is given: one kernel for every number of rows
  run_there(Kernel::get(data.algorithm(), problem, c.schedule, test_device()), arguments);
  const auto expected = evaluate(data.algorithm(), data.evaluate_inputs());
  const std::vector<bool> ties = rows_with_a_tie(data, c);
  for (const auto& [name, want] : expected) {
    const GuardedTensor& got = data.tensor(name);
    const Tolerance t = tolerance(c, name);
    std::int64_t worst = -1, misses = 0;
    double worst_error = -1;
    for (std::int64_t i = 0; i < got.count(); ++i) {
      const double g = got.get(i), w = want.values[static_cast<std::size_t>(i)];
      if (agrees(g, w, t)) continue;
      if (name == "o" && !ties.empty() && ties[static_cast<std::size_t>(i / c.value_dim)]) continue;
      if (name == "indices" && same_selection(expected, i, got.shape()[3], g, tolerance(c, "values"))) continue;
      ++misses;
      const double error = std::isnan(g - w) ? INFINITY : std::fabs(g - w);
      if (error > worst_error) worst_error = error, worst = i;
    }
    if (misses == 0) continue;
    std::string at;
    std::int64_t rest = worst;
    for (std::size_t d = got.shape().size(); d-- > 0;) {
      at = fmt::format("{}{}{}", rest % got.shape()[d], at.empty() ? "" : ", ", at);
      rest /= got.shape()[d];
    }
    return fmt::format("{}: {} of {} elements of '{}' differ, worst at [{}]: {} instead of {}", c.describe(), misses, got.count(), name, at,
                       got.get(worst), want.values[static_cast<std::size_t>(worst)]);
  }
  return {};
}

}  // namespace attile::test
