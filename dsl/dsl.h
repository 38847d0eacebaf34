// The description layer in one include: expressions, algorithms, the ready variants, splitting and the reference.
#pragma once

#include "dsl/algorithm.h"
#include "dsl/derive.h"
#include "dsl/dim.h"
#include "dsl/dtype.h"
#include "dsl/error.h"
#include "dsl/evaluate.h"
#include "dsl/expr.h"
#include "dsl/library.h"
