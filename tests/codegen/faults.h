// Faults planted in kernels, to see that the verifier finds them.
#pragma once

#include <functional>

#include "codegen/ir_verify.h"
#include "codegen/walk.h"
#include "tests/codegen/lowered.h"
#include "tests/support/catch_compat.h"

namespace attile::test {

using namespace attile::ir;  // NOLINT

// The statement list that holds an op of a type, and its place there.
struct Place {
  Block* block = nullptr;
  std::size_t at = 0;
  explicit operator bool() const { return block != nullptr; }
};

template <typename OpType>
Place find(Block& body, int skip = 0) {
  int left = skip;
  const std::function<Place(Block&)> look = [&](Block& b) -> Place {
    for (std::size_t i = 0; i < b.size(); ++i) {
      if (std::holds_alternative<OpType>(b[i].node) && left-- == 0) return {&b, i};
      for (Block* inner : blocks_of(b[i]))
        if (Place found = look(*inner)) return found;
    }
    return {};
  };
  return look(body);
}

template <typename OpType>
OpType& op(Block& body, int skip = 0) {
  const Place place = find<OpType>(body, skip);
  REQUIRE(place);
  return std::get<OpType>((*place.block)[place.at].node);
}
template <typename OpType>
void remove(Block& body, int skip = 0) {
  const Place place = find<OpType>(body, skip);
  REQUIRE(place);
  place.block->erase(place.block->begin() + static_cast<std::ptrdiff_t>(place.at));
}
template <typename OpType>
void repeat(Block& body, int skip = 0) {
  const Place place = find<OpType>(body, skip);
  REQUIRE(place);
  const Stmt copy = (*place.block)[place.at];
  place.block->insert(place.block->begin() + static_cast<std::ptrdiff_t>(place.at), copy);
}

// Index of the Map that defines `name` within `body`.
inline int map_of(const Kernel& k, Block& body, const std::string& name) {
  for (int i = 0;; ++i) {
    if (k[op<Map>(body, i).dst].name == name) return i;
  }
}

struct Fault {
  const char* what;
  const char* stage;
  std::function<void(Kernel&)> plant;
  const char* rule;   // part of the violation
  const char* shown;  // start of the op that it shows
};

inline void check_found(const Lowered& good, const Fault& fault) {
  Kernel kernel = good.after.at(fault.stage);
  REQUIRE(verify(kernel, fault.stage).empty());
  fault.plant(kernel);
  const std::vector<std::string> violations = verify(kernel, fault.stage);
  bool found = false;
  for (const std::string& v : violations)
    found |= v.find(fault.rule) != std::string::npos && v.find(std::string("in `") + fault.shown) != std::string::npos;
  CAPTURE(fault.what, violations);
  CHECK(found);
}

}  // namespace attile::test
