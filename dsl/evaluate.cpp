#include "dsl/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "dsl/algorithm_check.h"
#include "dsl/evaluate_tape.h"
#include "dsl/expr_ops.h"

namespace attile {
inline namespace v1 {

namespace {

constexpr std::int64_t block_size = 256;
constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

// A sum's terms: one expression, or the two operands of a dot over the stream.
std::vector<Expr> terms_of(const Algorithm& a, const StateDecl& s) {
  return contracts_stream(a, s.update) ? s.update->args : std::vector<Expr>{s.update};
}

// The k largest so far, largest first; NaN ranks above everything, −inf is never kept.
class Chosen {
 public:
  explicit Chosen(std::size_t count) : values(count), indices(count) {
    // The finish tape keeps the addresses, so nothing may move.
    values.reserve(count + 1);
    indices.reserve(count + 1);
    clear();
  }
  void clear() {
    std::fill(values.begin(), values.end(), minus_infinity);
    std::fill(indices.begin(), indices.end(), -1.0);
  }
  void offer(double value, double index) {
    std::size_t at = values.size();
    while (at > 0 && above(value, values[at - 1])) --at;
    if (at == values.size()) return;
    values.insert(values.begin() + static_cast<std::ptrdiff_t>(at), value);
    indices.insert(indices.begin() + static_cast<std::ptrdiff_t>(at), index);
    values.pop_back();
    indices.pop_back();
  }
  std::vector<double> values, indices;

 private:
  // Strictly, so that of equal values the earlier stays.
  static bool above(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; }
};

class Evaluation {
 public:
  Evaluation(const Algorithm& a, const EvaluateInputs& in) : a_(a), in_(in), binding_(a, in) {
    make_states();
    make_tapes();
    make_outputs();
  }

  std::map<std::string, EvaluatedOutput> run() {
    if (in_.rows.empty())
      all_rows();
    else
      listed_rows();
    return std::move(outputs_);
  }

 private:
  void make_states();
  void make_tapes();
  void make_outputs();
  void all_rows();
  void listed_rows();
  void row(const Site& site, std::int64_t place);
  void find_visible(const Site& site);
  void first_pass(const Site& site);
  void second_pass(const Site& site);
  void add_terms(std::size_t which, std::int64_t count);
  void offer(const Block& block);
  void write_positions(const Block& block);
  void write_row(std::int64_t place);
  template <typename Body>
  void for_blocks(const std::vector<std::int64_t>& positions, Body body) {
    const auto total = static_cast<std::int64_t>(positions.size());
    for (std::int64_t first = 0; first < total; first += block_size)
      body(Block{positions.data() + first, std::min(block_size, total - first), first});
  }

  struct Sum {
    const StateDecl* decl;
    std::size_t first_root, terms;
    std::vector<IndexMap> maps;
    std::vector<double> value;
  };

  const Algorithm& a_;
  const EvaluateInputs& in_;
  Binding binding_;
  const StateDecl* reference_ = nullptr;
  const StateDecl* selection_ = nullptr;
  double reference_value_ = 0, reference_read_ = 0;  // final, and as weights read it
  std::unique_ptr<Chosen> chosen_;
  std::vector<Sum> sums_;
  std::vector<const OutputDecl*> row_outputs_, position_outputs_;
  std::unique_ptr<Tape> visible_tape_, first_tape_, second_tape_, finish_tape_;
  std::vector<double> kept_;                          // the reference's update at every visible position
  std::vector<std::int64_t> candidates_, positions_;  // of the row: all, visible
  std::map<std::string, EvaluatedOutput> outputs_;
  std::vector<EvaluatedOutput*> row_results_, position_results_;
  std::int64_t row_place_ = 0;
};

void Evaluation::make_states() {
  for (const StateDecl& s : a_.states) {
    if (s.kind == StateKind::reference) reference_ = &s;
    if (s.kind == StateKind::selection) {
      selection_ = &s;
      chosen_ = std::make_unique<Chosen>(static_cast<std::size_t>(s.count));
    }
    if (s.kind != StateKind::sum) continue;
    Sum sum{&s, 0, 0, {}, {}};
    std::int64_t size = 1;
    for (const Dim& d : extra_dims(a_, s.update)) size *= binding_.extent(d);
    sum.value.resize(static_cast<std::size_t>(size));
    sums_.push_back(std::move(sum));
  }
}

void Evaluation::make_tapes() {
  if (!a_.visible.empty())
    visible_tape_ = std::make_unique<Tape>(binding_, std::vector<Expr>{a_.visible}, Tape::Variables{});
  std::vector<Expr> first, second, finish;
  if (reference_ != nullptr) first.push_back(reference_->update);
  if (selection_ != nullptr) first.push_back(selection_->update);
  if (selection_ != nullptr && !selection_->payload.empty()) first.push_back(selection_->payload);
  for (const OutputDecl& o : a_.outputs) {
    (o.per_position ? position_outputs_ : row_outputs_).push_back(&o);
    (o.per_position ? first : finish).push_back(o.value);
  }
  Tape::Variables inside, after;
  Tape::Kept kept;
  if (reference_ != nullptr) {
    inside[reference_->name] = &reference_read_;
    after[reference_->name] = &reference_value_;
    if (has_free_dim(reference_->update, a_.streamed)) kept[reference_->update.get()] = &kept_;
  }
  if (selection_ != nullptr) {
    after[selection_->name + ".values"] = chosen_->values.data();
    after[selection_->name + ".indices"] = chosen_->indices.data();
  }
  for (Sum& sum : sums_) {
    after[sum.decl->name] = sum.value.data();
    sum.first_root = second.size();
    for (const Expr& e : terms_of(a_, *sum.decl)) second.push_back(e);
    sum.terms = second.size() - sum.first_root;
  }
  first_tape_ = std::make_unique<Tape>(binding_, first, Tape::Variables{});
  second_tape_ = std::make_unique<Tape>(binding_, second, inside, kept);
  finish_tape_ = std::make_unique<Tape>(binding_, finish, after);
  for (Sum& sum : sums_) {
    const Dims inner = extra_dims(a_, sum.decl->update);
    std::vector<std::int64_t> extents;
    for (const Dim& d : inner) extents.push_back(binding_.extent(d));
    for (std::size_t i = 0; i < sum.terms; ++i)
      sum.maps.emplace_back(inner, extents, second_tape_->inner(sum.first_root + i));
  }
}

void Evaluation::make_outputs() {
  std::vector<std::int64_t> shape{static_cast<std::int64_t>(in_.rows.size())};
  const std::int64_t sequences = binding_.is_packed(a_.parallel) ? 1 : in_.batch;
  if (in_.rows.empty()) shape = {sequences, in_.heads, binding_.extent(a_.parallel)};
  for (const OutputDecl& o : a_.outputs) {
    EvaluatedOutput result{shape, {}};
    if (o.per_position) result.shape.push_back(binding_.extent(a_.streamed));
    for (const Dim& d : extra_dims(a_, o.value)) result.shape.push_back(binding_.extent(d));
    std::int64_t total = 1;
    for (std::int64_t n : result.shape) total *= n;
    result.values.resize(static_cast<std::size_t>(total));
    outputs_.emplace(o.name, std::move(result));
  }
  for (const OutputDecl* o : row_outputs_) row_results_.push_back(&outputs_.at(o->name));
  for (const OutputDecl* o : position_outputs_) position_results_.push_back(&outputs_.at(o->name));
}

void Evaluation::all_rows() {
  const std::int64_t extent = binding_.extent(a_.parallel);
  const bool packed = binding_.is_packed(a_.parallel);
  for (std::int64_t b = 0; b < in_.batch; ++b)
    for (std::int64_t h = 0; h < in_.heads; ++h)
      for (std::int64_t i = 0; i < binding_.length(a_.parallel, b); ++i)
        row({b, h, i}, ((packed ? 0 : b) * in_.heads + h) * extent + binding_.start(a_.parallel, b) + i);
}

void Evaluation::listed_rows() {
  for (std::size_t n = 0; n < in_.rows.size(); ++n) {
    const auto& r = in_.rows[n];
    const bool known = r.sequence >= 0 && r.sequence < in_.batch && r.head >= 0 && r.head < in_.heads && r.row >= 0 &&
                       r.row < binding_.length(a_.parallel, r.sequence);
    if (!known) binding_.refuse(fmt::format("there is no row {} of sequence {}, head {}", r.row, r.sequence, r.head));
    row({r.sequence, r.head, r.row}, static_cast<std::int64_t>(n));
  }
}

void Evaluation::row(const Site& site, std::int64_t place) {
  row_place_ = place;
  find_visible(site);
  first_pass(site);
  second_pass(site);
  finish_tape_->enter_row(site);
  write_row(place);
}

void Evaluation::find_visible(const Site& site) {
  const std::int64_t begin = std::max<std::int64_t>(0, in_.stream_begin);
  const std::int64_t end = std::min(in_.stream_end, binding_.length(a_.streamed, site.sequence));
  candidates_.clear();
  for (std::int64_t p = begin; p < end; ++p) candidates_.push_back(p);
  if (!visible_tape_) {
    positions_ = candidates_;
    return;
  }
  positions_.clear();
  visible_tape_->enter_row(site);
  for_blocks(candidates_, [&](const Block& block) {
    visible_tape_->run(block);
    const View seen = visible_tape_->root(0);
    for (std::int64_t j = 0; j < block.count; ++j)
      if (*seen.at(j) != 0) positions_.push_back(block.positions[j]);
  });
}

// The reference, the selection and what is written per position: all that needs no final reference.
void Evaluation::first_pass(const Site& site) {
  reference_value_ = minus_infinity;
  kept_.clear();
  if (chosen_) chosen_->clear();
  first_tape_->enter_row(site);
  for_blocks(positions_, [&](const Block& block) {
    first_tape_->run(block);
    for (std::int64_t j = 0; reference_ != nullptr && j < block.count; ++j) {
      kept_.push_back(*first_tape_->root(0).at(j));
      reference_value_ = max_value(reference_value_, kept_.back());
    }
    if (chosen_) offer(block);
    write_positions(block);
  });
  reference_read_ = reference_value_ == minus_infinity ? 0 : reference_value_;
}

void Evaluation::offer(const Block& block) {
  const std::size_t root = reference_ != nullptr ? 1 : 0;
  const bool carries = !selection_->payload.empty();
  const View score = first_tape_->root(root), payload = carries ? first_tape_->root(root + 1) : View{};
  const std::int64_t slots = first_tape_->size(root);
  const bool per_slot = carries && first_tape_->size(root + 1) == slots;
  for (std::int64_t j = 0; j < block.count; ++j)
    for (std::int64_t e = 0; e < slots; ++e)
      chosen_->offer(score.at(j)[e],
                     carries ? payload.at(j)[per_slot ? e : 0] : static_cast<double>(block.positions[j]));
}

void Evaluation::write_positions(const Block& block) {
  const std::size_t before = (reference_ != nullptr ? 1 : 0) + (selection_ != nullptr ? 1 : 0) +
                             (selection_ != nullptr && !selection_->payload.empty() ? 1 : 0);
  const std::int64_t extent = position_results_.empty() ? 0 : binding_.extent(a_.streamed);
  for (std::size_t n = 0; n < position_results_.size(); ++n) {
    const View value = first_tape_->root(before + n);
    double* out = position_results_[n]->values.data() + row_place_ * extent;
    for (std::int64_t j = 0; j < block.count; ++j) out[block.positions[j]] = *value.at(j);
  }
}

void Evaluation::second_pass(const Site& site) {
  if (sums_.empty()) return;
  for (Sum& sum : sums_) std::fill(sum.value.begin(), sum.value.end(), 0.0);
  second_tape_->enter_row(site);
  for_blocks(positions_, [&](const Block& block) {
    second_tape_->run(block);
    for (std::size_t i = 0; i < sums_.size(); ++i) add_terms(i, block.count);
  });
}

void Evaluation::add_terms(std::size_t which, std::int64_t count) {
  Sum& sum = sums_[which];
  const View a = second_tape_->root(sum.first_root);
  const View b = sum.terms == 2 ? second_tape_->root(sum.first_root + 1) : View{};
  const auto size = static_cast<std::int64_t>(sum.value.size());
  double* out = sum.value.data();
  const bool weighted_row = sum.terms == 2 && sum.maps[1].identity() && !sum.maps[0].identity();
  for (std::int64_t j = 0; j < count; ++j) {
    const double* x = a.at(j);
    const double* y = sum.terms == 2 ? b.at(j) : nullptr;
    if (weighted_row && second_tape_->size(sum.first_root) == 1) {
      for (std::int64_t e = 0; e < size; ++e) out[e] += x[0] * y[e];
      continue;
    }
    for (std::int64_t e = 0; e < size; ++e) out[e] += x[sum.maps[0](e)] * (y != nullptr ? y[sum.maps[1](e)] : 1.0);
  }
}

void Evaluation::write_row(std::int64_t place) {
  for (std::size_t n = 0; n < row_results_.size(); ++n) {
    const std::int64_t size = finish_tape_->size(n);
    const double* value = finish_tape_->root(n).at(0);
    std::copy(value, value + size, row_results_[n]->values.begin() + place * size);
  }
}

}  // namespace

std::map<std::string, EvaluatedOutput> evaluate(const Algorithm& a, const EvaluateInputs& in) {
  return Evaluation(a, in).run();
}

double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values)
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  return largest;
}

}  // namespace v1
}  // namespace attile
