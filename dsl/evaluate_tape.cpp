#include "dsl/evaluate_tape.h"

#include <algorithm>

#include "dsl/algorithm_check.h"
#include "dsl/expr_ops.h"
#include "dsl/philox.h"

namespace attile {
inline namespace v1 {

IndexMap::IndexMap(const Dims& from, const std::vector<std::int64_t>& extents, const Dims& to) {
  identity_ = from == to;
  scalar_ = to.empty();
  if (identity_ || scalar_) return;
  std::vector<std::int64_t> strides(from.size(), 0);
  std::int64_t total = 1, stride = 1;
  for (std::size_t t = to.size(); t-- > 0;) {
    const auto d = static_cast<std::size_t>(std::find(from.begin(), from.end(), to[t]) - from.begin());
    strides[d] = stride;
    stride *= extents[d];
  }
  for (std::int64_t n : extents) total *= n;
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t rest = i, at = 0;
    for (std::size_t d = from.size(); d-- > 0; rest /= extents[d]) at += rest % extents[d] * strides[d];
    table_.push_back(at);
  }
}

Tape::Tape(const Binding& binding, const std::vector<Expr>& roots, Variables variables, Kept kept)
    : binding_(binding), variables_(std::move(variables)), kept_(std::move(kept)) {
  for (const Expr& e : roots) roots_.push_back(add(e));
}

Tape::~Tape() = default;

std::size_t Tape::add(const Expr& e) {
  if (auto at = known_.find(e.get()); at != known_.end()) return at->second;
  Step step;
  step.node = e.get();
  if (auto at = kept_.find(e.get()); at != kept_.end()) {
    step.kept = at->second;
    step.streamed = true;
  } else {
    for (const Expr& arg : e->args) step.args.push_back(add(arg));
    shape(step);
  }
  steps_.push_back(std::move(step));
  known_.emplace(e.get(), steps_.size() - 1);
  return steps_.size() - 1;
}

// Inner dims, sizes, and how each operand's points lie among the step's.
void Tape::shape(Step& step) {
  const Node& node = *step.node;
  const Algorithm& a = binding_.algorithm();
  step.streamed = std::find(node.dims.begin(), node.dims.end(), a.streamed) != node.dims.end();
  step.inner = extra_dims(a, node.dims);
  std::vector<std::int64_t> extents;
  for (const Dim& d : step.inner) {
    extents.push_back(binding_.extent(d));
    step.size *= extents.back();
  }
  if (node.op == Op::element) step.reader = std::make_unique<ElementReader>(binding_, node, step.inner, extents);
  Dims points = step.inner;
  if (node.op == Op::dot || node.op == Op::reduce_sum) {
    points.push_back(node.dim);
    extents.push_back(binding_.extent(node.dim));
    step.terms = extents.back();
  }
  for (std::size_t arg : step.args) step.maps.emplace_back(points, extents, steps_[arg].inner);
}

void Tape::enter_row(const Site& site) {
  site_ = site;
  for (Step& step : steps_)
    if (!step.streamed) compute(step, {nullptr, 1, 0});
}

void Tape::run(const Block& block) {
  for (Step& step : steps_)
    if (step.streamed) compute(step, block);
}

void Tape::compute(Step& step, const Block& block) {
  if (step.kept != nullptr) {
    step.view = {step.kept->data() + block.first, 1, nullptr};
    return;
  }
  const Op op = step.node->op;
  if (op == Op::element) return compute_element(step, block);
  if (op == Op::variable) {
    step.view = {variables_.at(step.node->name), 0, nullptr};
    return;
  }
  step.buffer.resize(static_cast<std::size_t>(block.count * step.size));
  step.view = {step.buffer.data(), step.streamed ? step.size : 0, nullptr};
  if (op == Op::random) return compute_random(step, block);
  if (op == Op::dot || op == Op::reduce_sum) return compute_contraction(step, block.count);
  switch (step.args.size()) {
    case 0: return compute_leaf(step, block);
    case 1: return compute_unary(step, block.count);
    case 2: return compute_binary(step, block.count);
    default: return compute_select(step, block.count);
  }
}

double Tape::leaf_value(const Node& node) const {
  if (node.op == Op::constant) return node.value;
  if (node.op == Op::scalar) return binding_.scalar(node.name);
  if (node.op == Op::length) return static_cast<double>(binding_.length(node.dim, site_.sequence));
  if (node.dim == batch) return static_cast<double>(site_.sequence);
  if (node.dim == head) return static_cast<double>(site_.head);
  if (node.dim == kv_head) return static_cast<double>(binding_.kv_head_of(site_.head));
  return static_cast<double>(site_.row);
}

void Tape::compute_leaf(Step& step, const Block& block) {
  const bool along_stream = step.node->op == Op::index && step.streamed;
  const bool along_inner = step.node->op == Op::index && !step.inner.empty();
  for (std::size_t i = 0; i < step.buffer.size(); ++i) {
    if (along_stream)
      step.buffer[i] = static_cast<double>(block.positions[i]);
    else
      step.buffer[i] = along_inner ? static_cast<double>(i) : leaf_value(*step.node);
  }
}

void Tape::compute_random(Step& step, const Block& block) {
  const View seed = steps_[step.args[0]].view, offset = steps_[step.args[1]].view;
  const bool rows_are_queries = binding_.algorithm().parallel == query;
  const std::int64_t line = site_.sequence * binding_.heads() + site_.head;
  for (std::int64_t j = 0; j < block.count; ++j) {
    const std::int64_t position = block.positions[j];
    step.buffer[static_cast<std::size_t>(j)] =
        dropout_word(static_cast<std::int64_t>(*seed.at(j)), static_cast<std::int64_t>(*offset.at(j)), line,
                     rows_are_queries ? site_.row : position, rows_are_queries ? position : site_.row);
  }
}

void Tape::compute_element(Step& step, const Block& block) {
  std::vector<View> args;
  for (std::size_t arg : step.args) args.push_back(steps_[arg].view);
  step.view = step.reader->read(site_, block, args, step.maps, step.buffer);
}

void Tape::compute_unary(Step& step, std::int64_t count) {
  const View a = steps_[step.args[0]].view;
  const Op op = step.node->op;
  double* out = step.buffer.data();
  for (std::int64_t j = 0; j < count; ++j, out += step.size)
    for (std::int64_t e = 0; e < step.size; ++e) out[e] = unary_value(op, a.at(j)[step.maps[0](e)]);
}

void Tape::compute_binary(Step& step, std::int64_t count) {
  const View a = steps_[step.args[0]].view, b = steps_[step.args[1]].view;
  const Op op = step.node->op;
  double* out = step.buffer.data();
  for (std::int64_t j = 0; j < count; ++j, out += step.size)
    for (std::int64_t e = 0; e < step.size; ++e)
      out[e] = binary_value(op, a.at(j)[step.maps[0](e)], b.at(j)[step.maps[1](e)]);
}

void Tape::compute_select(Step& step, std::int64_t count) {
  const View condition = steps_[step.args[0]].view;
  double* out = step.buffer.data();
  for (std::int64_t j = 0; j < count; ++j, out += step.size)
    for (std::int64_t e = 0; e < step.size; ++e) {
      const std::size_t taken = condition.at(j)[step.maps[0](e)] != 0 ? 1 : 2;
      out[e] = steps_[step.args[taken]].view.at(j)[step.maps[taken](e)];
    }
}

namespace {

// Four partial sums, in a fixed order: fast and the same on every machine.
double plain_dot(const double* a, const double* b, std::int64_t n) {
  double s[4] = {0, 0, 0, 0};
  std::int64_t t = 0;
  for (; t + 4 <= n; t += 4)
    for (int u = 0; u < 4; ++u) s[u] += a[t + u] * b[t + u];
  for (; t < n; ++t) s[0] += a[t] * b[t];
  return (s[0] + s[1]) + (s[2] + s[3]);
}

}  // namespace

void Tape::compute_contraction(Step& step, std::int64_t count) {
  const bool is_dot = step.args.size() == 2;
  const View a = steps_[step.args[0]].view, b = is_dot ? steps_[step.args[1]].view : View{};
  const bool plain = is_dot && step.size == 1 && step.maps[0].identity() && step.maps[1].identity();
  double* out = step.buffer.data();
  for (std::int64_t j = 0; j < count; ++j, out += step.size) {
    if (plain) {
      out[0] = plain_dot(a.at(j), b.at(j), step.terms);
      continue;
    }
    for (std::int64_t e = 0; e < step.size; ++e) {
      double sum = 0;
      for (std::int64_t i = e * step.terms; i < (e + 1) * step.terms; ++i)
        sum += a.at(j)[step.maps[0](i)] * (is_dot ? b.at(j)[step.maps[1](i)] : 1.0);
      out[e] = sum;
    }
  }
}

}  // namespace v1
}  // namespace attile
