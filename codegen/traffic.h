// What a program moves and computes, counted from its kernels' IR with the numbers of a call: a model of the text that
// will run, not a measurement. Bytes at main memory are those of the IO analysis of Dao et al. 2022 (arXiv:2205.14135):
// whatever a task copies, reads or saves again counts again, as if fast memory held nothing but the tiles at hand.
//
// Hidden tiles that a kernel passes over count nothing; a panel that the mask crosses counts in full. Ranges of the
// mask follow from rows, positions and the scalars given; conditions on tensors count as "may be either". Only valid
// rows and positions count.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "codegen/lower_program.h"
#include "codegen/tile_visibility.h"

namespace attile {
inline namespace v1 {

struct TrafficSizes {
  std::int64_t sequences = 1, heads = 1;       // query heads; kv heads follow from the problem's group
  std::int64_t rows = 0, positions = 0;        // of every sequence
  std::map<std::string, double> scalars = {};  // those that the mask reads (window_left…)
};

struct Bytes {
  std::int64_t read = 0, written = 0;
  std::int64_t total() const { return read + written; }
  bool operator==(const Bytes&) const = default;
};

struct Traffic {
  // Main memory, by tensor. "work.<name>" is what a program keeps for itself: operands packed ahead, and the states
  // that the order keys_outer saves; "part.<state>" lies between the kernels of a split.
  std::map<std::string, Bytes> memory;
  // Between the tiles of a task and the panels it works on: operands of products, once for each panel, against what
  // copies write there.
  Bytes tiles;
  std::int64_t flops = 0;         // of products: 2 · rows · positions · depth each
  std::int64_t exponentials = 0;  // exp, sigmoid and tanh, one an element

  Bytes total() const;  // of main memory
  Traffic& operator+=(const Traffic& other);
};

// One kernel; `parts`: of a split, for its partial and its merge.
Traffic traffic(const ir::LoweredKernel& k, const TrafficSizes& sizes, std::int64_t parts = 1);
// All kernels of a program. The schedule must be legal.
Traffic traffic(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t, const TrafficSizes& sizes);

}  // namespace v1
}  // namespace attile
