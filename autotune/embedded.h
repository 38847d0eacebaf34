// The models' constants as files of the source tree; the table is generated at build time.
#pragma once

#include "schedules/embedded.h"

namespace attile::embedded {

// autotune/models/*.yaml in the order of their paths; a path is relative to autotune/.
std::span<const File> model_files();

}  // namespace attile::embedded
