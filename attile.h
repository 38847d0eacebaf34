// The whole public interface of Attile; users include <attile/attile.h>.
#pragma once

#include "autotune/stored_choice.h"
#include "autotune/tuner.h"
#include "dsl/dsl.h"
#include "runtime/attention.h"
#include "runtime/cache.h"
#include "runtime/kernel.h"
#include "runtime/options.h"
#include "runtime/parallel_for.h"
#include "schedules/registry.h"
