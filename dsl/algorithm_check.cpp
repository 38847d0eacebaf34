#include "dsl/algorithm_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "dsl/error.h"
#include "dsl/expr_walk.h"
#include "dsl/law.h"

namespace attile {
inline namespace v1 {

namespace {

std::string dim_list(const Dims& dims) {
  std::string text;
  for (const Dim& d : dims) text += (text.empty() ? "" : ", ") + d.name;
  return "[" + text + "]";
}

void add_input(Algorithm& a, InputDecl decl) {
  for (const InputDecl& known : a.inputs) {
    if (known.name != decl.name) continue;
    if (known.dims == decl.dims && known.kind == decl.kind) return;
    refuse_algorithm(a,
                     fmt::format("tensor \"{}\" is declared twice, with dims {} and {}", decl.name,
                                 dim_list(known.dims), dim_list(decl.dims)),
                     "use one declaration, or two names");
  }
  a.inputs.push_back(std::move(decl));
}

void add_scalar(Algorithm& a, const Node& node) {
  for (const ScalarDecl& known : a.scalars) {
    if (known.name != node.name) continue;
    if (known.kind == node.kind) return;
    refuse_algorithm(a, fmt::format("scalar \"{}\" is used as a real and as an integer", node.name));
  }
  a.scalars.push_back({node.name, node.kind});
}

// The state that a variable belongs to: "m", or for a selection "t" of "t.values".
const StateDecl* owner(const Algorithm& a, const std::string& variable_name) {
  for (const StateDecl& s : a.states) {
    if (s.kind != StateKind::selection && s.name == variable_name) return &s;
    if (s.kind == StateKind::selection && (variable_name == s.name + ".values" || variable_name == s.name + ".indices"))
      return &s;
  }
  return nullptr;
}

void check_variable(const Algorithm& a, const std::string& what, const Node& node, const ExprLimits& limits) {
  const StateDecl* state = owner(a, node.name);
  if (state == nullptr)
    refuse_algorithm(a, fmt::format("{} reads \"{}\", which is no state of this algorithm", what, node.name),
                     "from and to mean something only inside the factor; states come from running_max, sum and top_k");
  if (limits.states || (limits.reference && state->kind == StateKind::reference)) return;
  refuse_algorithm(a, fmt::format("{} reads the state \"{}\"", what, state->name),
                   limits.reference ? "inside the stream only the reference may be read; combine sums in finish"
                                    : "states are read in finish; inside the stream a sum may read the reference");
}

bool reads_state(const Expr& e, const StateDecl& s) {
  if (s.kind != StateKind::selection) return depends_on_variable(e, s.name);
  return depends_on_variable(e, s.name + ".values") || depends_on_variable(e, s.name + ".indices");
}

void check_states_used(const Algorithm& a) {
  for (const StateDecl& s : a.states) {
    bool used = false;
    for (const OutputDecl& o : a.outputs) used = used || reads_state(o.value, s);
    for (const StateDecl& other : a.states) used = used || (&other != &s && reads_state(other.update, s));
    if (!used)
      refuse_algorithm(a, fmt::format("the state \"{}\" is never read", s.name), "use it in an output or leave it out");
  }
}

void check_names(const Algorithm& a) {
  std::set<std::string> arguments, states;
  for (const InputDecl& in : a.inputs) arguments.insert(in.name);
  for (const ScalarDecl& s : a.scalars)
    if (!arguments.insert(s.name).second)
      refuse_algorithm(a, fmt::format("\"{}\" names a tensor and a scalar", s.name));
  for (const StateDecl& s : a.states)
    if (arguments.count(s.name) != 0)
      refuse_algorithm(a, fmt::format("\"{}\" names a state and an argument", s.name), "rename one of them");
  for (const OutputDecl& o : a.outputs)
    if (arguments.count(o.name) != 0)
      refuse_algorithm(a, fmt::format("\"{}\" names an output and an argument", o.name), "rename one of them");
}

const StateDecl* reference_of(const Algorithm& a) {
  for (const StateDecl& s : a.states)
    if (s.kind == StateKind::reference) return &s;
  return nullptr;
}

void check_rule(const Algorithm& a) {
  const StateDecl* reference = reference_of(a);
  const RescaleRule* rule = a.rule();
  for (const StateDecl& s : a.states) {
    if (reference == nullptr || s.kind != StateKind::sum || !depends_on_variable(s.update, reference->name)) continue;
    const bool listed = rule != nullptr && std::find(rule->sums.begin(), rule->sums.end(), s.name) != rule->sums.end();
    if (!listed)
      refuse_algorithm(a,
                       fmt::format("the sum \"{}\" reads the reference \"{}\", but {}", s.name, reference->name,
                                   rule == nullptr ? "there is no rescale rule" : "rescale does not list it"),
                       fmt::format("say how it changes with the reference: rescale({{{}}}, factor)", s.name));
  }
  if (rule != nullptr) check_law(a);
}

}  // namespace

void refuse_algorithm(const Algorithm& a, const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::argument, fmt::format("for_tiles(\"{}\", {})", a.name, a.parallel.name), what, remedy);
}

Dims extra_dims(const Algorithm& a, const Dims& dims) {
  Dims extra;
  for (const Dim& d : dims)
    if (!is_batch_like(d) && !(d == a.parallel) && !(d == a.streamed)) extra.push_back(d);
  return extra;
}

bool contracts_stream(const Algorithm& a, const Expr& e) {
  return (e->op == Op::dot || e->op == Op::reduce_sum) && e->dim == a.streamed;
}

std::vector<Expr> all_expressions(const Algorithm& a) {
  std::vector<Expr> all;
  for (const StateDecl& s : a.states) {
    all.push_back(s.update);
    if (!s.payload.empty()) all.push_back(s.payload);
  }
  if (!a.visible.empty()) all.push_back(a.visible);
  for (const RescaleRule& r : a.rules) all.push_back(r.factor);
  for (const OutputDecl& o : a.outputs) all.push_back(o.value);
  return all;
}

void collect_arguments(Algorithm& a) {
  a.inputs.clear();
  a.scalars.clear();
  for_each_node(all_expressions(a), [&](const Node& node) {
    if (node.op == Op::element) add_input(a, {node.name, node.axes, node.kind});
    if (node.op == Op::scalar) add_scalar(a, node);
  });
  if (a.lengths == Lengths::used) add_input(a, {"kv_lens", {batch}, Kind::integer});
  if (a.lengths == Lengths::packed) {
    add_input(a, {"cu_seqlens_q", {batch}, Kind::integer});
    add_input(a, {"cu_seqlens_k", {batch}, Kind::integer});
  }
}

void check_expression(const Algorithm& a, const std::string& what, const Expr& e, const ExprLimits& limits) {
  if (e.empty()) refuse_algorithm(a, fmt::format("{} is an empty Expr", what));
  if (!limits.streamed && has_free_dim(e, a.streamed))
    refuse_algorithm(a, fmt::format("{} varies along the streamed dim {}", what, a.streamed.name),
                     "after the stream only states, row values and gathers by a selection exist");
  const Dims extra = extra_dims(a, e);
  if (extra.size() > limits.extra)
    refuse_algorithm(a, fmt::format("{} varies along {}", what, dim_list(extra)),
                     limits.extra == 0 ? "contract these dims with dot or reduce_sum"
                                       : "one dim beside rows and positions is the limit");
  const bool whole = limits.streamed && limits.reference && contracts_stream(a, e);
  for_each_node({e}, [&](const Node& node) {
    if (node.op == Op::variable) check_variable(a, what, node, limits);
    const bool contracts = (node.op == Op::dot || node.op == Op::reduce_sum) && node.dim == a.streamed;
    if ((node.op == Op::dot || node.op == Op::reduce_sum) && node.dim == a.parallel)
      refuse_algorithm(a, fmt::format("{} sums over the parallel dim {}", what, a.parallel.name),
                       "rows are independent of each other");
    if (contracts && !(whole && &node == e.get()))
      refuse_algorithm(
          a, fmt::format("{} sums over the streamed dim {} inside a larger expression", what, a.streamed.name),
          "only the whole operand of sum() may: sum(\"o\", dot(p, v)), the rest in finish");
  });
}

void check_algorithm(const Algorithm& a) {
  if (a.outputs.empty()) refuse_algorithm(a, "there is no output", "give one in finish or with emit");
  check_names(a);
  check_states_used(a);
  check_rule(a);
}

}  // namespace v1
}  // namespace attile
