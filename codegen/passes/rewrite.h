// Small tools on expressions that several passes share.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "dsl/expr.h"

namespace attile::ir {

// The tree with every node for which `replace` gives an expression replaced by it, outermost first.
Expr rewrite(const Expr& e, const std::function<std::optional<Expr>(const Expr&)>& replace);

// The number that `e` has when `leaf` gives the value of each leaf (constants apart).
double evaluate_scalar(const Expr& e, const std::function<double(const Node&)>& leaf);

// True if `e` is exactly 0 wherever the variable `score` is −inf, at random values of all its other leaves:
// then a hidden position needs no mask of its own. Scalars named in `positive` are > 0.
bool vanishes_at_minus_infinity(const Expr& e, const std::string& score, std::span<const std::string> positive = {});

}  // namespace attile::ir
