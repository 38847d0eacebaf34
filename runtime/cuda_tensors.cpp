#include "runtime/cuda_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "dsl/error.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr std::size_t guard = 1024;  // bytes before and after a tensor, all ones

struct Span {
  std::int64_t low = 0, high = 0;  // bytes from the tensor's address, `high` past the last
};
Span span_of(const TensorRef& t) {
  Span out{0, static_cast<std::int64_t>(size_of(t.dtype))};
  for (int i = 0; i < t.rank; ++i) {
    const auto d = static_cast<std::size_t>(i);
    if (t.shape[d] == 0) return {};
    const std::int64_t reach = (t.shape[d] - 1) * t.strides[d] * static_cast<std::int64_t>(size_of(t.dtype));
    (reach < 0 ? out.low : out.high) += reach;
  }
  return out;
}

cu::Address address_of(const std::byte* p) { return reinterpret_cast<cu::Address>(p); }

}  // namespace

CudaTensors::CudaTensors(const Algorithm& a, const Arguments& host, Device device) : arguments_(host), device_(device) {
  const CurrentContext current(device.index);
  const CudaDriver& driver = cuda_driver();
  for (auto& [name, tensor] : arguments_.tensors) {
    const Span span = span_of(tensor);
    Copy copy{static_cast<std::byte*>(tensor.data) + span.low, nullptr, static_cast<std::size_t>(span.high - span.low), a.find_input(name) == nullptr};
    // The place within 256 bytes is kept: a kernel may do different things for aligned rows.
    const std::size_t shift = guard + reinterpret_cast<std::uintptr_t>(copy.host) % 256, all = copy.bytes + shift + guard;
    cu::Address memory{};
    cuda_check(driver.mem_alloc(&memory, all), fmt::format("allocating {} bytes for '{}'", all, name));
    copy.device = reinterpret_cast<std::byte*>(memory) + shift;
    copies_.push_back(copy);
    std::vector<std::byte> image(all, std::byte{0xFF});
    std::memcpy(image.data() + shift, copy.host, copy.bytes);
    cuda_check(driver.memcpy_h2d(memory, image.data(), all), fmt::format("copying '{}' to the device", name));
    tensor.data = copy.device - span.low;
  }
}

CudaTensors::~CudaTensors() {
  try {
    const CurrentContext current(device_.index);
    for (const Copy& c : copies_) cuda_driver().mem_free(address_of(c.device - guard - reinterpret_cast<std::uintptr_t>(c.host) % 256));
  } catch (const Error&) {   // the device is lost, and its memory with it
  }
}

void CudaTensors::copy_back() {
  const CurrentContext current(device_.index);
  const CudaDriver& driver = cuda_driver();
  cuda_check(driver.ctx_synchronize(), "the work on the device");
  for (const Copy& c : copies_) {
    const std::size_t shift = guard + reinterpret_cast<std::uintptr_t>(c.host) % 256;
    std::vector<std::byte> image(c.bytes + shift + guard);
    cuda_check(driver.memcpy_d2h(image.data(), address_of(c.device - shift), image.size()), "copying from the device");
    const auto untouched = [](auto from, auto to) { return std::all_of(from, to, [](std::byte b) { return b == std::byte{0xFF}; }); };
    if (!untouched(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(shift)) || !untouched(image.end() - guard, image.end()))
      throw Error(ErrorKind::internal, "copy_back", "a kernel has written beside a tensor");
    if (c.output) std::memcpy(c.host, image.data() + shift, c.bytes);
  }
}

}  // namespace v1
}  // namespace attile
