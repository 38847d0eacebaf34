// Private to the verifier: how its rules see a kernel and report what they find.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/ir.h"

namespace attile::ir::rules {

// How far lowering has come; a rule of a later stage holds in all stages after it too.
enum class Stage : std::uint8_t { tile_loops, split_ranges, place, select, pipeline, fuse };

struct Findings {
  const Kernel& kernel;
  std::string rule;
  std::vector<std::string> violations;

  // "<rule>: <what>, in `<the op>`". Of a nested op only the head is shown.
  void add(const Stmt& at, const std::string& what);
};

// The op on one line, also if it names values that are not declared.
std::string print_head(const Kernel& kernel, const Stmt& s);

// The values that an op touches. An update reads what it writes.
struct Access {
  std::vector<Value> reads, writes, updates;
};
Access access_of(const Kernel& kernel, const Stmt& s);

// Names of all variables of `e`.
std::vector<std::string> variables_of(const Expr& e);

// Every way through `body`, as the ops passed in order: a loop counts as one iteration, a Visibility as one way
// for each of its bodies.
using Path = std::vector<const Stmt*>;
std::vector<Path> paths_of(const Block& body);

struct Rule {
  const char* name;
  Stage from;  // first stage at which it holds
  std::function<void(Findings&)> check;
};
// ir_verify_shapes.cpp: each op by itself.
std::vector<Rule> shape_rules();
// ir_verify_flow.cpp: definitions, carried values and the rescale rule.
std::vector<Rule> flow_rules();
// ir_verify_masks.cpp: what hidden positions may not touch.
std::vector<Rule> mask_rules();

}  // namespace attile::ir::rules
