// The checks of one call, in the order in which they may rely on each other. Internal to CallPlan::bind.
#pragma once

#include "runtime/bind.h"

namespace attile {
inline namespace v1 {

class CallCheck {
 public:
  CallCheck(const CallPlan& plan, const Arguments& arguments, BoundCall& call)
      : plan_(plan), arguments_(arguments), call_(call), extents_(plan.dims_.size(), Extent{}, call.pool()) {}
  void run();

 private:
  using TensorPlan = CallPlan::TensorPlan;
  struct Extent {
    std::int64_t value = 0;
    const TensorPlan* from = nullptr;
  };
  // Bytes from the first to past the last that a tensor reaches; 0 to 0 for an empty one.
  struct Range {
    std::uintptr_t from = 0, to = 0;
  };

  [[noreturn]] void refuse(std::string what, std::string remedy = {}) const;
  const TensorRef& ref(std::size_t i) const { return *call_.tensors[i]; }

  void find_tensors();
  void find_numbers();
  void check_form(const TensorPlan& t, const TensorRef& ref) const;
  void check_extents(const TensorPlan& t, const TensorRef& ref);
  void find_sizes();
  std::int64_t extent(int shared, std::int64_t otherwise) const;
  void check_used_lengths() const;
  void check_bounds(const TensorPlan& t, const TensorRef& bounds, std::int64_t total) const;
  void check_overlap() const;
  void check_own_overlap(const TensorPlan& t, const TensorRef& ref) const;
  static Range range_of(const TensorRef& t);

  const CallPlan& plan_;
  const Arguments& arguments_;
  BoundCall& call_;
  std::pmr::vector<Extent> extents_;  // of the shared dims
};

}  // namespace v1
}  // namespace attile
