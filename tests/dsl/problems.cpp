#include "tests/dsl/problems.h"

namespace attile::test {

namespace {

std::int64_t pick(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(high - low + 1));
}
bool chance(std::mt19937& random, int percent) { return pick(random, 1, 100) <= percent; }

std::vector<double> as_doubles(const std::vector<std::int64_t>& values) { return {values.begin(), values.end()}; }

void choose_sizes(std::mt19937& random, PlainAttention& p) {
  p.batch = pick(random, 1, 2);
  p.kv_heads = pick(random, 1, 2);
  p.heads = p.kv_heads * pick(random, 1, 3);
  p.rows = pick(random, 1, 6);
  p.keys = pick(random, 0, 9);
  p.dim = pick(random, 1, 6);
  p.value_dim = pick(random, 1, 6);
  p.scale = 0.5;
  p.q = random_values(random, p.batch * p.heads * p.rows * p.dim);
  p.k = random_values(random, p.batch * p.kv_heads * p.keys * p.dim);
  p.v = random_values(random, p.batch * p.kv_heads * p.keys * p.value_dim);
}

void choose_rule(std::mt19937& random, Problem& problem) {
  AttentionOptions& o = problem.options;
  o.rule = static_cast<Rule>(pick(random, 0, 3));
  PlainAttention& p = problem.plain;
  if (o.rule == Rule::sigmoid) p.weights = PlainAttention::Weights::sigmoid;
  if (o.rule == Rule::linear) p.weights = PlainAttention::Weights::linear;
  const bool softmax = p.weights == PlainAttention::Weights::softmax;
  o.lse = softmax;
  o.sink = o.rule == Rule::softmax && chance(random, 30);
  if (o.sink) p.sinks = random_values(random, p.heads);
  if (o.rule == Rule::softmax_plus_one) p.sinks.assign(static_cast<std::size_t>(p.heads), 0);
  if (softmax && chance(random, 30)) o.top_k = static_cast<int>(p.top_k = pick(random, 1, 5));
  if (o.top_k != 0) o.top_k_renormalise = p.renormalise = chance(random, 50);
  if (o.top_k == 0 && chance(random, 30)) {
    o.dropout = true;
    p.dropout = 0.25;
    p.seed = pick(random, 0, 1 << 20) * (std::int64_t{1} << 20);
    p.offset = pick(random, 0, 1000);
  }
}

void choose_masks(std::mt19937& random, Problem& problem) {
  AttentionOptions& o = problem.options;
  PlainAttention& p = problem.plain;
  o.causal = p.causal = chance(random, 40);
  o.window = chance(random, 30);
  if (o.window) {
    p.window_left = pick(random, -1, 3);
    p.window_right = pick(random, -1, 3);
  }
  o.prefix = o.causal && chance(random, 40);
  o.documents = chance(random, 20);
  o.mask = chance(random, 30);
  if (chance(random, 30)) o.lengths = Lengths::used;
  const std::int64_t pairs = p.batch * p.heads * p.rows * p.keys;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    if (o.lengths == Lengths::used) p.lens.push_back(pick(random, 0, p.keys));
    if (o.prefix) p.prefix.push_back(pick(random, 0, 4));
  }
  for (std::int64_t j = 0; o.documents && j < p.batch * p.keys; ++j) p.documents.push_back(pick(random, 0, 1));
  for (std::int64_t j = 0; o.mask && j < pairs; ++j) p.mask.push_back(chance(random, 70));
}

void choose_modifiers(std::mt19937& random, Problem& problem) {
  AttentionOptions& o = problem.options;
  PlainAttention& p = problem.plain;
  o.softcap = chance(random, 30);
  if (o.softcap) p.softcap = 2;
  o.alibi = chance(random, 30);
  if (o.alibi) p.slopes = random_values(random, p.batch * p.heads, 8);
  o.bias = chance(random, 30);
  if (!o.bias) return;
  p.bias = random_values(random, p.batch * p.heads * p.rows * p.keys);
  const bool whole_row = p.weights == PlainAttention::Weights::softmax && chance(random, 30);
  for (double& x : p.bias)
    if (whole_row && chance(random, 40)) x = -std::numeric_limits<double>::infinity();
}

void add_captured(Problem& problem) {
  const PlainAttention& p = problem.plain;
  Arguments& a = problem.arguments;
  const std::vector<std::int64_t> pairs{p.batch, p.heads, p.rows, p.keys};
  if (problem.options.bias) a.add("bias", pairs, p.bias);
  if (problem.options.mask) a.add("mask", pairs, {p.mask.begin(), p.mask.end()}, DType::boolean);
  if (problem.options.alibi) a.add("alibi_slopes", {p.batch, p.heads}, p.slopes);
  if (problem.options.sink) a.add("sink", {p.heads}, p.sinks);
  if (problem.options.prefix) a.add("prefix_len", {p.batch}, as_doubles(p.prefix), DType::int32);
  if (problem.options.documents) a.add("doc_ids", {p.batch, p.keys}, as_doubles(p.documents), DType::int64);
  if (problem.options.lengths == Lengths::used) a.add("kv_lens", {p.batch}, as_doubles(p.lens), DType::int32);
  a.scalar("softcap", p.softcap);
  a.scalar("window_left", static_cast<double>(p.window_left));
  a.scalar("window_right", static_cast<double>(p.window_right));
  a.scalar("seed", static_cast<double>(p.seed));
  a.scalar("offset", static_cast<double>(p.offset));
  a.scalar("dropout_threshold", p.dropout * 4294967296.0);
  a.scalar("dropout_scale", 1 / (1 - p.dropout));
}

}  // namespace

void Arguments::add(const std::string& name, std::vector<std::int64_t> shape, const std::vector<double>& values,
                    DType type) {
  const std::size_t size = size_of(type);
  std::vector<char>& bytes = bytes_[name];
  bytes.assign(std::max<std::size_t>(1, values.size()) * size, 0);
  for (std::size_t i = 0; i < values.size(); ++i) write_element(type, bytes.data() + i * size, values[i]);
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides[d] = stride;
  inputs.tensors[name] = {type, bytes.data(), std::move(shape), std::move(strides)};
}

std::vector<double> random_values(std::mt19937& random, std::int64_t count, int largest) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(pick(random, -largest, largest)) / 8);
  return values;
}

void add_qkv(Arguments& arguments, const PlainAttention& p) {
  arguments.inputs.batch = p.batch;
  arguments.inputs.heads = p.heads;
  arguments.add("q", {p.batch, p.heads, p.rows, p.dim}, p.q);
  arguments.add("k", {p.batch, p.kv_heads, p.keys, p.dim}, p.k);
  arguments.add("v", {p.batch, p.kv_heads, p.keys, p.value_dim}, p.v);
  arguments.scalar("scale", p.scale);
}

Problem random_problem(std::mt19937& random) {
  Problem problem;
  choose_sizes(random, problem.plain);
  choose_rule(random, problem);
  choose_masks(random, problem);
  choose_modifiers(random, problem);
  add_qkv(problem.arguments, problem.plain);
  add_captured(problem);
  return problem;
}

double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double d = std::fabs(a[i] - b[i]);
    worst = std::isfinite(d) ? std::max(worst, d) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

}  // namespace attile::test
