// One kernel of a program, ready to be called: which slot of its argument block comes from where, and how many tasks
// cover a call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/bind.h"

namespace attile {
inline namespace v1 {

// Are the address and all strides but the last of the tensor multiples of `bytes`?
bool is_aligned(const TensorRef& t, std::int64_t bytes);

class LaunchPlan {
 public:
  // `tensor` and `number` give the numbers of names in what launch() gets.
  using Lookup = std::function<int(std::string_view name)>;
  LaunchPlan(const EmittedKernel& k, const Algorithm& a, const Problem& p, const Lookup& tensor, const Lookup& number);

  // One task of a call: its argument block, its number, the scratch of the worker.
  using Function = void(const std::uint64_t* args, std::int64_t task, void* scratch);
  // Runs all tasks of the kernel and returns when they are done.
  void launch(Function* function, CallSizes sizes, std::span<const TensorRef* const> tensors,
              std::span<const Arguments::Number* const> numbers) const;

  // What launch() is made of, for other machines: the argument block, with sizes.row_tiles set, and the number of tasks.
  using Block = std::pmr::vector<std::uint64_t>;
  void fill(Block& block, const CallSizes& sizes, std::span<const TensorRef* const> tensors,
            std::span<const Arguments::Number* const> numbers) const;
  std::int64_t task_count(const CallSizes& sizes) const;

  // Row tiles of one (sequence, head), or of one head over all sequences when lengths are packed.
  std::int64_t row_tiles(const CallSizes& sizes) const;
  // Row tiles of all heads.
  std::int64_t all_row_tiles(const CallSizes& sizes) const;

 private:
  struct Slot {
    Parameter::Kind kind;
    std::size_t number = 0, dim = 0;  // of the tensor or number
    std::int64_t CallSizes::*size = nullptr;
  };
  std::uint64_t value_of(const Slot& slot, const CallSizes& sizes, std::span<const TensorRef* const> tensors,
                         std::span<const Arguments::Number* const> numbers) const;

  std::vector<Slot> slots_;
  std::int64_t tile_rows_, rows_per_query_;
  std::size_t scratch_bytes_;
  bool packed_, group_in_rows_, per_part_, per_key_tile_, per_head_;
};

}  // namespace v1
}  // namespace attile
