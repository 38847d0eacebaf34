// Products for a few rows against a long stream that is read once, where it lies: K row by row along d, V row by
// row along its columns. The twin of llvm_tiles' packed products.
#pragma once

#include "codegen/llvm_tiles.h"

namespace attile::llvm_text {

// `width` float32 lanes; row tiles are padded to a multiple of `rows`, their columns to a multiple of `width`.
struct StreamShape {
  int width = 8;
  int rows = 4;           // rows that one pass over the stream serves
  int positions = 4;      // positions per block of a score (a power of two)
  int column_vectors = 4; // vectors of V's columns per pass of a sum
  std::int64_t padded(std::int64_t cols) const { return (cols + width - 1) / width * width; }
};

// void (ptr q, ptr k, i64 stride, i64 n, ptr s): s[row·pitch + position] = Σ_d q·k for `shape.rows` rows of q
// (float32, padded) and n positions `stride` bytes apart; writes up to a whole block of positions.
std::string stream_score_function(Module& m, const StreamShape& shape, DType type, std::int64_t depth, std::int64_t pitch);

// void (ptr p, ptr v, i64 stride, i64 n, ptr o): o[row][col] += Σ_position p·v for `shape.rows` rows.
std::string stream_sum_function(Module& m, const StreamShape& shape, DType type, std::int64_t cols, std::int64_t pitch);

// The same where V holds inf or NaN: a position whose p is −0 is passed over.
std::string guarded_stream_sum_function(Module& m, const StreamShape& shape, DType type, std::int64_t cols, std::int64_t pitch);

// i1 (ptr v, i64 stride, i64 n): does any of n rows of `cols` elements hold inf or NaN?
std::string stream_not_finite_function(Module& m, const StreamShape& shape, DType type, std::int64_t cols);

}  // namespace attile::llvm_text
