// What code generation returns: the text of one or more kernels and everything the runtime needs to call
// them. Nothing here is compiled yet and nothing has touched the machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/ir.h"
#include "schedules/schedule.h"

namespace attile {
inline namespace v1 {

// One 8-byte slot of a kernel's argument block, in order.
struct Parameter {
  enum class Kind : std::uint8_t {
    data,     // address of tensor `name`
    stride,   // elements from one index to the next along dim number `dim` of tensor `name`
    extent,   // number of indices along dim number `dim` of tensor `name`
    real,     // float32 scalar `name` in the low four bytes
    integer,  // int64 scalar `name`
    size,     // sequences, heads, kv_heads, rows, positions, keys, row_tiles, key_tiles, parts
    aligned,  // 1 if the address and all strides but the last of tensor `name` are multiples of `dim` bytes
  };
  Kind kind;
  std::string name;
  int dim = 0;
  bool operator==(const Parameter&) const = default;
};

// A tensor whose address and strides but the last are multiples of `bytes`, with less than `longest` elements from one index
// of dim number `dim` to the next.
struct NearRows {
  std::string tensor;
  int dim = 0, bytes = 16;
  std::int64_t longest = 0;
};

struct EmittedKernel {
  std::string name;                   // symbol of the function in `text`
  std::string text;                   // LLVM IR, or CUDA C++
  std::string ir;                     // the printed kernel IR it was emitted from
  std::vector<Parameter> parameters;
  std::int64_t scratch_bytes = 0;     // per worker, 64-byte aligned
  std::int64_t tile_rows = 0;         // rows of one task
  bool group_in_rows = false;         // rows count group × query rows, tasks count kv heads
  bool per_part = false;              // one task per part of the stream
  bool per_key_tile = false;          // a packing kernel: tasks are (kv head, tile of the stream)
  bool per_head = false;              // order keys_outer: one task for all row tiles of a head
  std::int64_t state_bytes = 0;       // keys_outer: of the argument "work.states", for each row tile of each head
  // On a GPU: one block per task, whose parameter is the argument block.
  int threads = 0;                    // of a block; 0: LLVM IR
  std::int64_t shared_bytes = 0;      // dynamic shared memory of a block
  std::vector<std::string> positive;  // scalars that must be > 0; else the schedule without fold_scale serves
  std::vector<NearRows> near_rows;    // else the problem is `scattered`
  bool follows_early = false;         // waits itself for the kernel before it, and may be started before that has ended
};

// Memory between a packing kernel and its reader, an argument of both named "work.<operand>": this many bytes, a
// multiple of 64, for each (kv head, tile of the stream).
struct PackedOperand {
  std::string name;
  std::int64_t tile_bytes = 0;
};

// Number of tiles of the stream over all sequences of a kv head: positions are those of every sequence, or the packed
// total, where a sequence's tiles start at floor(start / tile_keys) + its number.
inline std::int64_t key_tiles(Lengths lengths, std::int64_t positions, std::int64_t sequences, std::int64_t tile_keys) {
  if (lengths == Lengths::packed) return positions / tile_keys + sequences;
  return (positions + tile_keys - 1) / tile_keys;
}

struct Program {
  Algorithm algorithm;
  Problem problem;
  Schedule schedule;
  Target target;
  std::vector<EmittedKernel> kernels;   // one, or partial and merge, or packing and main
  std::vector<PackedOperand> packed;    // with pack_ahead
};

// Lowers, verifies and emits. Throws Error(unsupported) with all reasons for an illegal schedule and
// Error(internal) with the violations if the verifier objects.
ATTILE_API Program generate(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t);

}  // namespace v1
}  // namespace attile
