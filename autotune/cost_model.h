// What a schedule should cost on a device, unit by unit: worked out from sizes, tiles and the device's constants,
// nothing is built. It ranks candidates; measuring decides. Cycles are those of one core or multiprocessor over the
// whole call.
#pragma once

#include <string>
#include <vector>

#include "autotune/bucket.h"
#include "autotune/constants.h"
#include "autotune/space.h"

namespace attile {
inline namespace v1 {

struct UnitCost {
  std::string unit;  // "FMA", "exp", "matrix unit", "shared-memory port", "HBM" …
  double cycles = 0;
};
struct Cost {
  std::vector<UnitCost> units;
  double clock_hz = 0;
  std::int64_t tasks = 0;
  int resident = 1;     // tasks that a multiprocessor holds; 1 on a CPU
  double waves = 0;     // tasks over what the device runs at once
  double prologue = 0;  // cycles before and after the stream, of all tasks of a unit
  double effect = 1;    // fitted, of the schedule's field values
  double cycles = 0;    // how the units come together
  double seconds() const { return cycles * effect / clock_hz; }
  double of(const std::string& unit) const;
};

// The schedule is legal. Throws Error(internal) where the constants lack something.
ATTILE_API Cost predict(const Algorithm& a, const Problem& p, const CallShape& shape, const Schedule& s,
                        const Target& t, const Constants& c);

// The space of a problem on a target: its file's choices, legality, this model. `shape` decides the ranks.
ATTILE_API SpaceRules schedule_rules(const Algorithm& a, const Problem& p, const CallShape& shape, const Target& t,
                                     const Constants& c);

// Parts of predict().
Cost predict_cpu(const Algorithm& a, const Problem& p, const CallShape& shape, const Schedule& s, const Target& t,
                 const Constants& c);
Cost predict_cuda(const Algorithm& a, const Problem& p, const CallShape& shape, const Schedule& s, const Target& t,
                  const Constants& c);

// The dims and types that both need.
struct CostSizes {
  double rows = 0, keys = 0;            // rows with the group packed in, where the schedule does
  double heads = 0;                     // sequences × (heads, or kv heads with the group packed in)
  double kv_heads = 0;                  // sequences × kv heads
  double d_score = 0, d_value = 0;      // columns of the products before and after the weights
  double operand_bytes = 0;             // of an element of K and V
  double pairs = 0;                     // (row, key) pairs computed for one head, whole tiles
  double row_tiles = 0, key_tiles = 0;  // of one head; key tiles that a row tile sees, on average
};
CostSizes cost_sizes(const Algorithm& a, const Problem& p, const CallShape& shape, const Schedule& s);

}  // namespace v1
}  // namespace attile
