#include "codegen/layout.h"

#include <algorithm>
#include <functional>

#include "codegen/walk.h"
#include "dsl/expr_walk.h"

namespace attile::ir {
namespace {

void add_variables(const Kernel& kernel, const Expr& e, std::set<int>& out) {
  for_each_node({e}, [&](const Node& node) {
    if (node.op != Op::variable) return;
    if (const Value v = kernel.find(node.name); v.id >= 0) out.insert(v.id);
  });
}

// The panel body with the most statements: the masked variants hold every op of the plain one.
const Block* fullest_panel_body(const Block& body) {
  const Block* best = nullptr;
  for (const Stmt& s : body) {
    const Loop* loop = std::get_if<Loop>(&s.node);
    if (!loop) continue;
    if (loop->kind != LoopKind::panels) {
      if (const Block* inner = fullest_panel_body(loop->body)) return inner;
      continue;
    }
    best = &loop->body;
    if (loop->body.size() == 1)
      if (const auto* v = std::get_if<Visibility>(&loop->body.front().node)) best = v->guarded.empty() ? &v->masked : &v->guarded;
    return best;
  }
  return best;
}

}  // namespace

std::set<int> values_written(const Stmt& s) {
  std::set<int> out;
  std::visit(overloaded{
                 [&](const Copy& op) { out.insert(op.dst.id); },
                 [&](const Prefetch& op) { out.insert(op.dst.id); },
                 [&](const Fill& op) { out.insert(op.dst.id); },
                 [&](const ScoreMma& op) { out.insert(op.dst.id); },
                 [&](const SumMma& op) { out.insert(op.acc.id); },
                 [&](const Map& op) { out.insert(op.dst.id); },
                 [&](const Mask& op) { out.insert(op.tile.id); },
                 [&](const RowReduce& op) { out.insert(op.acc.id); },
                 [&](const Rescale& op) { out.insert(op.acc.id); },
                 [&](const Insert& op) { out.insert({op.values.id, op.indices.id}); },
                 [&](const Gather& op) { out.insert(op.dst.id); },
                 [&](const Restore& op) { out.insert(op.state.id); },
                 [](const auto&) {},
             },
             s.node);
  for (const Block* inner : blocks_of(s))
    for (const Stmt& nested : *inner) out.merge(values_written(nested));
  return out;
}

std::set<int> values_read(const Kernel& kernel, const Stmt& s) {
  std::set<int> out;
  std::visit(overloaded{
                 [&](const ScoreMma& op) { out.insert({op.a.id, op.b.id}); },
                 [&](const SumMma& op) { out.insert({op.acc.id, op.p.id, op.v.id}); },
                 [&](const Map& op) { add_variables(kernel, op.expr, out); },
                 [&](const Mask& op) { out.insert(op.tile.id); },
                 [&](const RowReduce& op) { out.insert({op.acc.id, op.src.id}); },
                 [&](const Rescale& op) { out.insert({op.acc.id, op.factor.id}); },
                 [&](const Insert& op) { out.insert({op.values.id, op.indices.id, op.src.id}); },
                 [&](const Store& op) { out.insert(op.src.id); },
                 [&](const Save& op) { out.insert(op.state.id); },
                 [&](const Gather& op) {
                   add_variables(kernel, op.weight, out);
                   out.insert(op.indices.id);
                 },
                 [](const auto&) {},
             },
             s.node);
  for (const Block* inner : blocks_of(s))
    for (const Stmt& nested : *inner) out.merge(values_read(kernel, nested));
  return out;
}

StreamBuffers assign_stream_buffers(const Kernel& kernel) {
  StreamBuffers result;
  const Block* body = fullest_panel_body(kernel.body);
  if (!body) return result;
  std::map<int, std::pair<int, int>> life;   // value → first definition, last use
  for (int i = 0; i < static_cast<int>(body->size()); ++i) {
    const Stmt& s = (*body)[static_cast<std::size_t>(i)];
    std::set<int> touched = values_written(s);
    touched.merge(values_read(kernel, s));
    for (const int v : touched)
      if (kernel.values[static_cast<std::size_t>(v)].axis == Axis::stream) life.try_emplace(v, i, i).first->second.second = i;
  }
  std::vector<int> free_from;   // per buffer: statement in which its present tile is last used
  std::vector<std::pair<int, int>> order;
  for (const auto& [v, range] : life) order.emplace_back(range.first, v);
  std::sort(order.begin(), order.end());
  for (const auto& [start, v] : order) {
    const bool in_sweep = std::holds_alternative<Sweep>((*body)[static_cast<std::size_t>(start)].node);
    if (life[v].second == start && in_sweep) continue;
    int chosen = -1;
    for (int b = 0; b < result.count && chosen < 0; ++b)
      if (free_from[static_cast<std::size_t>(b)] < start + (in_sweep ? 1 : 0)) chosen = b;
    if (chosen < 0) {
      chosen = result.count++;
      free_from.push_back(0);
    }
    free_from[static_cast<std::size_t>(chosen)] = life[v].second;
    result.buffer_of[v] = chosen;
  }
  return result;
}

}  // namespace attile::ir
