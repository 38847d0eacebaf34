// Whether this thread may build kernels, or only take those that are there. Not part of the interface; the Python module,
// which has kernels of its own, asks too.
#pragma once

#include <string>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

bool may_build();
// The Error of a kernel that is not there.
[[noreturn]] void refuse_to_build(const std::string& kernel);

// Sets the right of this thread for its own lifetime.
class ATTILE_API BuildingRight {
 public:
  explicit BuildingRight(bool may);
  ~BuildingRight();
  BuildingRight(const BuildingRight&) = delete;
  BuildingRight& operator=(const BuildingRight&) = delete;

 private:
  bool before_;
};

}  // namespace v1
}  // namespace attile
