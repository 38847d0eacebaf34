// Walking and editing nested blocks of IR.
#pragma once

#include <functional>

#include "codegen/ir.h"

namespace attile::ir {

// The blocks nested directly in a statement.
std::vector<Block*> blocks_of(Stmt& s);
std::vector<const Block*> blocks_of(const Stmt& s);

// Every statement, outer before inner, in order.
void walk(const Block& body, const std::function<void(const Stmt&)>& visit);
void walk(Block& body, const std::function<void(Stmt&)>& visit);

// Element by element on a tile of the stream: what a Sweep holds.
bool elementwise_on_stream(const Kernel& kernel, const Stmt& s);

// Removes the statements for which `condition` holds, at every depth.
void remove_everywhere(Block& body, const std::function<bool(const Stmt&)>& condition);

}  // namespace attile::ir
