#include "dsl/derive.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/algorithm_check.h"
#include "dsl/error.h"
#include "dsl/expr_walk.h"

namespace attile {
inline namespace v1 {

namespace {

std::string part_name(const std::string& state) { return "part." + state; }

// The states that a declaration stands for: one, or a selection's values and indices.
std::vector<State> states_of(const Algorithm& a, const StateDecl& s) {
  Dims dims{batch, head, a.parallel};
  if (s.kind == StateKind::selection) {
    dims.push_back(slot);
    return {State(s.name + ".values", dims), State(s.name + ".indices", dims, Kind::integer)};
  }
  for (const Dim& d : extra_dims(a, s.update)) dims.push_back(d);
  return {State(s.name, dims)};
}

// Element of the tensor that holds one state of every part.
Expr of_part(const Algorithm& a, const State& s) {
  const Expr value = s;
  Dims dims{batch, head, a.parallel, part};
  for (const Dim& d : extra_dims(a, value)) dims.push_back(d);
  return input(part_name(s.name()), dims, value->kind);
}

Algorithm partial_of(const Algorithm& a) {
  Algorithm partial = a;
  partial.name = a.name + ".partial";
  partial.outputs.clear();
  for (const StateDecl& s : a.states)
    for (const State& state : states_of(a, s)) {
      const Expr value = state;
      partial.outputs.push_back({part_name(state.name()), value, value->kind, false});
    }
  collect_arguments(partial);
  return partial;
}

void merge_state(const Algorithm& a, const StateDecl& s, Stream& t) {
  const std::vector<State> states = states_of(a, s);
  const Expr value = of_part(a, states[0]);
  if (s.kind == StateKind::reference) {
    t.running_max(s.name, value);
  } else if (s.kind == StateKind::selection) {
    t.top_k(s.name, value, s.count, of_part(a, states[1]));
  } else {
    const RescaleRule* rule = a.rule();
    const bool rescaled =
        rule != nullptr && std::find(rule->sums.begin(), rule->sums.end(), s.name) != rule->sums.end();
    if (!rescaled) {
      t.sum(s.name, value);
      return;
    }
    const State reference(rule->reference, {batch, head, a.parallel});
    t.sum(s.name, value * substitute(rule->factor, {{"from", of_part(a, reference)}, {"to", reference}}));
  }
}

// Whether the epilogue needs the number of keys, which in the `used` form comes from kv_lens.
bool finish_reads_length(const Algorithm& a) {
  bool reads = false;
  for (const OutputDecl& o : a.outputs)
    for_each_node({o.value}, [&](const Node& node) { reads = reads || (node.op == Op::length && node.dim == key); });
  return reads;
}

Algorithm merge_of(const Algorithm& a) {
  const bool dense = a.lengths == Lengths::used && !finish_reads_length(a);
  return for_tiles(a.name + ".merge", a.parallel)
      .lengths(dense ? Lengths::dense : a.lengths)
      .stream(part, [&](Stream& t) {
        for (const StateDecl& s : a.states) merge_state(a, s, t);
        if (const RescaleRule* rule = a.rule()) {
          std::vector<State> sums;
          for (const std::string& name : rule->sums) sums.push_back(states_of(a, *a.find_state(name))[0]);
          t.rescale(sums, [&](const Expr& from, const Expr& to) {
            return substitute(rule->factor, {{"from", from}, {"to", to}});
          });
        }
        t.finish([&](Finish& f) {
          for (const OutputDecl& o : a.outputs) f.output(o.name, o.value);
        });
      });
}

}  // namespace

SplitAlgorithm split(const Algorithm& a) {
  const std::string where = fmt::format("split(\"{}\")", a.name);
  for (const OutputDecl& o : a.outputs)
    if (o.per_position)
      throw Error(ErrorKind::unsupported, where,
                  fmt::format("\"{}\" is written at every position, so parts have nothing to merge", o.name),
                  "run it unsplit");
  if (a.states.empty())
    throw Error(ErrorKind::unsupported, where, "there is no state to carry over parts", "run it unsplit");
  if (a.streamed == part)
    throw Error(ErrorKind::unsupported, where, "a merge is not split again", "merge all parts at once");
  return {partial_of(a), merge_of(a)};
}

}  // namespace v1
}  // namespace attile
