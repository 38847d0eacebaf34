// The arguments of a call against what the algorithm declares. A CallPlan is made once per kernel and holds all that
// names decide, so that a call only compares numbers; a small call takes no memory from the heap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/program.h"
#include "runtime/tensor_ref.h"

namespace attile {
inline namespace v1 {

// The sizes of one call. rows and positions: of every sequence when dense, the packed totals otherwise.
struct CallSizes {
  std::int64_t sequences = 1, heads = 1, kv_heads = 1, rows = 0, positions = 0, parts = 1;
  std::int64_t keys = 0;        // of the call, also where a merge streams over parts instead
  std::int64_t row_tiles = 0;   // of the kernel being launched
  std::int64_t key_tiles = 0;   // with packed operands: tiles of the stream of a kv head
};

// A call whose arguments have been found and checked, each at its number in the plan.
class BoundCall {
 public:
  BoundCall() = default;
  BoundCall(const BoundCall&) = delete;
  BoundCall& operator=(const BoundCall&) = delete;
  std::pmr::memory_resource* pool() { return &pool_; }

 private:
  std::array<std::byte, 2048> memory_;
  std::pmr::monotonic_buffer_resource pool_{memory_.data(), memory_.size()};

 public:
  CallSizes sizes;
  std::pmr::vector<const TensorRef*> tensors{&pool_};
  std::pmr::vector<const Arguments::Number*> numbers{&pool_};
};

class CallPlan {
 public:
  // Where the tensors of a call lie: the contents of length tensors are checked where the host can read them.
  enum class Memory : std::uint8_t { host, device };
  // Throws Error(argument) for a tensor with more dims than a TensorRef has.
  CallPlan(const Algorithm& a, const Problem& p, Memory memory = Memory::host);

  // Checks names, types, shapes, strides, overlap and the contents of length tensors, and fills `call`, which keeps
  // pointers into `arguments`. Throws Error(argument).
  void bind(const Arguments& arguments, BoundCall& call) const;

  int tensor_count() const { return static_cast<int>(tensors_.size()); }
  // Numbers in BoundCall; −1 for an unknown name.
  int tensor(std::string_view name) const;
  int number(std::string_view name) const;

 private:
  friend class CallCheck;

  // One dim of a tensor: an extent that is compiled in, or one that all tensors of the call share.
  struct Axis {
    int shared = -1;  // number of the shared dim; −1: `fixed` is the extent
    std::int64_t fixed = 0;
    std::int64_t extra = 0;  // indices beyond the shared extent: the bounds of n sequences are n + 1
    bool packed_batch = false;
  };
  struct TensorPlan {
    std::string name;
    Dims dims;
    DType dtype = DType::float32;
    bool is_output = false, is_operand = false;
    bool may_broadcast = false, unit_last = false;
    std::vector<Axis> axes;
  };
  struct NumberPlan {
    std::string name;
    Kind kind;
  };

  void add(const std::string& name, const Dims& dims, bool is_output, const Algorithm& a, const Problem& p);
  int shared(const Dim& d, bool make = false);

  std::string where_;  // the algorithm's name
  Memory memory_;
  Lengths lengths_;
  std::int64_t group_;
  std::vector<TensorPlan> tensors_;  // inputs, then outputs, in order of declaration
  std::vector<int> order_;           // operands and outputs, which decide the extents, before what may broadcast
  std::vector<NumberPlan> numbers_;
  std::vector<std::string> dims_;                                           // the shared dims
  int batch_ = -1, head_ = -1, kv_head_ = -1, rows_ = -1, positions_ = -1;  // among them
  int kv_lens_ = -1, cu_seqlens_q_ = -1, cu_seqlens_k_ = -1;                // among the tensors
};

}  // namespace v1
}  // namespace attile
