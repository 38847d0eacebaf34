#include "codegen/llvm_transpose.h"

#include <array>

namespace attile::llvm_text {
namespace {

// A two-source shuffle that does the same in every 128-bit part of 4 lanes; entries 4..7 mean the second source.
Val shuffle_parts(Function& f, const Val& a, const Val& b, std::array<int, 4> pattern) {
  const int lanes = lanes_of(a.type);
  std::vector<int> mask;
  for (int part = 0; part < lanes; part += 4)
    for (const int i : pattern) mask.push_back(part + (i < 4 ? i : lanes + i - 4));
  return f.shuffle(a, b, mask);
}

// One whole 128-bit part from each entry; parts of b follow those of a.
Val select_parts(Function& f, const Val& a, const Val& b, const std::vector<int>& parts) {
  std::vector<int> mask;
  for (const int part : parts)
    for (int lane = 0; lane < 4; ++lane) mask.push_back(part * 4 + lane);
  return f.shuffle(a, b, mask);
}

// Four rows: 4×4 blocks transposed inside every part. Result k holds column 4·part + k of the rows.
std::array<Val, 4> transpose_parts(Function& f, const Val* rows) {
  const Val low01 = shuffle_parts(f, rows[0], rows[1], {0, 4, 1, 5}), high01 = shuffle_parts(f, rows[0], rows[1], {2, 6, 3, 7});
  const Val low23 = shuffle_parts(f, rows[2], rows[3], {0, 4, 1, 5}), high23 = shuffle_parts(f, rows[2], rows[3], {2, 6, 3, 7});
  return {shuffle_parts(f, low01, low23, {0, 1, 4, 5}), shuffle_parts(f, low01, low23, {2, 3, 6, 7}),
          shuffle_parts(f, high01, high23, {0, 1, 4, 5}), shuffle_parts(f, high01, high23, {2, 3, 6, 7})};
}

// Exchanges bit s of the row number with bit s of the lane number, one stage per bit; for any power of two.
std::vector<Val> transpose_by_bits(Function& f, std::vector<Val> rows) {
  const int n = static_cast<int>(rows.size());
  for (int stride = 1; stride < n; stride *= 2) {
    std::vector<int> low, high;
    for (int lane = 0; lane < n; ++lane) {
      low.push_back(lane & stride ? n + lane - stride : lane);
      high.push_back(lane & stride ? n + lane : lane + stride);
    }
    for (int i = 0; i < n; ++i) {
      if (i & stride) continue;
      Val &a = rows[static_cast<std::size_t>(i)], &b = rows[static_cast<std::size_t>(i + stride)];
      const Val new_a = f.shuffle(a, b, low);
      b = f.shuffle(a, b, high);
      a = new_a;
    }
  }
  return rows;
}

}  // namespace

// 8 and 16 rows by shuffles that are one cheap instruction each: inside 128-bit parts first, then of whole parts.
std::vector<Val> transpose(Function& f, std::vector<Val> rows) {
  const std::size_t n = rows.size();
  if (n != 8 && n != 16) return transpose_by_bits(f, std::move(rows));
  std::vector<std::array<Val, 4>> groups;
  for (std::size_t i = 0; i < n; i += 4) groups.push_back(transpose_parts(f, &rows[i]));
  std::vector<Val> out(n);
  for (std::size_t k = 0; k < 4; ++k) {
    if (n == 8) {
      out[k] = select_parts(f, groups[0][k], groups[1][k], {0, 2});
      out[4 + k] = select_parts(f, groups[0][k], groups[1][k], {1, 3});
      continue;
    }
    const Val even01 = select_parts(f, groups[0][k], groups[1][k], {0, 1, 4, 5}), odd01 = select_parts(f, groups[0][k], groups[1][k], {2, 3, 6, 7});
    const Val even23 = select_parts(f, groups[2][k], groups[3][k], {0, 1, 4, 5}), odd23 = select_parts(f, groups[2][k], groups[3][k], {2, 3, 6, 7});
    out[k] = select_parts(f, even01, even23, {0, 2, 4, 6});
    out[4 + k] = select_parts(f, even01, even23, {1, 3, 5, 7});
    out[8 + k] = select_parts(f, odd01, odd23, {0, 2, 4, 6});
    out[12 + k] = select_parts(f, odd01, odd23, {1, 3, 5, 7});
  }
  return out;
}

}  // namespace attile::llvm_text
