#include "cli/array.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <span>

#include "dsl/error.h"
#include "runtime/parallel_for.h"

namespace attile::cli {
namespace {

constexpr std::size_t alignment = 64;
// Elements of one task when a large array is filled or converted.
constexpr std::int64_t chunk = 1 << 16;

std::int64_t checked_count(DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  bool overflow = shape.size() > TensorRef::max_rank;
  for (const std::int64_t extent : shape) {
    if (extent < 0)
      throw Error(ErrorKind::argument, "shape", fmt::format("{} has a negative extent", shape_text(shape)));
    overflow = overflow || __builtin_mul_overflow(count, extent, &count);
  }
  std::int64_t bytes = 0;
  if (overflow || __builtin_mul_overflow(count, static_cast<std::int64_t>(size_of(dtype)), &bytes))
    throw Error(ErrorKind::argument, "shape", fmt::format("{} is larger than any tensor can be", shape_text(shape)));
  return count;
}

std::size_t machine_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
}

// SplitMix64 at a position of its sequence, so that chunks can be drawn in any order.
std::uint64_t random_word(std::uint64_t seed, std::int64_t position) {
  std::uint64_t z = seed + (static_cast<std::uint64_t>(position) + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

std::uint64_t seed_of(const std::string& name) {
  std::uint64_t seed = 0xCBF29CE484222325ull;  // FNV-1a
  for (const char letter : name) seed = (seed ^ static_cast<unsigned char>(letter)) * 0x100000001B3ull;
  return seed;
}

// The sum of four uniform draws of 16 bits, centred and scaled to variance 1.
double bell(std::uint64_t word) {
  const std::uint64_t sum = (word & 0xFFFF) + ((word >> 16) & 0xFFFF) + ((word >> 32) & 0xFFFF) + (word >> 48);
  return (static_cast<double>(sum) / 65536.0 - 2.0 + 2.0 / 65536.0) * 1.7320508075688772;
}

template <typename F>
void for_each_index(std::int64_t count, const F& body) {
  parallel_for((count + chunk - 1) / chunk, [&](std::int64_t task, int) {
    const std::int64_t end = std::min(count, (task + 1) * chunk);
    for (std::int64_t i = task * chunk; i < end; ++i) body(i);
  });
}

}  // namespace

void Array::Release::operator()(std::byte* memory) const { std::free(memory); }

Array::Array(DType dtype, std::vector<std::int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)), count_(checked_count(dtype_, shape_)) {
  const std::size_t wanted = (bytes() / alignment + 1) * alignment;
  void* memory = wanted > machine_memory() ? nullptr : std::aligned_alloc(alignment, wanted);
  if (memory == nullptr)
    throw Error(ErrorKind::resource, "memory",
                fmt::format("a tensor {} of {} takes {} bytes, more than this machine can give", shape_text(shape_),
                            to_string(dtype_), wanted));
  data_.reset(static_cast<std::byte*>(memory));
}

double Array::get(std::int64_t i) const {
  return read_element(dtype_, data_.get() + static_cast<std::size_t>(i) * size_of(dtype_));
}
void Array::set(std::int64_t i, double value) {
  write_element(dtype_, data_.get() + static_cast<std::size_t>(i) * size_of(dtype_), value);
}
void Array::fill(double value) {
  for_each_index(count_, [&](std::int64_t i) { set(i, value); });
}

void Array::reshape(std::vector<std::int64_t> shape) {
  internal_check(checked_count(dtype_, shape) == count_, "a reshape keeps the number of elements");
  shape_ = std::move(shape);
}

Array converted(Array array, DType dtype, const std::string& where) {
  if (array.dtype() == dtype) return array;
  const bool narrowing = array.dtype() == DType::int64 && dtype == DType::int32;
  if (!narrowing && !(is_float(array.dtype()) && is_float(dtype)))
    throw Error(ErrorKind::argument, where,
                fmt::format("it holds {}, but {} is needed", to_string(array.dtype()), to_string(dtype)));
  Array out(dtype, array.shape());
  for_each_index(array.count(), [&](std::int64_t i) {
    const double value = array.get(i);
    if (narrowing &&
        (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max()))
      throw Error(ErrorKind::argument, where, fmt::format("the value {} does not fit in int32", value));
    out.set(i, value);
  });
  return out;
}

void fill_random(Array& array, const std::string& name) {
  const std::uint64_t seed = seed_of(name);
  for_each_index(array.count(), [&](std::int64_t i) { array.set(i, bell(random_word(seed, i))); });
}

std::vector<double> random_units(std::int64_t count, const std::string& name) {
  const std::uint64_t seed = seed_of(name);
  std::vector<double> units;
  for (std::int64_t i = 0; i < count; ++i)
    units.push_back(static_cast<double>(random_word(seed, i) >> 11) / 9007199254740992.0);
  return units;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += fmt::format("[{}]", extent);
  return text;
}

std::string shape_text(const TensorRef& t) {
  return shape_text(std::vector<std::int64_t>(t.shape.begin(), t.shape.begin() + t.rank));
}

std::string place_text(const std::vector<std::int64_t>& shape, std::int64_t flat) {
  std::string text;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::int64_t extent = std::max<std::int64_t>(shape[d], 1);
    text = fmt::format("[{}]", flat % extent) + text;
    flat /= extent;
  }
  return text;
}

}  // namespace attile::cli
