#include "codegen/ir_verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "codegen/ir_verify_rules.h"
#include "codegen/walk.h"
#include "dsl/error.h"

namespace attile::ir {
namespace rules {
namespace {

bool declared(const Kernel& kernel, Value v) {
  return v.id >= 0 && static_cast<std::size_t>(v.id) < kernel.values.size();
}

std::string name_of(const Kernel& kernel, Value v) {
  return declared(kernel, v) ? kernel[v].name : fmt::format("?{}", v.id);
}

// The Values among an op's fields.
void collect(std::vector<Value>& out, Value v) { out.push_back(v); }
void collect(std::vector<Value>& out, const std::vector<Value>& list) {
  out.insert(out.end(), list.begin(), list.end());
}
template <typename Other>
void collect(std::vector<Value>&, const Other&) {}

std::vector<Value> values_of(const Stmt& s) {
  std::vector<Value> out;
  std::visit(
      [&](const auto& op) { std::apply([&](const auto&... field) { (collect(out, field), ...); }, op.fields()); },
      s.node);
  if (std::holds_alternative<Join>(s.node)) std::erase_if(out, [](Value v) { return v.id < 0; });   // no reference
  return out;
}

Stmt without_bodies(const Stmt& s) {
  return std::visit(overloaded{
                        [](const Loop& l) {
                          return Stmt{Loop{l.kind, l.carry, l.skip_unless, {}}};
                        },
                        [](const Visibility& v) {
                          return Stmt{Visibility{v.predicate, v.watched, {}, {}, {}, {}}};
                        },
                        [](const Sweep&) { return Stmt{Sweep{}}; },
                        [](const Advance& a) {
                          return Stmt{Advance{a.reference, a.maximum, a.slack, a.scale, {}}};
                        },
                        [](const auto& op) { return Stmt{op}; },
                    },
                    s.node);
}

// Trees share branches, so each branch is visited once.
void collect_variables(const Expr& e, std::set<const Node*>& seen, std::vector<std::string>& out) {
  if (e.empty()) return;
  if (e->op == Op::variable) out.push_back(e->name);
  if (e->args.empty() || !seen.insert(e.get()).second) return;
  for (const Expr& arg : e->args) collect_variables(arg, seen, out);
}

void check_declared(Findings& f) {
  walk(f.kernel.body, [&](const Stmt& s) {
    for (const Value v : values_of(s))
      if (!declared(f.kernel, v)) f.add(s, fmt::format("value {} is not declared", v.id));
    std::vector<std::string> names;
    if (const Map* map = std::get_if<Map>(&s.node)) names = variables_of(map->expr);
    if (const Gather* gather = std::get_if<Gather>(&s.node)) names = variables_of(gather->weight);
    if (const Join* join = std::get_if<Join>(&s.node)) names = variables_of(join->factor);
    for (const std::string& name : names)
      if (f.kernel.find(name).id < 0) f.add(s, fmt::format("'{}' is not the name of a value", name));
  });
}

}  // namespace

std::vector<std::string> variables_of(const Expr& e) {
  std::vector<std::string> out;
  std::set<const Node*> seen;
  collect_variables(e, seen, out);
  return out;
}

std::string print_head(const Kernel& kernel, const Stmt& s) {
  for (const Value v : values_of(s)) {
    if (declared(kernel, v)) continue;
    std::vector<std::string> names;
    for (const Value each : values_of(s)) names.push_back(name_of(kernel, each));
    return std::visit([&](const auto& op) { return fmt::format("{} {}", op.name, fmt::join(names, ", ")); }, s.node);
  }
  // The printer's own form: the line that follows the kernel's head and its values.
  const std::string text = print(Kernel{kernel.name, kernel.values, {}, {without_bodies(s)}});
  std::size_t begin = 0;
  for (std::size_t line = 0; line < kernel.values.size() + 1; ++line) begin = text.find('\n', begin) + 1;
  begin = text.find_first_not_of(' ', begin);
  std::string head = text.substr(begin, text.find('\n', begin) - begin);
  if (head.ends_with(" {")) head.resize(head.size() - 2);
  return head;
}

void Findings::add(const Stmt& at, const std::string& what) {
  std::string text = fmt::format("{}: {}, in `{}`", rule, what, print_head(kernel, at));
  // Two ways through a body may meet the same op.
  if (std::find(violations.begin(), violations.end(), text) == violations.end()) violations.push_back(std::move(text));
}

Access access_of(const Kernel& kernel, const Stmt& s) {
  const auto named = [&](const Expr& e) {
    std::vector<Value> out;
    for (const std::string& name : variables_of(e)) out.push_back(kernel.find(name));
    return out;
  };
  return std::visit(overloaded{
                        [](const Copy& op) {
                          return Access{{}, {op.dst}, {}};
                        },
                        [](const Prefetch& op) {
                          return Access{{}, {op.dst}, {}};
                        },
                        [](const Await& op) { return Access{op.values, {}, {}}; },
                        [](const Release&) { return Access{}; },
                        [](const Advance& op) {
                          return Access{{op.reference, op.maximum}, {}, {}};
                        },
                        [](const Join& op) {
                          Access a{{}, {}, op.sums};
                          if (op.reference.id >= 0) a.updates.push_back(op.reference), a.writes.push_back(op.joined);
                          return a;
                        },
                        [](const Fill& op) {
                          return Access{{}, {op.dst}, {}};
                        },
                        [](const ScoreMma& op) {
                          return Access{{op.a, op.b}, {op.dst}, {}};
                        },
                        [](const SumMma& op) {
                          return Access{{op.p, op.v}, {}, {op.acc}};
                        },
                        [&](const Map& op) {
                          return Access{named(op.expr), {op.dst}, {}};
                        },
                        [](const Mask& op) {
                          return Access{{}, {}, {op.tile}};
                        },
                        [](const RowReduce& op) {
                          return Access{{op.src}, {}, {op.acc}};
                        },
                        [](const Rescale& op) {
                          return Access{{op.factor}, {}, {op.acc}};
                        },
                        [](const Insert& op) {
                          return Access{{op.src}, {}, {op.values, op.indices}};
                        },
                        [](const Store& op) {
                          return Access{{op.src}, {}, {}};
                        },
                        [&](const Gather& op) {
                          Access a{named(op.weight), {op.dst}, {}};
                          a.reads.push_back(op.indices);
                          return a;
                        },
                        [](const Restore& op) {
                          return Access{{}, {op.state}, {}};
                        },
                        [](const Save& op) {
                          return Access{{op.state}, {}, {}};
                        },
                        [](const Loop&) { return Access{}; },
                        [](const Visibility& op) {
                          return Access{op.watched, {}, {}};
                        },
                        [](const Sweep&) { return Access{}; },
                    },
                    s.node);
}

// The bodies that one pass over a statement may take. A Visibility that watches nothing has no guarded body, and its
// hidden body touches no state.
static std::vector<const Block*> ways_of(const Stmt& s) {
  const auto* v = std::get_if<Visibility>(&s.node);
  if (!v) return blocks_of(s);
  std::vector<const Block*> ways{&v->plain, &v->masked};
  if (!v->watched.empty() || !v->guarded.empty()) ways.push_back(&v->guarded);
  return ways;
}

std::vector<Path> paths_of(const Block& body) {
  std::vector<Path> paths{{}};
  for (const Stmt& s : body) {
    for (Path& p : paths) p.push_back(&s);
    const std::vector<const Block*> bodies = ways_of(s);
    if (bodies.empty()) continue;
    std::vector<Path> longer;
    for (const Block* inner : bodies)
      for (const Path& tail : paths_of(*inner))
        for (const Path& p : paths) {
          longer.push_back(p);
          longer.back().insert(longer.back().end(), tail.begin(), tail.end());
        }
    paths = std::move(longer);
  }
  return paths;
}

}  // namespace rules

namespace {

std::vector<rules::Rule> all_rules() {
  std::vector<rules::Rule> out = rules::shape_rules();
  for (auto& more : {rules::flow_rules(), rules::mask_rules()}) out.insert(out.end(), more.begin(), more.end());
  return out;
}

rules::Stage stage_after(std::string_view pass) {
  using rules::Stage;
  constexpr std::array<std::pair<std::string_view, Stage>, 8> stages{{{"tile_loops", Stage::tile_loops},
                                                                      {"fold_scale", Stage::tile_loops},
                                                                      {"split_ranges", Stage::split_ranges},
                                                                      {"place", Stage::place},
                                                                      {"select", Stage::select},
                                                                      {"pipeline", Stage::pipeline},
                                                                      {"join_warps", Stage::tile_loops},
                                                                      {"fuse", Stage::fuse}}};
  for (const auto& [name, stage] : stages)
    if (name == pass) return stage;
  internal_check(false, fmt::format("the verifier knows no pass '{}'", pass));
  return rules::Stage::tile_loops;
}

}  // namespace

std::vector<std::string> verify(const Kernel& kernel, std::string_view after) {
  const rules::Stage stage = stage_after(after);
  rules::Findings findings{kernel, "every value is declared", {}};
  rules::check_declared(findings);
  if (!findings.violations.empty()) return findings.violations;  // the other rules look values up

  static const std::vector<rules::Rule> all = all_rules();
  for (const rules::Rule& rule : all) {
    if (stage < rule.from) continue;
    findings.rule = rule.name;
    rule.check(findings);
  }
  return findings.violations;
}

void throw_on_violations(const Kernel& kernel, std::string_view after) {
  const std::vector<std::string> violations = verify(kernel, after);
  if (violations.empty()) return;
  throw Error(ErrorKind::internal, fmt::format("kernel '{}' after {}", kernel.name, after),
              fmt::format("the verifier objects:\n  {}\n{}", fmt::join(violations, "\n  "), print(kernel)));
}

}  // namespace attile::ir
