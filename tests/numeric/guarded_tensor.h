// A tensor whose first and last byte touch unreadable pages, so that generated code (which no sanitizer sees)
// cannot read or write outside it unnoticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/tensor_ref.h"

namespace attile::test {

enum class Edge { begin, end };   // which edge of the memory lies at a page border

class GuardedTensor {
 public:
  // Strides in elements, non-negative; the memory spans exactly the elements that shape and strides reach.
  GuardedTensor(DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, Edge edge);
  ~GuardedTensor();
  GuardedTensor(const GuardedTensor&) = delete;
  GuardedTensor& operator=(const GuardedTensor&) = delete;

  DType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  const std::vector<std::int64_t>& strides() const { return strides_; }
  std::byte* data() const { return data_; }
  TensorRef ref() const;
  std::int64_t count() const;   // product of the shape
  // Element number i in row-major order of the shape.
  double get(std::int64_t i) const;
  void set(std::int64_t i, double value);
  void fill(double value);      // every byte of the span, gaps between rows included

 private:
  std::int64_t offset_of(std::int64_t i) const;
  DType dtype_;
  std::vector<std::int64_t> shape_, strides_;
  std::int64_t span_ = 0;       // elements reached
  std::byte* map_ = nullptr;
  std::size_t map_bytes_ = 0;
  std::byte* data_ = nullptr;
};

std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& shape);

}  // namespace attile::test
