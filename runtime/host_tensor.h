// Tensors in host memory as the untiled reference reads them.
#pragma once

#include <cstddef>

#include "dsl/evaluate.h"
#include "runtime/tensor_ref.h"

namespace attile {
inline namespace v1 {

// `place`: in elements from the first.
inline double element_at(const TensorRef& t, std::int64_t place) {
  return read_element(t.dtype,
                      static_cast<const std::byte*>(t.data) + static_cast<std::size_t>(place) * size_of(t.dtype));
}
// Of a tensor with one dim.
inline std::int64_t int_at(const TensorRef& t, std::int64_t i) {
  return static_cast<std::int64_t>(element_at(t, i * t.strides[0]));
}

// A dim of extent 1 counts as a broadcast one.
inline HostTensor host_tensor(const TensorRef& t) {
  HostTensor view{t.dtype, t.data, {}, {}};
  for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
    view.shape.push_back(t.shape[d]);
    view.strides.push_back(t.shape[d] == 1 ? 0 : t.strides[d]);
  }
  return view;
}

}  // namespace v1
}  // namespace attile
