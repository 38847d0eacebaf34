// The disk cache of compiled kernels. One compile per key over all threads and processes that share the folder; an
// entry is there whole or not at all, is checked when it is read, and is repaired when it is damaged. The size is
// bounded, least recently used first. No fault of the disk is an error of the caller's: whatever is wrong is told
// in one warning and the kernel is built without the cache.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dsl/export.h"
#include "runtime/cache_entry.h"
#include "runtime/options.h"

namespace attile {
inline namespace v1 {

struct CacheOptions {
  std::string folder;  // empty: attile in the user's cache folder
  CacheMode mode = CacheMode::on;
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  // How long another process may take over a kernel before this one builds it too.
  std::chrono::milliseconds patience{120'000};

  ATTILE_API static CacheOptions from_environment();
};

struct CacheStats {
  std::uint64_t builds = 0;     // kernels built by this object
  std::uint64_t hits = 0;       // read from disk
  std::uint64_t shared = 0;     // waited for another thread's build or read of the same key
  std::uint64_t damaged = 0;    // entries found damaged
  std::uint64_t evicted = 0;    // entries removed for size
  std::uint64_t unwritten = 0;  // builds that could not be kept
};

struct CacheListing {
  std::string name;  // folder of the entry
  CacheKey key;      // as meta.yaml tells it, long parts abbreviated
  std::uint64_t bytes = 0;
  std::int64_t last_used_ns = 0;  // since 1970
  std::string fault;              // empty when the entry is whole
};

class ATTILE_API KernelCache {
 public:
  explicit KernelCache(CacheOptions options);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  // What `build` returns for this key, from disk when it is there. `hit` (may be null) says that this call built
  // nothing. Only what build() throws is thrown: to every thread that waits for it; it is not remembered.
  // `build` must not ask this cache for the same key.
  CacheEntry get_or_build(const CacheKey& key, const std::function<CacheEntry()>& build, bool* hit = nullptr);
  // The same without building: null when there is no good entry.
  std::unique_ptr<CacheEntry> find(const CacheKey& key);

  // Every entry, checked; oldest use first.
  std::vector<CacheListing> list();
  // Removes damaged entries, when the folder may be written; returns all that were damaged.
  std::vector<CacheListing> verify();
  // Removes every entry and leftover, and nothing that is not the cache's own; returns the number of entries.
  std::uint64_t clear();

  CacheStats stats() const;
  // The absolute path; empty when no folder can be had.
  std::string folder();
  // Why entries cannot be read or written, in one sentence; empty when all is well.
  std::string fault();

 private:
  struct State;
  CacheEntry lead(const CacheKey& key, const std::function<CacheEntry()>& build, bool& built);
  std::unique_ptr<State> state_;
};

// The process's cache: configured by the environment at first use, or by the last call of set_kernel_cache.
ATTILE_API std::shared_ptr<KernelCache> kernel_cache();
ATTILE_API void set_kernel_cache(CacheOptions options);

}  // namespace v1
}  // namespace attile
