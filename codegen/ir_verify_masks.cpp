#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "codegen/ir_verify_rules.h"
#include "codegen/passes/rewrite.h"
#include "codegen/walk.h"

namespace attile::ir::rules {
namespace {

// What a hidden position holds in each stream tile, followed through one body. Anything that sums, joins or
// writes such a tile must find the neutral element there.
class HiddenPositions {
 public:
  explicit HiddenPositions(Findings& f) : f_(f) {}

  void run(const Block& body) {
    walk(body, [&](const Stmt& s) {
      if (const Map* m = std::get_if<Map>(&s.node)) map(*m);
      if (const Mask* m = std::get_if<Mask>(&s.node)) hidden_[m->tile.id] = m->hidden;
      if (const RowReduce* r = std::get_if<RowReduce>(&s.node)) expect(s, r->src, r->op == Reduce::max);
      if (const Insert* i = std::get_if<Insert>(&s.node)) expect(s, i->src, true);
      if (const SumMma* sum = std::get_if<SumMma>(&s.node)) product(s, *sum);
      if (const Store* st = std::get_if<Store>(&s.node)) output(s, *st);
    });
  }

 private:
  // A weight that is 0 at a score of −inf needs no mask of its own.
  void map(const Map& m) {
    hidden_.erase(m.dst.id);
    for (const std::string& name : variables_of(m.expr)) {
      const auto score = hidden_.find(f_.kernel.find(name).id);
      if (score != hidden_.end() && std::isinf(score->second) && vanishes_at_minus_infinity(m.expr, name, f_.kernel.positive))
        hidden_[m.dst.id] = 0;
    }
  }

  void expect(const Stmt& s, Value tile, bool minus_infinity) {
    const auto found = hidden_.find(tile.id);
    const bool neutral = found != hidden_.end() &&
                         (minus_infinity ? std::isinf(found->second) && found->second < 0 : found->second == 0);
    if (!neutral)
      f_.add(s, fmt::format("'{}' is not {} at hidden positions", f_.kernel[tile].name, minus_infinity ? "−inf" : "0"));
  }

  void product(const Stmt& s, const SumMma& sum) {
    expect(s, sum.p, false);
    const auto found = hidden_.find(sum.p.id);
    if (sum.guarded && found != hidden_.end() && !std::signbit(found->second))
      f_.add(s, fmt::format("'{}' is not −0 at hidden positions", f_.kernel[sum.p].name));
  }

  void output(const Stmt& s, const Store& store) {
    if (f_.kernel[store.src].axis == Axis::stream) expect(s, store.src, false);
  }

  Findings& f_;
  std::map<int, double> hidden_;
};

bool has_mask(const Block& body) {
  bool found = false;
  walk(body, [&](const Stmt& s) { found |= std::holds_alternative<Mask>(s.node); });
  return found;
}

bool has_visibility(const Block& body) {
  bool found = false;
  walk(body, [&](const Stmt& s) { found |= std::holds_alternative<Visibility>(s.node); });
  return found;
}

void check_hidden_positions(Findings& f) {
  walk(f.kernel.body, [&](const Stmt& s) {
    if (const Visibility* v = std::get_if<Visibility>(&s.node)) {
      HiddenPositions(f).run(v->masked);
      HiddenPositions(f).run(v->guarded);
    }
    // Before the split the one body has all masks, or there is nothing to hide.
    const Loop* loop = std::get_if<Loop>(&s.node);
    if (loop && loop->kind == LoopKind::panels && has_mask(loop->body) && !has_visibility(loop->body))
      HiddenPositions(f).run(loop->body);
  });
}

void check_bodies_of_visibility(Findings& f) {
  std::set<const Stmt*> in_guarded;
  walk(f.kernel.body, [&](const Stmt& s) {
    const Visibility* v = std::get_if<Visibility>(&s.node);
    if (!v) return;
    if (v->predicate.empty()) f.add(s, "no predicate");
    walk(v->plain, [&](const Stmt& inner) {
      if (std::holds_alternative<Mask>(inner.node)) f.add(inner, "the plain body masks");
    });
    walk(v->guarded, [&](const Stmt& inner) { in_guarded.insert(&inner); });
    if (v->guarded.empty() && !v->watched.empty()) f.add(s, "values are watched but there is no guarded body");
  });
  walk(f.kernel.body, [&](const Stmt& s) {
    const SumMma* sum = std::get_if<SumMma>(&s.node);
    if (sum && sum->guarded != in_guarded.contains(&s))
      f.add(s, sum->guarded ? "guarded outside a guarded body" : "not guarded in a guarded body");
  });
}

// Both values of the products in the masked body must be watched, or inf · 0 goes unseen.
void check_watched(Findings& f) {
  walk(f.kernel.body, [&](const Stmt& s) {
    const Visibility* v = std::get_if<Visibility>(&s.node);
    if (!v) return;
    walk(v->masked, [&](const Stmt& inner) {
      const SumMma* sum = std::get_if<SumMma>(&inner.node);
      if (sum && std::find(v->watched.begin(), v->watched.end(), sum->v) == v->watched.end())
        f.add(inner, fmt::format("'{}' is not watched", f.kernel[sum->v].name));
    });
  });
}

// The outputs that a body writes at every position, with the op that writes each.
std::map<std::string, const Stmt*> position_outputs(const Kernel& kernel, const Block& body) {
  std::map<std::string, const Stmt*> out;
  walk(body, [&](const Stmt& s) {
    const Store* store = std::get_if<Store>(&s.node);
    if (store && kernel[store->src].axis == Axis::stream) out.emplace(store->tensor, &s);
  });
  return out;
}

// An output at every position is written at hidden ones too: no tile is passed over, and what stands in one body of
// a visibility stands in all.
void check_position_outputs(Findings& f) {
  walk(f.kernel.body, [&](const Stmt& s) {
    if (const auto* loop = std::get_if<Loop>(&s.node); loop && !loop->skip_unless.empty())
      for (const auto& [tensor, store] : position_outputs(f.kernel, loop->body))
        f.add(*store, fmt::format("'{}' stays unwritten where the whole tile is hidden", tensor));
    const auto* choice = std::get_if<Visibility>(&s.node);
    if (!choice) return;
    const auto hidden = position_outputs(f.kernel, choice->hidden);
    for (const Block* body : {&choice->plain, &choice->masked, &choice->guarded})
      for (const auto& [tensor, store] : position_outputs(f.kernel, *body))
        if (!hidden.contains(tensor)) f.add(*store, fmt::format("'{}' stays unwritten where the panel is hidden", tensor));
  });
}

// The hidden body writes zeros and nothing else.
void check_hidden_body(Findings& f) {
  walk(f.kernel.body, [&](const Stmt& s) {
    const auto* choice = std::get_if<Visibility>(&s.node);
    if (!choice) return;
    std::set<int> zero;
    walk(choice->hidden, [&](const Stmt& inner) {
      const Map* map = std::get_if<Map>(&inner.node);
      const Store* store = std::get_if<Store>(&inner.node);
      if (map && map->expr->op == Op::constant && map->expr->value == 0) zero.insert(map->dst.id);
      else if (store && !zero.contains(store->src.id)) f.add(inner, "a hidden output is not 0");
      else if (!store && !std::holds_alternative<Sweep>(inner.node)) f.add(inner, "the hidden body does more than write zeros");
    });
  });
}

// A reduced row value is complete only after the sweep.
void check_sweep(Findings& f, const Sweep& sweep) {
  std::set<int> reduced;
  walk(sweep.body, [&](const Stmt& s) {
    if (!elementwise_on_stream(f.kernel, s)) f.add(s, "a sweep holds only element-wise ops on tiles of the stream");
    const Access a = access_of(f.kernel, s);
    for (const Value v : a.reads)
      if (reduced.contains(v.id)) f.add(s, fmt::format("'{}' is reduced in this sweep", f.kernel[v].name));
    if (!std::holds_alternative<Mask>(s.node))
      for (const Value v : a.updates) reduced.insert(v.id);
  });
}

void check_sweeps(Findings& f) {
  walk(f.kernel.body, [&](const Stmt& s) {
    if (const Sweep* sweep = std::get_if<Sweep>(&s.node)) check_sweep(f, *sweep);
  });
}

void check_fused(Findings& f) {
  std::set<const Stmt*> in_sweep;
  walk(f.kernel.body, [&](const Stmt& s) {
    if (const Sweep* sweep = std::get_if<Sweep>(&s.node))
      walk(sweep->body, [&](const Stmt& inner) { in_sweep.insert(&inner); });
  });
  walk(f.kernel.body, [&](const Stmt& s) {
    if (elementwise_on_stream(f.kernel, s) && !in_sweep.contains(&s)) f.add(s, "it stands outside a sweep");
  });
}

}  // namespace

std::vector<Rule> mask_rules() {
  return {
      {"hidden positions are neutral where they are used", Stage::tile_loops, check_hidden_positions},
      {"the bodies of a visibility keep what they promise", Stage::split_ranges, check_bodies_of_visibility},
      {"what a masked product reads is watched", Stage::split_ranges, check_watched},
      {"every position of an output is written", Stage::split_ranges, check_position_outputs},
      {"a hidden body writes zeros", Stage::split_ranges, check_hidden_body},
      {"sweeps hold what one pass can do", Stage::tile_loops, check_sweeps},
      {"element-wise ops on tiles of the stream stand in sweeps", Stage::fuse, check_fused},
  };
}

}  // namespace attile::ir::rules
