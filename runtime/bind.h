// Arguments of a call checked against the algorithm and turned into argument blocks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/program.h"
#include "runtime/tensor_ref.h"

namespace attile {
inline namespace v1 {

// The sizes of one call. rows and positions: of every sequence when dense, the packed totals otherwise.
struct CallSizes {
  std::int64_t sequences = 1, heads = 1, kv_heads = 1, rows = 0, positions = 0, parts = 1;
};

// Checks names, types, shapes, strides, overlap and the contents of length tensors. Throws Error(argument).
CallSizes check_call(const Algorithm& a, const Problem& p, const Arguments& arguments);

// Number of row tiles of one (sequence, head), or of one head over all sequences when lengths are packed.
std::int64_t row_tiles(const EmittedKernel& k, const Algorithm& a, const Problem& p, const CallSizes& sizes);
std::int64_t task_count(const EmittedKernel& k, const Algorithm& a, const Problem& p, const CallSizes& sizes);

// The 8-byte slots of `k.parameters`.
std::vector<std::uint64_t> argument_block(const EmittedKernel& k, const Algorithm& a, const Problem& p, const CallSizes& sizes,
                                          const Arguments& arguments);

}  // namespace v1
}  // namespace attile
