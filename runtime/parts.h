// The partial results of a stream that is split: where each part's states lie between the two kernels. They live in
// memory of the calling thread that is kept for its next call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "dsl/derive.h"
#include "runtime/bind.h"

namespace attile {
inline namespace v1 {

class PartsPlan {
 public:
  PartsPlan(const SplitAlgorithm& split, const Problem& p);

  std::size_t count() const { return states_.size(); }
  // Number of the tensor "part.<state>"; −1 for another name.
  int tensor(std::string_view name) const;
  // Bytes for all parts of a call.
  std::size_t bytes(const CallSizes& sizes) const;
  // The tensors as the partial kernel writes them (`part` last) and as the merge reads them, at `memory`.
  void place(const CallSizes& sizes, std::byte* memory, TensorRef* writes, TensorRef* reads) const;

 private:
  struct Axis {
    std::int64_t CallSizes::*size = nullptr;  // null: `fixed`
    std::int64_t fixed = 1;
  };
  struct StateTensor {
    std::string name;
    std::vector<Axis> axes;                   // as the merge declares them
    std::vector<std::size_t> inner_to_outer;  // the order of the dims in memory: features, `part`, the rest
    std::vector<std::size_t> written;         // which of the axes the writer has, in its order; `part` last
  };
  std::int64_t elements(const StateTensor& t, const CallSizes& sizes) const;
  std::vector<StateTensor> states_;
};

// The parts of a call as further tensors of it, at `memory`: as the partial kernel writes them, then as the merge reads
// them.
class PartsTensors {
 public:
  PartsTensors(const PartsPlan& parts, BoundCall& call, std::byte* memory);
  // From here on the call is the merge's: it streams over the parts.
  void read();

 private:
  BoundCall& call_;
  std::size_t count_, own_;
  std::pmr::vector<TensorRef> views_;
};

// Memory of this thread, taken for one call and given back at its end.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  std::byte* data() const { return block_.memory.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Block {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes = 0;
  };
  static Block& kept();
  Block block_;
};

}  // namespace v1
}  // namespace attile
