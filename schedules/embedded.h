// Files of the source tree that are part of the library. The tables are generated at build time (cmake/embed.cmake).
#pragma once

#include <span>
#include <string_view>

namespace attile::embedded {

struct File {
  std::string_view path;
  std::string_view content;
};

// schedules/**/*.yaml in the order of their paths; a path is relative to schedules/.
std::span<const File> schedule_files();

}  // namespace attile::embedded
