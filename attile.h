// The whole public interface of Attile; users include <attile/attile.h>.
#pragma once

#include "dsl/dtype.h"
#include "dsl/error.h"
