// A tensor that the command line owns: row-major memory, aligned to a cache line, with its type and shape; read from
// files, generated, converted, and lent to calls as a TensorRef.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/tensor_ref.h"

namespace attile::cli {

class Array {
 public:
  Array() = default;
  // Contents unspecified. Throws Error(argument) for a shape whose size overflows or with too many dims, and
  // Error(resource) when the machine has less memory than it needs.
  Array(DType dtype, std::vector<std::int64_t> shape);

  DType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * size_of(dtype_); }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  TensorRef ref() const { return contiguous(data_.get(), dtype_, shape_); }

  double get(std::int64_t i) const;
  void set(std::int64_t i, double value);
  void fill(double value);
  // The same elements with other dims; the product must agree.
  void reshape(std::vector<std::int64_t> shape);

 private:
  struct Release {
    void operator()(std::byte* memory) const;
  };
  DType dtype_ = DType::float32;
  std::vector<std::int64_t> shape_;
  std::int64_t count_ = 0;
  std::unique_ptr<std::byte[], Release> data_;
};

// Float types into each other with rounding, int64 into int32 where every value fits. Throws Error(argument) that
// names `where` for anything else.
Array converted(Array array, DType dtype, const std::string& where);

// About standard normal, the same on every machine; `name` decides the numbers.
void fill_random(Array& array, const std::string& name);
// Uniform in [0, 1), from the same source: for drawing lengths and masks.
std::vector<double> random_units(std::int64_t count, const std::string& name);

// "[1][12][372][32]".
std::string shape_text(const std::vector<std::int64_t>& shape);
std::string shape_text(const TensorRef& tensor);
// "[0][3][17][5]" of element number `flat`.
std::string place_text(const std::vector<std::int64_t>& shape, std::int64_t flat);

}  // namespace attile::cli
