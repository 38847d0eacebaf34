// A view of memory that the caller owns: address, type, shape, strides. Nothing is copied or kept beyond a call.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dsl/dtype.h"
#include "dsl/export.h"

namespace attile {
inline namespace v1 {

struct TensorRef {
  static constexpr int max_rank = 6;

  void* data = nullptr;
  DType dtype = DType::float32;
  int rank = 0;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> strides{};   // in elements
};

// Row-major without gaps. Throws Error(argument) for more than max_rank dims or a negative extent.
ATTILE_API TensorRef contiguous(const void* data, DType dtype, std::span<const std::int64_t> shape);
ATTILE_API TensorRef contiguous(const void* data, DType dtype, std::initializer_list<std::int64_t> shape);
ATTILE_API TensorRef strided(const void* data, DType dtype, std::span<const std::int64_t> shape,
                             std::span<const std::int64_t> strides);

// The arguments of a call by the names the algorithm gives them, in any order.
struct Arguments {
  struct Tensor { std::string name; TensorRef tensor; };
  struct Number { std::string name; double real; std::int64_t integer; };

  std::vector<Tensor> tensors;
  std::vector<Number> numbers;

  Arguments& tensor(std::string name, const TensorRef& t) {
    tensors.push_back({std::move(name), t});
    return *this;
  }
  Arguments& real(std::string name, double value) {
    numbers.push_back({std::move(name), value, 0});
    return *this;
  }
  Arguments& integer(std::string name, std::int64_t value) {
    numbers.push_back({std::move(name), static_cast<double>(value), value});
    return *this;
  }
};

}  // namespace v1
}  // namespace attile
