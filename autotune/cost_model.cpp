#include "autotune/cost_model.h"

#include <algorithm>
#include <cmath>

#include "schedules/operands.h"
#include "schedules/registry.h"

namespace attile {
inline namespace v1 {

double Cost::of(const std::string& unit) const {
  for (const UnitCost& u : units)
    if (u.unit == unit) return u.cycles;
  return 0;
}

CostSizes cost_sizes(const Algorithm& a, const Problem& p, const CallShape& shape, const Schedule& s) {
  CostSizes z;
  const double group = s.pack_group ? static_cast<double>(std::max<std::int64_t>(p.group, 1)) : 1;
  const auto sequences = static_cast<double>(shape.sequences);
  z.rows = static_cast<double>(std::max<std::int64_t>(shape.rows, 1)) * group;
  z.keys = static_cast<double>(std::max<std::int64_t>(shape.keys, 1));
  z.heads = sequences * static_cast<double>(std::max<std::int64_t>(s.pack_group ? shape.kv_heads : shape.heads, 1));
  z.kv_heads = sequences * static_cast<double>(std::max<std::int64_t>(shape.kv_heads, 1));
  z.operand_bytes = 4;
  bool before = true;  // the first streamed operand is multiplied with the rows, later ones with the weights
  for (const Operand& o : product_operands(a)) {
    const auto found = p.extents.find(o.feature.name);
    const double width = found == p.extents.end() ? 1 : static_cast<double>(found->second);
    if (!o.streamed) continue;
    (before ? z.d_score : z.d_value) += width;
    before = false;
    if (const auto type = p.dtypes.find(o.tensor); type != p.dtypes.end())
      z.operand_bytes = static_cast<double>(size_of(type->second));
  }
  const double tile_rows = s.tile_rows, tile_keys = s.tile_keys;
  z.row_tiles = std::ceil(z.rows / tile_rows);
  // A mask's edge crosses tiles: half a tile of either kind is computed and hidden.
  const double edge =
      shape.visible < 0.999 ? 0.5 * (std::min(tile_rows / group, z.rows) + std::min(tile_keys, z.keys)) : 0;
  const double seen = std::min(z.keys, shape.visible * z.keys + edge);
  z.key_tiles = std::max(1.0, seen / tile_keys);
  if (shape.visible >= 0.999) z.key_tiles = std::ceil(z.keys / tile_keys);
  z.pairs = z.row_tiles * tile_rows * std::min(z.key_tiles * tile_keys, std::ceil(z.keys / 16) * 16);
  return z;
}

Cost predict(const Algorithm& a, const Problem& p, const CallShape& shape, const Schedule& s, const Target& t,
             const Constants& c) {
  Cost cost = t.family == TargetFamily::cuda ? predict_cuda(a, p, shape, s, t, c) : predict_cpu(a, p, shape, s, t, c);
  cost.effect = c.effect_of(point_of(s), initial_point());
  return cost;
}

SpaceRules schedule_rules(const Algorithm& a, const Problem& p, const CallShape& shape, const Target& t,
                          const Constants& c) {
  SpaceRules rules;
  rules.canonical = [](const Point& point) { return point_of(schedule_of(point)); };
  rules.reasons = [&a, &p, &t](const Point& point) { return legality(a, p, schedule_of(point), t); };
  rules.predicted = [&a, &p, shape, &t, &c](const Point& point) {
    return predict(a, p, shape, schedule_of(point), t, c).seconds();
  };
  rules.initial = initial_point();
  return rules;
}

}  // namespace v1
}  // namespace attile
