#include "runtime/cuda_parts.h"

#include <algorithm>

namespace attile {
inline namespace v1 {
namespace {

// The most parts that a stream is cut into, and the fewest tiles that a part should have.
constexpr std::int64_t most_parts = 128, least_tiles = 2;

}  // namespace

// Parts for which the rounds of tasks over the device, times the tiles of a part, are fewest; each part also costs the
// merge a little.
std::int64_t cuda_parts(std::int64_t tasks, std::int64_t tiles, std::int64_t places) {
  std::int64_t best = 1;
  double least = 0;
  for (std::int64_t parts = 1; parts <= std::clamp<std::int64_t>(tiles / least_tiles, 1, most_parts); ++parts) {
    const std::int64_t rounds = (tasks * parts + places - 1) / places, length = (tiles + parts - 1) / parts;
    const double cost = static_cast<double>(rounds * (length + 1)) + 0.05 * static_cast<double>(parts);
    if (parts == 1 || cost < least) best = parts, least = cost;
  }
  return best;
}

}  // namespace v1
}  // namespace attile
