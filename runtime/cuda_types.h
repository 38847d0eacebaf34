// The types and values of cuda.h that Attile uses, under names of its own, so that no CUDA header is needed to build.
// tests/runtime/cuda_declarations.cpp compares each with the real header where a toolkit is present.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attile {
inline namespace v1 {
namespace cu {

using DeviceHandle = int;
using Address = std::uint64_t;  // of device memory
using Context = struct ContextRecord*;
using Stream = struct StreamRecord*;
using Event = struct EventRecord*;
using Module = struct ModuleRecord*;
using Function = struct FunctionRecord*;
using MemoryPool = struct MemoryPoolRecord*;
using Graph = struct GraphRecord*;
using GraphNode = struct GraphNodeRecord*;

// Those that are told apart; every other code passes through unchanged.
enum class Result : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  stub_library = 34,
  device_unavailable = 46,
  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  no_binary_for_gpu = 209,
  ecc_uncorrectable = 214,
  invalid_ptx = 218,
  unsupported_ptx_version = 222,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  illegal_address = 700,
  launch_out_of_resources = 701,
  launch_timeout = 702,
  context_is_destroyed = 709,
  illegal_instruction = 715,
  misaligned_address = 716,
  launch_failed = 719,
  not_supported = 801,
  system_not_ready = 802,
  system_driver_mismatch = 803,
  compat_not_supported_on_device = 804,
  stream_capture_unsupported = 900,
  stream_capture_invalidated = 901,
  unknown = 999,
};

enum class DeviceAttribute : int {
  max_threads_per_block = 1,
  max_shared_per_block = 8,
  warp_size = 10,
  max_registers_per_block = 12,
  clock_khz = 13,
  sm_count = 16,
  integrated = 18,
  memory_clock_khz = 36,
  memory_bus_bits = 37,
  l2_bytes = 38,
  max_threads_per_sm = 39,
  capability_major = 75,
  capability_minor = 76,
  max_shared_per_sm = 81,
  max_registers_per_sm = 82,
  max_shared_per_block_optin = 97,
  max_blocks_per_sm = 106,
  reserved_shared_per_block = 111,
  memory_pools_supported = 115,
};

enum class FunctionAttribute : int {
  max_threads_per_block = 0,
  shared_bytes = 1,
  constant_bytes = 2,
  local_bytes = 3,
  registers = 4,
  binary_version = 6,
  max_dynamic_shared_bytes = 8,
  preferred_shared_carveout = 9,
};

enum class PointerAttribute : int { context = 1, memory_type = 2, device_ordinal = 9 };
enum class MemoryType : unsigned { host = 1, device = 2, array = 3, unified = 4 };
enum class MemoryPoolAttribute : int { release_threshold = 4 };  // its value is a std::uint64_t
enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };
enum class JitOption : int { info_log = 3, info_log_bytes = 4, error_log = 5, error_log_bytes = 6 };

constexpr unsigned stream_non_blocking = 1;  // of stream_create
constexpr unsigned event_default = 0, event_disable_timing = 2;

struct Uuid {
  char bytes[16];
};

enum class LaunchAttributeId : int { cluster_dimension = 4, programmatic_stream_serialization = 6 };
struct LaunchAttribute {
  LaunchAttributeId id;
  char padding[4];
  union {
    std::uint64_t words[8];
    struct {
      unsigned x, y, z;
    } cluster;
    int programmatic_stream_serialization;
  } value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct alignas(128) TensorMap {
  std::uint64_t words[16];
};
enum class TensorMapType : int { uint8 = 0, float16 = 6, float32 = 7, bfloat16 = 9 };
enum class TensorMapInterleave : int { none = 0 };
enum class TensorMapSwizzle : int { none = 0, bytes32 = 1, bytes64 = 2, bytes128 = 3 };
enum class TensorMapL2 : int { none = 0, bytes64 = 1, bytes128 = 2, bytes256 = 3 };
enum class TensorMapFill : int { zeros = 0, nan = 1 };

}  // namespace cu
}  // namespace v1
}  // namespace attile
