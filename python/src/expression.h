// Python objects as expressions: what arithmetic on the DSL's objects accepts.
#pragma once

#include <optional>

#include "array.h"
#include "dsl/dsl.h"

namespace attile::python {

// An expression, dim, tensor, state, int, float or bool (a constant condition); nothing for anything else.
std::optional<Expr> expression_of(nb::handle value);
// The same, where anything else is a WrongType that names `where`.
Expr need_expression(nb::handle value, const char* where);

}  // namespace attile::python
