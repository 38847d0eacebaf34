// What a kernel is generated for, apart from the algorithm: types, compiled-in extents and the grouped-head
// ratio. Never lengths, strides or scalar values: those come with each call.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "dsl/algorithm.h"

namespace attile {
inline namespace v1 {

struct Problem {
  std::map<std::string, DType> dtypes;          // of every input and output tensor of the algorithm
  std::map<std::string, std::int64_t> extents;  // dims that are compiled in: head_dim, value_dim, slot…
  std::int64_t group = 1;                       // query heads per kv head
  // Rows per (sequence, head) are few (decode): a hint for the choice of a schedule, never for correctness.
  bool few_rows = false;
  // On a GPU, products of float32 tensors may round their operands to TF32 (10 bits of mantissa).
  bool tf32 = false;
  // On a GPU, rows of streamed operands may begin at any address and lie any distance apart; else they begin at multiples of
  // 16 bytes, or of 8 or 4 where their length is no more, and those of a tile lie within 2 GiB.
  bool scattered = false;

  bool operator==(const Problem&) const = default;
};

// One line, stable: "D64 Dv64 group 1 q:float32 k:float32 v:float32 o:float32".
ATTILE_API std::string to_string(const Problem& p);

// Throws Error(argument) naming the tensor or dim when the problem lacks or misstates something of the algorithm.
ATTILE_API void check_problem(const Algorithm& a, const Problem& p);

}  // namespace v1
}  // namespace attile
