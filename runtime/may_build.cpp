#include "runtime/may_build.h"

#include <fmt/format.h>

#include <utility>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {
namespace {
thread_local bool right = true;
}

bool may_build() { return right; }

void refuse_to_build(const std::string& kernel) {
  throw Error(ErrorKind::environment, kernel, "the kernel is not built yet, and building is not allowed here",
              "warm it up before (warm_up, attile cache warm), or allow building: on_demand");
}

BuildingRight::BuildingRight(bool may) : before_(std::exchange(right, may)) {}
BuildingRight::~BuildingRight() { right = before_; }

}  // namespace v1
}  // namespace attile
