#include "dsl/algorithm.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/algorithm_check.h"
#include "dsl/error.h"
#include "dsl/expr_ops.h"

namespace attile {
inline namespace v1 {

namespace {

constexpr int largest_selection = 128;

Expr number(Expr e) { return e.empty() || e->kind != Kind::integer ? e : to_real(e); }

Dims state_dims(const Algorithm& a, const Expr& update) {
  Dims dims{batch, head, a.parallel};
  for (const Dim& d : extra_dims(a, update)) dims.push_back(d);
  return dims;
}

void add_state(Algorithm& a, StateDecl decl) {
  check_name("a state's name", decl.name);
  if (decl.name == "from" || decl.name == "to")
    refuse_algorithm(a, fmt::format("\"{}\" cannot name a state: the rescale rule uses the word", decl.name));
  if (a.find_state(decl.name) != nullptr) refuse_algorithm(a, fmt::format("two states are named \"{}\"", decl.name));
  if (decl.update->kind == Kind::boolean)
    refuse_algorithm(a, fmt::format("the state \"{}\" is made of booleans", decl.name),
                     "select(condition, 1.0, 0.0) counts");
  a.states.push_back(std::move(decl));
}

void add_output(Algorithm& a, std::string name, const Expr& value, bool per_position) {
  check_name("an output's name", name);
  for (const OutputDecl& o : a.outputs)
    if (o.name == name) refuse_algorithm(a, fmt::format("two outputs are named \"{}\"", name));
  if (value->kind == Kind::boolean)
    refuse_algorithm(a, fmt::format("the output \"{}\" is boolean", name),
                     "select(condition, 1.0, 0.0) makes a number of it");
  a.outputs.push_back({std::move(name), value, value->kind, per_position});
}

void check_stream_dims(const std::string& name, const Dim& parallel, const Dim& streamed) {
  const std::string where = fmt::format("for_tiles(\"{}\", {})", name, parallel.name);
  check_name("for_tiles", name);
  for (const Dim& d : {parallel, streamed}) {
    check_name(where, d.name);
    if (is_batch_like(d))
      throw Error(ErrorKind::argument, where,
                  fmt::format("{} only chooses a problem and cannot be tiled or streamed", d.name));
  }
  if (parallel == streamed)
    throw Error(ErrorKind::argument, where, fmt::format("{} is the parallel and the streamed dim", parallel.name));
}

}  // namespace

Tensor::operator Expr() const {
  std::vector<Expr> at;
  for (const Dim& d : dims_) at.emplace_back(d);
  return element(std::move(at));
}

Expr Tensor::element(std::vector<Expr> at) const {
  Node node{};
  node.op = Op::element;
  node.kind = kind_;
  node.args = std::move(at);
  node.value = outside_;
  node.name = name_;
  node.axes = dims_;
  return make_expr(std::move(node));
}

Tensor input(std::string name, Dims dims, Kind kind, double outside) {
  check_name("input", name);
  const std::string where = fmt::format("input(\"{}\")", name);
  if (dims.empty())
    throw Error(ErrorKind::argument, where, "a tensor needs at least one dim", "use scalar() for one number");
  for (std::size_t i = 0; i < dims.size(); ++i) {
    check_name(where, dims[i].name);
    if (std::find(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(i), dims[i]) !=
        dims.begin() + static_cast<std::ptrdiff_t>(i))
      throw Error(ErrorKind::argument, where, fmt::format("the dim {} is given twice", dims[i].name));
  }
  return Tensor(std::move(name), std::move(dims), kind, outside);
}

State::State(std::string name, Dims dims, Kind kind) : expr_(variable(std::move(name), std::move(dims), kind)) {}
const std::string& State::name() const { return expr_->name; }

Expr RescaleRule::apply(const Expr& from_value, const Expr& to_value) const {
  return substitute(factor, {{from->name, from_value}, {to->name, select(to_value == -infinity(), 0.0, to_value)}});
}

const StateDecl* Algorithm::find_state(std::string_view state_name) const {
  auto at = std::find_if(states.begin(), states.end(), [&](const StateDecl& s) { return s.name == state_name; });
  return at == states.end() ? nullptr : &*at;
}

const InputDecl* Algorithm::find_input(std::string_view input_name) const {
  auto at = std::find_if(inputs.begin(), inputs.end(), [&](const InputDecl& i) { return i.name == input_name; });
  return at == inputs.end() ? nullptr : &*at;
}

Dims output_dims(const Algorithm& a, const OutputDecl& output) {
  Dims dims{batch, head, a.parallel};
  if (output.per_position) dims.push_back(a.streamed);
  for (const Dim& d : extra_dims(a, output.value)) dims.push_back(d);
  return dims;
}

void Finish::output(std::string name, const Expr& value) {
  check_expression(algorithm_, fmt::format("output(\"{}\")", name), value,
                   {.streamed = false, .states = true, .extra = 1});
  add_output(algorithm_, std::move(name), value, false);
}

Expr Finish::rebased(const State& s, const Expr& to) const {
  const RescaleRule* rule = algorithm_.rule();
  const bool listed = rule != nullptr && std::find(rule->sums.begin(), rule->sums.end(), s.name()) != rule->sums.end();
  if (!listed)
    refuse_algorithm(algorithm_, fmt::format("rebased(\"{}\"): no rescale rule lists this sum", s.name()),
                     "call rescale first");
  return Expr(s) * rule->apply(variable(rule->reference, {batch, head, algorithm_.parallel}), to);
}

void Stream::visible(const Expr& predicate) {
  check_expression(algorithm_, "visible", predicate, {});
  if (predicate->kind != Kind::boolean)
    refuse_algorithm(algorithm_, fmt::format("visible takes a condition, but {} is a number", to_string(predicate)),
                     "compare it with something");
  algorithm_.visible = algorithm_.visible.empty() ? predicate : algorithm_.visible && predicate;
}

State Stream::running_max(std::string name, const Expr& s) {
  check_expression(algorithm_, fmt::format("running_max(\"{}\")", name), s, {});
  for (const StateDecl& state : algorithm_.states)
    if (state.kind == StateKind::reference)
      refuse_algorithm(algorithm_, fmt::format("\"{}\" would be a second reference beside \"{}\"", name, state.name),
                       "one running_max is the limit");
  add_state(algorithm_, {StateKind::reference, name, number(s), 0, {}});
  return State(std::move(name), {batch, head, algorithm_.parallel});
}

State Stream::sum(std::string name, const Expr& x) {
  check_expression(algorithm_, fmt::format("sum(\"{}\")", name), x, {.reference = true, .extra = 1});
  add_state(algorithm_, {StateKind::sum, name, number(x), 0, {}});
  return State(std::move(name), state_dims(algorithm_, x));
}

Selection Stream::top_k(std::string name, const Expr& s, int k) { return top_k(std::move(name), s, k, Expr()); }

Selection Stream::top_k(std::string name, const Expr& s, int k, const Expr& payload) {
  const std::string what = fmt::format("top_k(\"{}\")", name);
  const std::size_t slots = payload.empty() ? 0 : 1;
  check_expression(algorithm_, what, s, {.extra = slots});
  if (!payload.empty()) check_expression(algorithm_, what + "'s payload", payload, {.extra = slots});
  const Dims extra = extra_dims(algorithm_, s);
  if (!extra.empty() && !(extra[0] == slot))
    refuse_algorithm(algorithm_, fmt::format("{} varies along {}", what, extra[0].name));
  if (!payload.empty() && payload->kind != Kind::integer)
    refuse_algorithm(algorithm_, what + "'s payload is not an integer");
  for (const StateDecl& state : algorithm_.states)
    if (state.kind == StateKind::selection)
      refuse_algorithm(algorithm_, fmt::format("\"{}\" would be a second selection beside \"{}\"", name, state.name),
                       "one top_k is the limit");
  if (k < 1 || k > largest_selection)
    refuse_algorithm(algorithm_, fmt::format("{} keeps {} entries", what, k),
                     fmt::format("k is 1 to {}", largest_selection));
  add_state(algorithm_, {StateKind::selection, name, number(s), k, payload});
  const Dims dims{batch, head, algorithm_.parallel, slot};
  return {State(name + ".values", dims), State(name + ".indices", dims, Kind::integer)};
}

void Stream::rescale(const std::vector<State>& sums, const std::function<Expr(Expr from, Expr to)>& factor) {
  Algorithm& a = algorithm_;
  if (a.rule() != nullptr) refuse_algorithm(a, "rescale is called twice", "list all sums in one call");
  RescaleRule rule;
  for (const StateDecl& s : a.states)
    if (s.kind == StateKind::reference) rule.reference = s.name;
  if (rule.reference.empty())
    refuse_algorithm(a, "rescale is called without a reference", "declare running_max before rescale");
  if (sums.empty()) refuse_algorithm(a, "rescale lists no sum");
  for (const State& s : sums) {
    const StateDecl* decl = a.find_state(s.name());
    if (decl == nullptr || decl->kind != StateKind::sum)
      refuse_algorithm(a, fmt::format("rescale lists \"{}\", which is no sum", s.name()));
    if (std::find(rule.sums.begin(), rule.sums.end(), s.name()) != rule.sums.end())
      refuse_algorithm(a, fmt::format("rescale lists \"{}\" twice", s.name()));
    rule.sums.push_back(s.name());
  }
  rule.from = variable("from", {});
  rule.to = variable("to", {});
  rule.factor = number(factor(rule.from, rule.to));
  a.rules.push_back(std::move(rule));
}

void Stream::emit(std::string name, const Expr& x) {
  check_expression(algorithm_, fmt::format("emit(\"{}\")", name), x, {});
  add_output(algorithm_, std::move(name), x, true);
}

void Stream::finish(const std::function<void(Finish&)>& body) {
  Finish f(algorithm_);
  body(f);
}

TileLoop for_tiles(std::string name, const Dim& parallel) { return TileLoop(std::move(name), parallel); }

TileLoop& TileLoop::lengths(Lengths kind) {
  lengths_ = kind;
  return *this;
}

Algorithm TileLoop::stream(const Dim& streamed, const std::function<void(Stream&)>& body) {
  check_stream_dims(name_, parallel_, streamed);
  Algorithm a;
  a.name = name_;
  a.parallel = parallel_;
  a.streamed = streamed;
  a.lengths = lengths_;
  Stream stream(a);
  body(stream);
  collect_arguments(a);
  check_algorithm(a);
  if (!a.visible.empty() && a.visible->op == Op::constant && a.visible->value != 0) a.visible = Expr();
  return a;
}

}  // namespace v1
}  // namespace attile
