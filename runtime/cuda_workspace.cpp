#include "runtime/cuda_workspace.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "dsl/error.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"

namespace attile {
inline namespace v1 {
namespace {

// CUmemPoolProps of cuda.h: pinned device memory of one device.
struct PoolProperties {
  int allocation_type = 1, handle_types = 0;
  int location_type = 1, location = 0;
  void* security_attributes = nullptr;
  std::size_t max_size = 0;
  unsigned char reserved[56] = {};
};
static_assert(sizeof(PoolProperties) == 88);

// A pool of our own, which keeps what it has: the default pool gives memory back at every synchronisation, and belongs to
// the caller. Made at the first use; lives as long as the process.
struct Pool {
  cu::Result (*allocate)(cu::Address*, std::size_t bytes, cu::MemoryPool, cu::Stream) = nullptr;
  cu::MemoryPool pool = nullptr;
};
const Pool& pool_of(int device) {
  static std::mutex mutex;
  static auto* pools = new std::map<int, Pool>();
  const std::lock_guard lock(mutex);
  Pool& known = (*pools)[device];
  if (known.pool) return known;
  const CudaDriver& driver = cuda_driver();
  const auto create = reinterpret_cast<cu::Result (*)(cu::MemoryPool*, const PoolProperties*)>(driver.symbol("cuMemPoolCreate"));
  known.allocate = reinterpret_cast<decltype(known.allocate)>(driver.symbol("cuMemAllocFromPoolAsync"));
  if (!create || !known.allocate || !cuda_device(device).memory_pools)
    throw Error(ErrorKind::unsupported, "work space", fmt::format("{} has no memory pools", cuda_device(device).name),
                "give the call a work space of Kernel::workspace_bytes");
  PoolProperties properties;
  properties.location = cuda_device(device).handle;
  cu::MemoryPool pool{};
  cuda_check(create(&pool, &properties), "making a memory pool");
  std::uint64_t keep = ~std::uint64_t{0};
  cuda_check(driver.mem_pool_set_attribute(pool, cu::MemoryPoolAttribute::release_threshold, &keep), "setting up a memory pool");
  known.pool = pool;
  return known;
}

}  // namespace

CudaWorkspace::CudaWorkspace(std::size_t bytes, int device, cu::Stream stream, void* given, std::size_t given_bytes) : stream_(stream) {
  if (bytes == 0) return;
  if (given) {
    if (given_bytes < bytes)
      throw Error(ErrorKind::argument, "work space", fmt::format("{} bytes are given and {} are needed", given_bytes, bytes), "ask Kernel::workspace_bytes");
    data_ = static_cast<std::byte*>(given);
    return;
  }
  const Pool& pool = pool_of(device);
  cu::Address address{};
  cuda_check(pool.allocate(&address, bytes, pool.pool, stream), fmt::format("allocating {} bytes of work space", bytes));
  data_ = reinterpret_cast<std::byte*>(address);
  own_ = true;
}

CudaWorkspace::~CudaWorkspace() {
  if (own_) cuda_driver().mem_free_async(reinterpret_cast<cu::Address>(data_), stream_);
}

}  // namespace v1
}  // namespace attile
