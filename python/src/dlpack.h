// The structs of DLPack 1.0 (dmlc.github.io/dlpack), as far as tensors are read through them.
#pragma once

#include <cstdint>

namespace attile::python::dlpack {

enum DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };
enum TypeCode : std::uint8_t { int_code = 0, uint_code = 1, float_code = 2, bfloat_code = 4, bool_code = 6 };

struct Tensor {
  void* data;
  DeviceType device_type;
  std::int32_t device_index;
  std::int32_t rank;
  TypeCode code;
  std::uint8_t bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: row-major without gaps
  std::uint64_t byte_offset;
};

// In a capsule "dltensor".
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

// In a capsule "dltensor_versioned".
struct ManagedVersioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};
inline constexpr std::uint64_t read_only_flag = 1;

// DLPack 1.3: functions of a tensor type, in a capsule "dlpack_exchange_api" at its __dlpack_c_exchange_api__. They
// give no ownership, make no object and wait for nothing; 0 is success.
struct Exchange {
  std::uint32_t major, minor;
  Exchange* previous;
  void *allocate, *managed_from_object, *managed_to_object;
  int (*tensor_from_object)(void* object, Tensor* out);
  int (*current_stream)(DeviceType type, std::int32_t index, void** out);
};

}  // namespace attile::python::dlpack
