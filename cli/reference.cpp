#include "cli/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cli/array.h"
#include "dsl/evaluate.h"
#include "runtime/host_tensor.h"
#include "runtime/parallel_for.h"

namespace attile::cli {
namespace {

using Row = EvaluateInputs::Row;
using Outputs = std::map<std::string, EvaluatedOutput>;

// About two seconds of evaluate on two cores.
constexpr double steps_of_a_check = 4e8;
constexpr std::size_t least_rows = 64;
constexpr std::int64_t rows_of_a_task = 16;

std::vector<std::int64_t> rows_of_sequences(const AttentionCall& call) {
  if (!call.cu_seqlens_q) return std::vector<std::int64_t>(static_cast<std::size_t>(call.q.shape[0]), call.q.shape[2]);
  std::vector<std::int64_t> rows;
  for (std::int64_t b = 0; b + 1 < call.cu_seqlens_q->shape[0]; ++b)
    rows.push_back(int_at(*call.cu_seqlens_q, b + 1) - int_at(*call.cu_seqlens_q, b));
  return rows;
}

EvaluateInputs inputs_of(const AttentionCall& call, std::int64_t sequences) {
  EvaluateInputs in;
  const Arguments arguments = attention_arguments(call);
  for (const auto& [name, t] : arguments.tensors) {
    if (name != "o" && name != "lse") in.tensors[name] = host_tensor(t);
  }
  for (const auto& number : arguments.numbers) in.scalars[number.name] = number.real;
  in.batch = sequences;
  in.heads = call.q.shape[1];
  return in;
}

// Evaluates the rows in parallel; outputs have one entry a row.
Outputs evaluate_rows(const Algorithm& a, const EvaluateInputs& all, const std::vector<Row>& rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t tasks = (count + rows_of_a_task - 1) / rows_of_a_task;
  std::vector<Outputs> parts(static_cast<std::size_t>(tasks));
  parallel_for(tasks, [&](std::int64_t task, int) {
    EvaluateInputs in = all;
    const auto from = rows.begin() + task * rows_of_a_task;
    in.rows.assign(from, from + std::min(rows_of_a_task, count - task * rows_of_a_task));
    parts[static_cast<std::size_t>(task)] = evaluate(a, in);
  });
  Outputs joined;
  for (const Outputs& part : parts)
    for (const auto& [name, output] : part) {
      EvaluatedOutput& whole = joined[name];
      whole.shape = output.shape;
      whole.values.insert(whole.values.end(), output.values.begin(), output.values.end());
    }
  return joined;
}

// Rows whose k-th and next score lie within rounding of one another: the selection may go either way.
std::vector<bool> undecided_rows(const AttentionCall& call, const EvaluateInputs& in, const std::vector<Row>& rows) {
  std::vector<bool> undecided(rows.size(), false);
  if (call.top_k == 0 || call.top_k >= 128) return undecided;
  AttentionOptions options = attention_options(call);
  ++options.top_k;
  options.top_k_outputs = true;
  const Outputs outputs = evaluate_rows(attention(options), in, rows);
  const std::vector<double>& values = outputs.at("values").values;
  const auto slots = static_cast<std::size_t>(options.top_k);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double last = values[r * slots + slots - 2], next = values[r * slots + slots - 1];
    undecided[r] = std::isfinite(next) && last - next < 1e-5 * (1 + std::fabs(last));
  }
  return undecided;
}

double largest_value(const TensorRef& v) {
  double largest = 0;
  const std::int64_t count = v.shape[0] * v.shape[1] * v.shape[2] * v.shape[3];
  for (std::int64_t i = 0; i < count; ++i) {  // the command's tensors are contiguous
    const double value = element_at(v, i);
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

struct Tolerance {
  double absolute = 0, relative = 0;
  double at(double want) const { return absolute + relative * std::fabs(want); }
};

class Comparison {
 public:
  Comparison(const AttentionCall& call, const std::vector<Row>& rows, const std::vector<bool>& skipped)
      : call_(call), rows_(rows), skipped_(skipped) {}

  OutputCheck run(const std::string& name, const TensorRef& actual, const std::vector<double>& expected,
                  Tolerance tolerance) const {
    OutputCheck check;
    check.output = name;
    const std::int64_t width = actual.rank == 4 ? actual.shape[3] : 1;
    double worst = -1;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      for (std::int64_t c = 0; c < width && !skipped_[r]; ++c) {
        const std::int64_t flat = (row_index(rows_[r]) * width) + c;
        const double got = element_at(actual, flat);
        const double want = expected[r * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)];
        const double excess = excess_of(got, want, tolerance.at(want));
        if (excess <= worst) continue;
        worst = excess;
        const std::vector<std::int64_t> shape(actual.shape.begin(), actual.shape.begin() + actual.rank);
        check = {name, std::fabs(got - want), tolerance.at(want), got, want, place_text(shape, flat), excess <= 1};
      }
    if (check.got == check.want) check.error = 0;  // two infinities
    return check;
  }

 private:
  static double excess_of(double got, double want, double tolerance) {
    if (got == want || (std::isnan(got) && std::isnan(want))) return 0;
    const double error = std::fabs(got - want);
    return std::isfinite(error) && std::isfinite(want) ? error / std::max(tolerance, 1e-300)
                                                       : std::numeric_limits<double>::infinity();
  }
  // Position among the rows of q as it lies in memory.
  std::int64_t row_index(const Row& row) const {
    const std::int64_t heads = call_.q.shape[1], length = call_.q.shape[2];
    if (call_.cu_seqlens_q) return row.head * length + int_at(*call_.cu_seqlens_q, row.sequence) + row.row;
    return (row.sequence * heads + row.head) * length + row.row;
  }

  const AttentionCall& call_;
  const std::vector<Row>& rows_;
  const std::vector<bool>& skipped_;
};

bool uses_tf32(const AttentionCall& call) { return call.tf32 && call.device.kind == Device::Kind::cuda; }

// Rules without a normaliser have outputs that grow with the keys; dropout scales what is left.
Tolerance tolerance_of_o(const AttentionCall& call, const Outputs& expected) {
  const bool normalised = call.rule == Rule::softmax || call.rule == Rule::softmax_plus_one;
  double scale = largest_value(call.v) / (1 - call.dropout);
  if (!normalised) scale = std::max(scale, largest_magnitude(expected.at("o").values));
  const double scores = normalised ? score_tolerance(largest_magnitude(expected.at("lse").values)) : 0;
  return {(output_tolerance(call.q.dtype, call.o.dtype, uses_tf32(call)) + scores) * scale, 0};
}

}  // namespace

bool ReferenceCheck::agrees() const {
  return std::all_of(outputs.begin(), outputs.end(), [](const OutputCheck& o) { return o.agrees; });
}

double output_tolerance(DType in, DType out, bool tf32) {
  double tolerance = tf32 ? 2e-3 : 1e-5;
  for (const DType type : {in, out})
    tolerance = std::max(tolerance, type == DType::bfloat16 ? 1e-2 : type == DType::float16 ? 2e-3 : 0.0);
  return tolerance;
}

double lse_tolerance(bool tf32) { return tf32 ? 2e-3 : 1e-5; }

double score_tolerance(double largest_lse) { return 1e-7 * largest_lse; }

std::vector<Row> rows_to_check(const std::vector<std::int64_t>& rows_of_sequence, std::int64_t heads,
                               double steps_of_row) {
  std::vector<Row> all;
  std::vector<std::int64_t> starts{0};
  for (const std::int64_t rows : rows_of_sequence) starts.push_back(starts.back() + rows * heads);
  const std::int64_t total = starts.back();
  const auto wanted =
      std::max<std::int64_t>(least_rows, static_cast<std::int64_t>(steps_of_a_check / std::max(steps_of_row, 1.0)));
  const auto row_at = [&](std::int64_t flat) {
    const auto sequence = std::upper_bound(starts.begin(), starts.end(), flat) - starts.begin() - 1;
    const std::int64_t rows = rows_of_sequence[static_cast<std::size_t>(sequence)],
                       within = flat - starts[static_cast<std::size_t>(sequence)];
    return Row{sequence, within / rows, within % rows};
  };
  if (total <= wanted) {
    for (std::int64_t i = 0; i < total; ++i) all.push_back(row_at(i));
    return all;
  }
  // Evenly spread with the first and the last; an odd step, so that all positions within a tile are met.
  for (std::int64_t i = 0; i < wanted; ++i)
    all.push_back(row_at(static_cast<std::int64_t>(static_cast<double>(total - 1) * static_cast<double>(i) /
                                                   static_cast<double>(wanted - 1))));
  return all;
}

ReferenceCheck check_against_reference(const AttentionCall& call) {
  const std::vector<std::int64_t> lengths = rows_of_sequences(call);
  const double per_row = static_cast<double>(call.k.shape[2]) * static_cast<double>(call.q.shape[3] + call.v.shape[3]);
  const std::vector<Row> rows = rows_to_check(lengths, call.q.shape[1], per_row);
  ReferenceCheck check;
  check.all_rows = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) * call.q.shape[1];
  if (rows.empty()) return check;

  AttentionOptions options = attention_options(call);
  options.lse =
      call.rule == Rule::softmax || call.rule == Rule::softmax_plus_one;  // the size of the scores shows in it
  const EvaluateInputs in = inputs_of(call, static_cast<std::int64_t>(lengths.size()));
  const Outputs expected = evaluate_rows(attention(options), in, rows);
  const std::vector<bool> undecided = undecided_rows(call, in, rows);
  check.undecided = std::count(undecided.begin(), undecided.end(), true);
  check.rows = static_cast<std::int64_t>(rows.size()) - check.undecided;
  const Comparison comparison(call, rows, undecided);
  check.outputs.push_back(comparison.run("o", call.o, expected.at("o").values, tolerance_of_o(call, expected)));
  const double of_lse = lse_tolerance(uses_tf32(call));
  if (call.lse) check.outputs.push_back(comparison.run("lse", *call.lse, expected.at("lse").values, {of_lse, of_lse}));
  return check;
}

}  // namespace attile::cli
