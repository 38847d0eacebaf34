#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "codegen/ir_verify_rules.h"
#include "codegen/walk.h"

namespace attile::ir::rules {
namespace {

using Values = std::set<int>;

bool is_carried(const Loop& loop, Value v) {
  return std::find(loop.carry.begin(), loop.carry.end(), v) != loop.carry.end();
}

// An op that adds to, or joins into, a value, as opposed to scaling it.
bool sets(const Kernel& kernel, const Stmt& s, Value v) {
  if (std::holds_alternative<Rescale>(s.node)) return false;
  const Access a = access_of(kernel, s);
  return std::count(a.writes.begin(), a.writes.end(), v) + std::count(a.updates.begin(), a.updates.end(), v) > 0;
}

// Follows what is defined through nested blocks: what a loop's body defines is dead after it, and of what comes
// from outside a loop only carried values may change in it.
class Definitions {
 public:
  explicit Definitions(Findings& f) : f_(f) {}

  void run() {
    Values defined;
    for (std::size_t i = 0; i < f_.kernel.values.size(); ++i)
      if (const Space space = f_.kernel.values[i].space; space == Space::global || space == Space::workspace)
        defined.insert(static_cast<int>(i));
    block(f_.kernel.body, defined);
  }

 private:
  void block(const Block& body, Values& defined) {
    for (const Stmt& s : body) {
      if (const Loop* inner = std::get_if<Loop>(&s.node)) {
        loop(s, *inner, defined);
        continue;
      }
      op(s, defined);
      const bool choice = std::holds_alternative<Visibility>(s.node);
      for (const Block* inner : blocks_of(s)) {
        Values inside = defined;
        block(*inner, choice ? inside : defined);
      }
    }
  }

  void loop(const Stmt& s, const Loop& l, const Values& defined) {
    for (const Value v : l.carry)
      if (!defined.contains(v.id))
        f_.add(s, fmt::format("'{}' is carried but not defined before the loop", f_.kernel[v].name));
    loops_.push_back({&l, defined});
    Values inside = defined;
    block(l.body, inside);
    loops_.pop_back();
  }

  void op(const Stmt& s, Values& defined) {
    const Access a = access_of(f_.kernel, s);
    for (const auto* list : {&a.reads, &a.updates})
      for (const Value v : *list)
        if (!defined.contains(v.id)) f_.add(s, fmt::format("'{}' is read before it is defined", f_.kernel[v].name));
    for (const auto* list : {&a.writes, &a.updates})
      for (const Value v : *list) {
        changes(s, v);
        defined.insert(v.id);
      }
  }

  void changes(const Stmt& s, Value v) {
    for (const auto& [l, outside] : loops_)
      if (outside.contains(v.id) && !is_carried(*l, v))
        f_.add(s, fmt::format("'{}' comes from outside a loop that does not carry it", f_.kernel[v].name));
  }

  struct Enclosing {
    const Loop* loop;
    Values defined_outside;
  };
  Findings& f_;
  std::vector<Enclosing> loops_;
};

void check_definitions(Findings& f) { Definitions(f).run(); }

void check_carried_set_once(Findings& f) {
  walk(f.kernel.body, [&](const Stmt& s) {
    const Loop* loop = std::get_if<Loop>(&s.node);
    if (!loop) return;
    for (const Path& path : paths_of(loop->body))
      for (const Value v : loop->carry) {
        int count = 0;
        for (const Stmt* op : path)
          if (sets(f.kernel, *op, v) && ++count > 1) f.add(*op, fmt::format("'{}' is set again", f.kernel[v].name));
        if (count == 0)
          f.add(s, fmt::format("'{}' is carried but not set on one way through the body", f.kernel[v].name));
      }
  });
}

// The values that some Rescale touches.
Values rescaled_values(const Kernel& kernel) {
  Values out;
  walk(kernel.body, [&](const Stmt& s) {
    if (const Rescale* r = std::get_if<Rescale>(&s.node)) out.insert(r->acc.id);
  });
  return out;
}

// The accumulator that an op adds to; id −1 if none.
Value added_to(const Stmt& s) {
  if (const auto* sum = std::get_if<SumMma>(&s.node)) return sum->acc;
  if (const auto* row = std::get_if<RowReduce>(&s.node); row && row->op == Reduce::sum) return row->acc;
  return {};
}

void check_rescale_before_add(Findings& f) {
  const Values rescaled = rescaled_values(f.kernel);
  for (const Path& path : paths_of(f.kernel.body)) {
    std::map<int, const Stmt*> last;  // the latest Rescale of, or addition to, each accumulator
    for (const Stmt* s : path) {
      const Rescale* rescale = std::get_if<Rescale>(&s->node);
      const Value acc = rescale ? rescale->acc : added_to(*s);
      if (!rescaled.contains(acc.id)) continue;
      const std::string& name = f.kernel[acc].name;
      const bool seen = last.contains(acc.id);
      if (!rescale && !seen) f.add(*s, fmt::format("'{}' is added to before it is rescaled", name));
      if (rescale && seen)
        f.add(*s, fmt::format("'{}' is rescaled {}", name,
                              added_to(*last[acc.id]).id < 0 ? "twice" : "after it was added to"));
      last[acc.id] = s;
    }
  }
}

void check_rescaled_is_carried(Findings& f) {
  Values carried;
  walk(f.kernel.body, [&](const Stmt& s) {
    if (const Loop* loop = std::get_if<Loop>(&s.node))
      for (const Value v : loop->carry) carried.insert(v.id);
  });
  walk(f.kernel.body, [&](const Stmt& s) {
    if (const Rescale* r = std::get_if<Rescale>(&s.node); r && !carried.contains(r->acc.id))
      f.add(s, fmt::format("'{}' is rescaled but no loop carries it", f.kernel[r->acc].name));
  });
}

// All values whose contents depend on a running maximum.
Values dependent_on_reference(const Kernel& kernel) {
  Values out;
  const auto add = [&](bool depends, Value v) { return depends && out.insert(v.id).second; };
  for (bool grown = true; grown;) {
    grown = false;
    walk(kernel.body, [&](const Stmt& s) {
      if (const RowReduce* r = std::get_if<RowReduce>(&s.node)) grown |= add(r->op == Reduce::max, r->acc);
      if (const Map* m = std::get_if<Map>(&s.node)) {
        const std::vector<Value> reads = access_of(kernel, s).reads;
        grown |= add(std::any_of(reads.begin(), reads.end(), [&](Value v) { return out.contains(v.id); }), m->dst);
      }
    });
  }
  return out;
}

void check_dependent_sums_are_rescaled(Findings& f) {
  const Values dependent = dependent_on_reference(f.kernel), rescaled = rescaled_values(f.kernel);
  walk(f.kernel.body, [&](const Stmt& s) {
    const Value acc = added_to(s);
    if (acc.id < 0 || rescaled.contains(acc.id)) return;
    const SumMma* sum = std::get_if<SumMma>(&s.node);
    const Value weights = sum ? sum->p : std::get<RowReduce>(s.node).src;
    if (dependent.contains(weights.id))
      f.add(s, fmt::format("'{}' sums weights that depend on the reference and is never rescaled", f.kernel[acc].name));
  });
}

// A factor leads from the reference of before this iteration, so it must be computed before that is overwritten.
void check_factor_reads_old_reference(Findings& f) {
  Values factors;
  walk(f.kernel.body, [&](const Stmt& s) {
    if (const Rescale* r = std::get_if<Rescale>(&s.node)) factors.insert(r->factor.id);
  });
  walk(f.kernel.body, [&](const Stmt& s) {
    const Loop* loop = std::get_if<Loop>(&s.node);
    if (!loop || loop->carry.empty()) return;
    for (const Path& path : paths_of(loop->body)) {
      Values set;
      for (const Stmt* op : path) {
        if (const Map* m = std::get_if<Map>(&op->node); m && factors.contains(m->dst.id))
          for (const Value v : access_of(f.kernel, *op).reads)
            if (set.contains(v.id)) f.add(*op, fmt::format("'{}' has its new value already", f.kernel[v].name));
        for (const Value v : loop->carry)
          if (sets(f.kernel, *op, v)) set.insert(v.id);
      }
    }
  });
}

// What a loop over row tiles changes outlives its iteration only in the workspace.
void check_saved_states(Findings& f) {
  Values saved;
  std::set<const Stmt*> in_place;
  const auto body_of_row_tiles = [&](const Loop& rows) {
    std::map<int, const Stmt*> changed;
    for (const Stmt& s : rows.body) {
      in_place.insert(&s);
      if (const Restore* r = std::get_if<Restore>(&s.node); r && !saved.contains(r->state.id))
        f.add(s, fmt::format("'{}' was never saved", f.kernel[r->state].name));
      if (const Loop* panels = std::get_if<Loop>(&s.node))
        for (const Value v : panels->carry) changed[v.id] = &s;
      if (const Save* save = std::get_if<Save>(&s.node)) {
        saved.insert(save->state.id);
        changed.erase(save->state.id);
      }
    }
    for (const auto& [v, loop] : changed) f.add(*loop, fmt::format("'{}' is not saved after it", f.kernel[Value{v}].name));
  };
  walk(f.kernel.body, [&](const Stmt& s) {
    if (const Loop* loop = std::get_if<Loop>(&s.node); loop && loop->kind == LoopKind::row_tiles) body_of_row_tiles(*loop);
    const bool moves = std::holds_alternative<Save>(s.node) || std::holds_alternative<Restore>(s.node);
    if (moves && !in_place.contains(&s)) f.add(s, "it stands outside a loop over row tiles");
  });
}

// How far the copies of each value are ahead of the work: the largest `ahead` that was begun.
using Ahead = std::map<int, int>;

// One way through an iteration over the stream, with what was begun before it.
struct Rings {
  Findings& f;
  const Values& rings;
  Ahead ahead;
  Values there = {};       // awaited in this iteration

  void await(const Stmt& s, const Await& op) {
    for (const Value v : op.values) {
      const auto found = ahead.find(v.id);
      if (found == ahead.end() || found->second < op.pending)
        f.add(s, fmt::format("'{}' may be on its way still", f.kernel[v].name));
      there.insert(v.id);
    }
  }
  void read(const Stmt& s, Value v) {
    if (rings.contains(v.id) && !there.contains(v.id)) f.add(s, fmt::format("'{}' is read before it is awaited", f.kernel[v].name));
  }
  void step(const Stmt& s) {
    if (const auto* p = std::get_if<Prefetch>(&s.node)) {
      ahead[p->dst.id] = std::max(ahead[p->dst.id], p->ahead);
      if (p->ahead == 0) there.erase(p->dst.id);
    }
    if (const auto* a = std::get_if<Await>(&s.node)) await(s, *a);
    if (const auto* score = std::get_if<ScoreMma>(&s.node)) read(s, score->a), read(s, score->b);
    if (const auto* sum = std::get_if<SumMma>(&s.node)) read(s, sum->v);
  }
};

Values ring_values(const Kernel& kernel) {
  Values out;
  walk(kernel.body, [&](const Stmt& s) {
    if (const auto* p = std::get_if<Prefetch>(&s.node)) out.insert(p->dst.id);
  });
  return out;
}

// Calls `visit` for every way through an iteration over the stream, with what was begun before the loop.
void each_iteration(const Kernel& kernel, const std::function<void(const Path&, const Ahead&)>& visit) {
  Ahead begun;
  for (const Stmt& s : kernel.body) {
    if (const auto* p = std::get_if<Prefetch>(&s.node)) begun[p->dst.id] = std::max(begun[p->dst.id], p->ahead);
    const Loop* loop = std::get_if<Loop>(&s.node);
    if (!loop || loop->kind != LoopKind::key_tiles) continue;
    for (const Path& path : paths_of(loop->body)) visit(path, begun);
  }
}

void check_awaited(Findings& f) {
  const Values rings = ring_values(f.kernel);
  each_iteration(f.kernel, [&](const Path& path, const Ahead& begun) {
    Rings state{f, rings, begun};
    for (const Stmt* s : path) state.step(*s);
  });
}

// The tile that is a whole ring ahead takes the place of the one that the iteration before worked on.
void check_overwritten(Findings& f) {
  each_iteration(f.kernel, [&](const Path& path, const Ahead&) {
    bool gathered = false;   // have all warps left the iteration before?
    for (const Stmt* s : path) {
      gathered |= std::holds_alternative<Await>(s->node) || std::holds_alternative<Release>(s->node);
      const auto* p = std::get_if<Prefetch>(&s->node);
      if (!p) continue;
      const ValueDecl& d = f.kernel[p->dst];
      if (p->ahead >= d.stages) f.add(*s, fmt::format("'{}' has room for {} tiles", d.name, d.stages));
      if (p->ahead == d.stages - 1 && !gathered) f.add(*s, fmt::format("'{}' may be read there still", d.name));
    }
  });
}

// Where warps share the positions, what each has is a part until it is joined.
void check_joined(Findings& f) {
  const Values rescaled = rescaled_values(f.kernel);
  const Loop* stream = nullptr;
  for (const Stmt& s : f.kernel.body) {
    if (const auto* loop = std::get_if<Loop>(&s.node); loop && loop->kind == LoopKind::key_tiles) stream = loop;
    const auto* join = std::get_if<Join>(&s.node);
    if (!join) continue;
    if (!stream) {
      f.add(s, "it stands before the stream");
      continue;
    }
    for (const Value v : stream->carry)
      if (f.kernel[v].space == Space::panel && v != join->reference && std::find(join->sums.begin(), join->sums.end(), v) == join->sums.end())
        f.add(s, fmt::format("'{}' is left out", f.kernel[v].name));
    for (const Value v : join->sums)
      if (rescaled.contains(v.id) && join->factor.empty()) f.add(s, fmt::format("'{}' is rescaled in the stream and not here", f.kernel[v].name));
  }
}

}  // namespace

std::vector<Rule> flow_rules() {
  return {
      {"values are defined before they are read and carried where they last", Stage::tile_loops, check_definitions},
      {"a carried value is set once an iteration", Stage::tile_loops, check_carried_set_once},
      {"an accumulator of the rule is rescaled once, before it is added to", Stage::tile_loops,
       check_rescale_before_add},
      {"what is rescaled is carried", Stage::tile_loops, check_rescaled_is_carried},
      {"sums relative to a reference are rescaled", Stage::tile_loops, check_dependent_sums_are_rescaled},
      {"a factor reads the reference of before", Stage::tile_loops, check_factor_reads_old_reference},
      {"warps that share positions join every state", Stage::tile_loops, check_joined},
      {"what is copied ahead is awaited before a product reads it", Stage::pipeline, check_awaited},
      {"a copy ahead overwrites nothing that is read still", Stage::pipeline, check_overwritten},
      {"states outlive a row tile in the workspace", Stage::tile_loops, check_saved_states},
  };
}

}  // namespace attile::ir::rules
