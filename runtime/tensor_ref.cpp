#include "runtime/tensor_ref.h"

#include <fmt/format.h>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {

TensorRef strided(const void* data, DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  if (shape.size() > TensorRef::max_rank || shape.size() != strides.size())
    throw Error(ErrorKind::argument, "strided", fmt::format("{} dims with {} strides; at most {} dims, each with one stride",
                                                            shape.size(), strides.size(), TensorRef::max_rank));
  TensorRef t;
  t.data = const_cast<void*>(data);
  t.dtype = dtype;
  t.rank = static_cast<int>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) throw Error(ErrorKind::argument, "strided", fmt::format("dim {} has the negative extent {}", i, shape[i]));
    t.shape[i] = shape[i];
    t.strides[i] = strides[i];
  }
  return t;
}

TensorRef contiguous(const void* data, DType dtype, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t next = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = next;
    next *= shape[i];
  }
  return strided(data, dtype, shape, strides);
}

TensorRef contiguous(const void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  return contiguous(data, dtype, std::span(shape.begin(), shape.size()));
}

}  // namespace v1
}  // namespace attile
