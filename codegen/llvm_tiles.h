// The CPU's tile operations as LLVM functions: packing, register-blocked products, transposition. What the
// device headers are to CUDA, this is to LLVM: everything that knows a layout's arithmetic lives here.
// Each `…_function` adds the function to the module once and returns its name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/ir.h"
#include "codegen/llvm_builder.h"

namespace attile::llvm_text {

// The register shape of lanes: rows. A panel is `vectors` × `width` rows; a block is `block` positions or
// columns. `width` counts float32 lanes.
struct PanelShape {
  int width = 8, vectors = 3, block = 4;
  int rows() const { return width * vectors; }
};

// Elements in memory: the type they are loaded as, and how names of functions spell it.
std::string raw_type(DType type);
std::string_view short_name(DType type);
// Reals as they were loaded, as float32.
Val widened(Function& f, DType type, const Val& raw);
// `lanes` elements at `address` as float32.
Val load_widened(Function& f, DType type, const Val& address, int lanes);
// Stores float32 lanes as `type`, rounded to nearest even.
void store_narrowed(Function& f, DType type, const Val& value, const Val& address);

// void (ptr table, ptr dst): `count` rows, whose addresses stand in `table`, of `cols` elements each, written as
// dst[col·pitch + row]. pairs: the unit is two neighbouring elements of 16 bits (an odd last one is followed by 0).
std::string pack_rows_function(Module& m, DType type, int count, std::int64_t cols, int pitch, bool pairs);

// i1 (ptr src, i64 stride, i64 n, ptr dst): n rows of `cols` elements → [col/block][position][block] (pairs:
// [col/block][position/2][block][2]) with room for `capacity` positions. True if any element is inf or NaN.
std::string pack_columns_function(Module& m, DType type, std::int64_t cols, std::int64_t capacity, int block, bool pairs);

// void (ptr q, ptr k, ptr s, i64 blocks): s[position][lane] = Σ_d k·q for `blocks` blocks of positions.
std::string score_function(Module& m, const PanelShape& shape, std::int64_t depth, bool pairs);

// void (ptr p, ptr v, ptr o, i64 n): o[col][lane] += Σ_position v·p; n counts positions (pairs: pairs).
std::string sum_function(Module& m, const PanelShape& shape, std::int64_t cols, std::int64_t capacity, bool pairs);

// The same for the rare tile with inf or NaN in V: a lane whose p is −0 skips the position. Slow and small.
std::string guarded_sum_function(Module& m, const PanelShape& shape, std::int64_t cols, std::int64_t capacity, bool pairs);

// void (ptr src, ptr table, i64 rows): writes src[col][lane] of one vector of lanes to the `rows` row addresses
// in `table` as `type`; src advances `pitch` floats a column.
std::string unpack_rows_function(Module& m, DType type, int width, std::int64_t cols, int pitch);

}  // namespace attile::llvm_text
