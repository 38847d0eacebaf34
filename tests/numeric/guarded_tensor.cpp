#include "tests/numeric/guarded_tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

namespace attile::test {

std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t next = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = next;
    next *= shape[i];
  }
  return strides;
}

GuardedTensor::GuardedTensor(DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, Edge edge)
    : dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides)) {
  span_ = 1;
  for (std::size_t i = 0; i < shape_.size(); ++i) {
    if (shape_[i] == 0) span_ = 0;
    if (span_ > 0) span_ += (shape_[i] - 1) * strides_[i];
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = static_cast<std::size_t>(span_) * size_of(dtype_);
  const std::size_t inner = (bytes + page - 1) / page * page + (bytes == 0 ? page : 0);
  map_bytes_ = inner + 2 * page;
  void* map = mmap(nullptr, map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw std::runtime_error("no memory for a guarded tensor");
  map_ = static_cast<std::byte*>(map);
  if (mprotect(map_ + page, inner, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
  data_ = edge == Edge::begin ? map_ + page : map_ + page + inner - bytes;
}

GuardedTensor::~GuardedTensor() { munmap(map_, map_bytes_); }

TensorRef GuardedTensor::ref() const { return strided(data_, dtype_, shape_, strides_); }

std::int64_t GuardedTensor::count() const {
  std::int64_t n = 1;
  for (const auto extent : shape_) n *= extent;
  return n;
}

std::int64_t GuardedTensor::offset_of(std::int64_t i) const {
  std::int64_t offset = 0;
  for (std::size_t d = shape_.size(); d-- > 0;) {
    offset += i % shape_[d] * strides_[d];
    i /= shape_[d];
  }
  return offset;
}

double GuardedTensor::get(std::int64_t i) const {
  return read_element(dtype_, data_ + static_cast<std::size_t>(offset_of(i)) * size_of(dtype_));
}
void GuardedTensor::set(std::int64_t i, double value) {
  write_element(dtype_, data_ + static_cast<std::size_t>(offset_of(i)) * size_of(dtype_), value);
}
void GuardedTensor::fill(double value) {
  for (std::int64_t i = 0; i < span_; ++i) write_element(dtype_, data_ + static_cast<std::size_t>(i) * size_of(dtype_), value);
}

}  // namespace attile::test
