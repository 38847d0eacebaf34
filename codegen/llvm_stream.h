// Products for a few rows against a long stream that is read once, where it lies: K row by row along d, V row by
// row along its columns. The twin of llvm_tiles' packed products. What comes next from memory is asked for while
// the present is worked on, since the stream is read faster than the chip foresees it.
#pragma once

#include <array>

#include "codegen/llvm_tiles.h"

namespace attile::llvm_text {

// `width` float32 lanes; the rows of row tiles are padded to a multiple of `width` floats.
struct StreamShape {
  int width = 8;
  int registers = 16;     // vectors that a loop may hold
  bool pairs = false;     // both operands are bf16, multiplied by the dot of pairs
  bool halves = false;    // the stream is bf16 and loaded 2·width columns at once: the even ones, then the odd ones
  std::int64_t padded(std::int64_t cols) const { return (cols + width - 1) / width * width; }
  // Columns, from the first on, that lie in q's tile as halves do.
  std::int64_t halved(std::int64_t cols) const { return halves ? cols / (2 * width) * (2 * width) : 0; }
  // Rows that one pass over the stream serves at most, and those of a sum: fewer where the sums of all columns
  // would not stay in registers. Later passes find the tile in cache.
  static constexpr int most_rows = 4;
  int sum_rows(std::int64_t cols) const;
  bool sum_in_one_pass(std::int64_t cols) const;
};

// A product of `rows` rows (a power of two ≤ most_rows) with the stream's tile of a tensor. With each position a
// row of another tile is fetched into cache.
struct StreamProduct {
  StreamShape shape;
  int rows = 1;
  DType type = DType::float32;
  std::int64_t cols = 0;          // elements of a row of the tensor
  std::int64_t pitch = 0;         // 32-bit words from row to row of the score or weight tile
  DType ahead_type = DType::float32;
  std::int64_t ahead_cols = 0;
};

// void (ptr q, ptr k, i64 stride, i64 n, ptr s, ptr folded, ptr ahead, i64 ahead_stride): s[row·pitch + position] =
// Σ_d q·k for n positions `stride` bytes apart; a row of q takes padded(cols) words, zero past its end, whatever its
// type; its first halved(cols) columns are ordered by split_halves(). `folded` is room for stream_chunk vectors. Up to a
// vector of positions is written; those past the end mean nothing.
inline constexpr std::int64_t stream_chunk = 64;
std::string stream_score_function(Module& m, const StreamProduct& product);

// void (ptr p, ptr v, i64 stride, i64 n, ptr o, ptr ahead, i64 ahead_stride): o[row][col] += Σ_position p·v.
// With pairs p is bf16.
std::string stream_sum_function(Module& m, const StreamProduct& product);

// The same where V holds inf or NaN: a position whose p is −0 is passed over.
std::string guarded_stream_sum_function(Module& m, const StreamProduct& product);

// i1 (ptr v, i64 stride, i64 n): does any of n rows of `cols` elements hold inf or NaN?
std::string stream_not_finite_function(Module& m, const StreamShape& shape, DType type, std::int64_t cols);

// Of 2·width neighbours the even ones, then the odd ones, as vectors of `width`; and back.
std::array<Val, 2> split_halves(Function& f, const Val& first, const Val& second);
std::array<Val, 2> joined_halves(Function& f, const Val& even, const Val& odd);

// `x.size()` vectors (a power of two ≤ width) folded by `join` (sum, max) into one: lane i·width/x.size() + any
// holds the whole of vector i.
Val fold_lanes(Function& f, std::vector<Val> x, const std::function<Val(const Val&, const Val&)>& join);

}  // namespace attile::llvm_text
