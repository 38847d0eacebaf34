// A walk over expressions. No part of the interface.
#pragma once

#include <functional>
#include <vector>

#include "dsl/expr.h"

namespace attile {
inline namespace v1 {

// Calls `visit` once for each node of the expressions, though trees share branches; operands before the node.
void for_each_node(const std::vector<Expr>& roots, const std::function<void(const Node&)>& visit);

}  // namespace v1
}  // namespace attile
