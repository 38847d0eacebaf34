// How a kernel is built: every choice that changes speed but not the result. A plain value that prints,
// compares, hashes and survives YAML.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/problem.h"
#include "schedules/target.h"

namespace attile {
inline namespace v1 {

// Which index runs along the lanes of a vector, or of a warp. rows: a panel of query rows, for many rows on a CPU.
// positions: keys (and columns of V), for a few rows that read a long stream once; on a GPU the form that takes
// everything, a warp for each row. fragments: both, as a GPU's matrix instructions hold them.
enum class Lanes : std::uint8_t { rows, positions, fragments };
// What the warps of a task divide among themselves (lanes: fragments). rows: each has rows of its own. positions: each
// has a share of every tile of the stream for all rows, and the rule merges them at the end.
enum class Partition : std::uint8_t { rows, positions };
// queries_outer: states stay in the tile, K and V stream past (FlashAttention-2). keys_outer: K and V stay,
// Q and the states stream past through memory (FlashAttention-1).
enum class Order : std::uint8_t { queries_outer, keys_outer };

struct Schedule {
  int tile_rows = 192;  // B_q: rows of one task
  int tile_keys = 128;  // B_k: positions of one tile of the stream
  Lanes lanes = Lanes::rows;
  int panel_vectors = 3;  // lanes: rows; a register panel is this many vectors of rows
  int block = 8;          // keys (or columns of V) per register block
  Order order = Order::queries_outer;
  bool bf16_dot = false;      // products by the dot instruction on bf16 pairs
  bool pack_group = false;    // the query heads of one kv head are rows of one task
  bool pack_ahead = false;    // lanes: rows; a kernel of its own packs K and V once, not every task for itself
  int splits = 1;             // parts of the stream, merged by the rule; 0, on a GPU: as many as keep it busy
  bool longest_first = true;  // tasks from the last row tile to the first
  // On a GPU
  int warps = 4;                          // of one task
  Partition partition = Partition::rows;  // lanes: fragments
  int column_warps = 1;                   // partition: rows; so many warps have the same rows, each a share of the keys and of V's columns
  int stages = 2;                         // tiles of the stream in shared memory, those on their way included
  bool rows_in_registers = false;         // the row operand (q) is read from shared memory once
  bool fold_scale = true;                 // the scale of the scores becomes part of the exponential
  bool lazy_rescale = false;              // lanes: fragments; the reference lags behind until a maximum has grown by 8 in units of log 2
  bool late_copies = false;               // of later tiles are begun between weights and sums, not before the scores
  int blocks_per_sm = 1;                  // tasks that the registers must leave room for on a multiprocessor

  bool operator==(const Schedule&) const = default;
};

ATTILE_API std::string to_string(const Schedule& s);  // one line, "tile 192x128 lanes rows panel 3 block 8 …"
ATTILE_API std::string_view to_string(Lanes lanes);
ATTILE_API std::string_view to_string(Order order);
ATTILE_API std::string_view to_string(Partition partition);

// Of the printed line; stable over runs and machines.
ATTILE_API std::uint64_t hash_of(const Schedule& s);
ATTILE_API std::uint64_t hash_of(const Problem& p);
ATTILE_API std::uint64_t hash_of(const Target& t);

// Every reason why this schedule cannot serve, each a sentence about the schedule; empty if it can.
ATTILE_API std::vector<std::string> legality(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t);
// `s` changed as little as its reasons ask for: first what cannot be had at all (a dot instruction, splits), then
// smaller tiles. Legal for every problem whose head dims are.
ATTILE_API Schedule made_legal(const Algorithm& a, const Problem& p, Schedule s, const Target& t);
// The best known schedule of the shipped YAML files for this problem on this target, made legal; never throws
// for a legal problem.
ATTILE_API Schedule default_schedule(const Algorithm& a, const Problem& p, const Target& t);

}  // namespace v1
}  // namespace attile
