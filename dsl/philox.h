// Philox4x32-10, the counter-based generator behind dropout (Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011). One call gives four independent 32-bit words; every back end must give the same.
#pragma once

#include <array>
#include <cstdint>

namespace attile {
inline namespace v1 {

struct PhiloxKey {
  std::uint32_t low = 0, high = 0;
};
using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey seed) {
  constexpr std::uint64_t multiplier_0 = 0xD2511F53u, multiplier_1 = 0xCD9E8D57u;
  constexpr std::uint32_t weyl_0 = 0x9E3779B9u, weyl_1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = multiplier_0 * counter[0], b = multiplier_1 * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ seed.low, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ seed.high, static_cast<std::uint32_t>(a)};
    seed.low += weyl_0;
    seed.high += weyl_1;
  }
  return counter;
}

// The word of one attention weight: row = sequence·heads + head, i = query, j = key within the sequence.
constexpr std::uint32_t dropout_word(std::int64_t seed, std::int64_t offset, std::int64_t row, std::int64_t i,
                                     std::int64_t j) {
  const auto bits = static_cast<std::uint64_t>(seed);
  const PhiloxBlock counter{static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(row),
                            static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j / 4)};
  return philox4x32_10(counter, {static_cast<std::uint32_t>(bits),
                                 static_cast<std::uint32_t>(bits >> 32)})[static_cast<std::size_t>(j % 4)];
}

}  // namespace v1
}  // namespace attile
