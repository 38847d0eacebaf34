#include "autotune/bucket.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace attile {
inline namespace v1 {
namespace {

constexpr int most_steps = 3;

// 10 of 513 to 1024; 0 of 0 and 1.
int log2_up(std::int64_t n) { return n <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(n - 1)); }

}  // namespace

Bucket bucket_of(const Algorithm& a, const Problem& p, const CallShape& shape, int units) {
  Bucket bucket;
  bucket.algorithm = fmt::format("{} {:016x}", a.name, hash_of(a));
  bucket.problem = to_string(p);
  bucket.rows_log2 = log2_up(shape.rows);
  bucket.keys_log2 = log2_up(shape.keys);
  // In sixteenths, so that a device that is not filled has buckets too.
  const std::int64_t tasks = std::max<std::int64_t>(shape.sequences * shape.heads, 1);
  bucket.fill_log2 = log2_up((16 * tasks + units - 1) / std::max(units, 1)) - 4;
  return bucket;
}

std::string to_string(const Bucket& b) {
  return fmt::format("{}, {}, rows to {}, keys to {}, fill {}", b.algorithm, b.problem, std::int64_t{1} << b.rows_log2,
                     std::int64_t{1} << b.keys_log2, b.fill_log2);
}

int distance(const Bucket& a, const Bucket& b) {
  if (!a.same_kind(b)) return far_apart;
  const int steps[] = {std::abs(a.rows_log2 - b.rows_log2), std::abs(a.keys_log2 - b.keys_log2),
                       std::abs(a.fill_log2 - b.fill_log2)};
  if (*std::max_element(std::begin(steps), std::end(steps)) > most_steps) return far_apart;
  return steps[0] + steps[1] + steps[2];
}

std::string Machine::text() const {
  return fmt::format("{}, {} units{}", model, units, power_limit_w > 0 ? fmt::format(", {} W", power_limit_w) : "");
}

std::string Machine::versions() const {
  return fmt::format("attile {}, {}{}", library, compiler, driver.empty() ? "" : ", driver " + driver);
}

std::string Machine::file_name() const {
  std::string name;
  for (const char c : model) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (plain)
      name += c;
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  name = name.substr(0, 60);
  while (name.ends_with('-')) name.pop_back();
  const std::string whole = target + "\n" + model;
  return fmt::format("{}-{:08x}", name.empty() ? "device" : name,
                     static_cast<std::uint32_t>(XXH3_64bits(whole.data(), whole.size())));
}

}  // namespace v1
}  // namespace attile
