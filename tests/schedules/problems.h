// Problems to plan for, by algorithm.
#pragma once

#include "dsl/library.h"
#include "schedules/schedule.h"

namespace attile::test {

inline Problem problem_for(const Algorithm& a, DType type = DType::float32, std::int64_t d = 64, std::int64_t dv = 64) {
  Problem p;
  for (const InputDecl& i : a.inputs)
    p.dtypes[i.name] = i.kind == Kind::real ? type : i.kind == Kind::integer ? DType::int32 : DType::boolean;
  for (const OutputDecl& o : a.outputs) p.dtypes[o.name] = o.kind == Kind::integer ? DType::int32 : type;
  p.extents = {{"head_dim", d}, {"value_dim", dv}};
  return p;
}

// Attention with the options that `set` chooses.
template <typename Set>
Algorithm attention_with(const Set& set) {
  AttentionOptions options;
  set(options);
  return attention(options);
}

}  // namespace attile::test
