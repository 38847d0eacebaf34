#include "runtime/cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <map>
#include <mutex>

#include "runtime/cache_folder.h"
#include "runtime/file_lock.h"
#include "runtime/files.h"
#include "runtime/fork_mutex.h"

namespace attile {
inline namespace v1 {
namespace {

// Other processes add entries too; the true size is read again after so many of our own.
constexpr int stores_between_scans = 16;

using Shared = std::shared_ptr<const CacheEntry>;

struct Flight {
  std::shared_future<Shared> result;
  pid_t process;  // a child of a fork must not wait for a thread that only its parent has
};

}  // namespace

struct KernelCache::State {
  CacheOptions options;
  std::atomic<bool> opened{false};
  CacheFolder place;

  // Of the three below; never held over a build or a file operation.
  std::shared_mutex& mutex = mutex_of(Guarded::cache_state);
  std::map<std::string, Flight> flights;
  int stores_until_scan = 0;
  std::uint64_t known_bytes = 0;  // as of the last scan, and what we added since

  std::atomic<std::uint64_t> builds{0}, hits{0}, shared{0}, damaged{0}, evicted{0}, unwritten{0};

  const CacheFolder& folder();
  void remove_damaged(const CacheKey& key, const std::string& fault);
  void store(const CacheKey& key, const CacheEntry& entry);
  bool scan_is_due(const CacheEntry& added);
  void evict();
};

CacheOptions CacheOptions::from_environment() {
  CacheOptions result;
  result.folder = attile::options().cache_dir;
  result.mode = attile::options().cache;
  result.max_bytes = attile::options().cache_bytes;
  return result;
}

const CacheFolder& KernelCache::State::folder() {
  if (opened.load(std::memory_order_acquire)) return place;
  CacheFolder found = open_cache_folder(options.folder, options.mode);
  if (!found.reason.empty())
    warn(fmt::format("compiled kernels {} on disk: {}; set ATTILE_CACHE_DIR to another folder",
                     found.readable ? "are not kept" : "are neither kept nor looked for", found.reason));
  if (found.writable) sweep_leftovers(found.path);
  const std::lock_guard lock(mutex);
  if (!opened.load(std::memory_order_relaxed)) place = std::move(found);
  opened.store(true, std::memory_order_release);
  return place;
}

void KernelCache::State::remove_damaged(const CacheKey& key, const std::string& fault) {
  damaged.fetch_add(1);
  warn(fmt::format("the cached kernel '{}/{}' is damaged ({}) and is built again", place.path, key.folder_name(),
                   fault));
  if (place.writable) discard_entry(place.path, key.folder_name());
}

void KernelCache::State::store(const CacheKey& key, const CacheEntry& entry) {
  int error = write_entry(place.path, key, entry);
  // Someone removed the whole folder while we ran.
  if (error == ENOENT && make_folders(place.path) == 0) error = write_entry(place.path, key, entry);
  if (error) {
    unwritten.fetch_add(1);
    warn(fmt::format("compiled kernels are not kept on disk: '{}' cannot be written: {}", place.path,
                     error_text(error)));
  } else if (scan_is_due(entry)) {
    evict();
  }
}

bool KernelCache::State::scan_is_due(const CacheEntry& added) {
  std::lock_guard lock(mutex);
  for (const auto& [name, content] : added.files) known_bytes += content.size();
  if (--stores_until_scan > 0 && known_bytes <= options.max_bytes) return false;
  stores_until_scan = stores_between_scans;
  return true;
}

void KernelCache::State::evict() {
  std::vector<EntryOnDisk> entries = entries_on_disk(place.path);
  std::uint64_t total = 0;
  for (const EntryOnDisk& entry : entries) total += entry.bytes;
  // The margin keeps a full cache from being scanned and trimmed at every single store.
  std::uint64_t wanted = total > options.max_bytes ? options.max_bytes - options.max_bytes / 16 : total;
  for (const EntryOnDisk& entry : entries) {
    if (total <= wanted) break;
    if (discard_entry(place.path, entry.name) == 0) evicted.fetch_add(1);
    total -= entry.bytes;
  }
  std::lock_guard lock(mutex);
  known_bytes = total;
}

KernelCache::KernelCache(CacheOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
}
KernelCache::~KernelCache() = default;

CacheEntry KernelCache::get_or_build(const CacheKey& key, const std::function<CacheEntry()>& build, bool* hit) {
  std::string id = key.folder_name();
  std::promise<Shared> promise;
  std::shared_future<Shared> other;
  {
    std::lock_guard lock(state_->mutex);
    auto found = state_->flights.find(id);
    if (found != state_->flights.end() && found->second.process == ::getpid())
      other = found->second.result;
    else
      state_->flights[id] = {promise.get_future().share(), ::getpid()};
  }
  if (hit) *hit = true;
  if (other.valid()) {
    state_->shared.fetch_add(1);
    return *other.get();
  }
  auto land = [&] {
    std::lock_guard lock(state_->mutex);
    state_->flights.erase(id);
  };
  try {
    bool built = false;
    auto entry = std::make_shared<const CacheEntry>(lead(key, build, built));
    land();
    promise.set_value(entry);
    if (hit) *hit = !built;
    return *entry;
  } catch (...) {
    land();
    promise.set_exception(std::current_exception());
    throw;
  }
}

CacheEntry KernelCache::lead(const CacheKey& key, const std::function<CacheEntry()>& build, bool& built) {
  State& s = *state_;
  auto hit = [&](EntryRead& read) {
    s.hits.fetch_add(1);
    if (s.place.writable) touch_entry(s.place.path, key.folder_name());
    return std::move(read.entry);
  };
  auto build_now = [&] {
    built = true;
    CacheEntry entry = build();
    s.builds.fetch_add(1);
    return entry;
  };
  const CacheFolder& place = s.folder();
  if (!place.readable) return build_now();
  EntryRead read = read_entry(place.path, key);
  if (read.state == EntryRead::good) return hit(read);
  if (!place.writable) {
    if (read.state == EntryRead::damaged) s.remove_damaged(key, read.fault);
    return build_now();
  }
  // Others who wait for the same kernel go on as soon as its entry is there, without taking turns at the lock.
  auto there = [&] { return (read = read_entry(place.path, key)).state == EntryRead::good; };
  FileLock lock(fmt::format("{}/{}{}", place.path, lock_prefix, key.folder_name()), s.options.patience, there);
  if (read.state == EntryRead::good || there()) return hit(read);
  if (read.state == EntryRead::damaged) s.remove_damaged(key, read.fault);
  CacheEntry entry = build_now();
  s.store(key, entry);
  return entry;
}

std::unique_ptr<CacheEntry> KernelCache::find(const CacheKey& key) {
  const CacheFolder& place = state_->folder();
  if (!place.readable) return nullptr;
  EntryRead read = read_entry(place.path, key);
  if (read.state != EntryRead::good) return nullptr;
  state_->hits.fetch_add(1);
  if (place.writable) touch_entry(place.path, key.folder_name());
  return std::make_unique<CacheEntry>(std::move(read.entry));
}

std::vector<CacheListing> KernelCache::list() {
  std::vector<CacheListing> listing;
  const CacheFolder& place = state_->folder();
  if (!place.readable) return listing;
  for (const EntryOnDisk& entry : entries_on_disk(place.path)) {
    EntryInfo info = inspect_entry(place.path, entry.name);
    if (info.fault != "gone") listing.push_back({entry.name, info.key, entry.bytes, entry.last_used_ns, info.fault});
  }
  return listing;
}

std::vector<CacheListing> KernelCache::verify() {
  std::vector<CacheListing> bad = list();
  std::erase_if(bad, [](const CacheListing& entry) { return entry.fault.empty(); });
  for (const CacheListing& entry : bad)
    if (state_->place.writable) discard_entry(state_->place.path, entry.name);
  return bad;
}

std::uint64_t KernelCache::clear() {
  const CacheFolder& place = state_->folder();
  std::uint64_t removed = 0;
  if (!place.writable) return removed;
  for (const EntryOnDisk& entry : entries_on_disk(place.path))
    if (discard_entry(place.path, entry.name) == 0) ++removed;
  sweep_leftovers(place.path);
  return removed;
}

CacheStats KernelCache::stats() const {
  const State& s = *state_;
  return {s.builds, s.hits, s.shared, s.damaged, s.evicted, s.unwritten};
}

std::string KernelCache::folder() { return state_->folder().path; }
std::string KernelCache::fault() { return state_->folder().reason; }

namespace {

struct Current {
  std::shared_mutex& mutex = mutex_of(Guarded::current_cache);
  std::shared_ptr<KernelCache> cache;
};
// Never destroyed: a thread may build while the process exits.
Current& current() {
  static auto* value = new Current();
  return *value;
}

}  // namespace

std::shared_ptr<KernelCache> kernel_cache() {
  Current& c = current();
  {
    std::lock_guard lock(c.mutex);
    if (c.cache) return c.cache;
  }
  auto fresh = std::make_shared<KernelCache>(CacheOptions::from_environment());
  std::lock_guard lock(c.mutex);
  if (!c.cache) c.cache = fresh;
  return c.cache;
}

void set_kernel_cache(CacheOptions options) {
  auto fresh = std::make_shared<KernelCache>(std::move(options));
  Current& c = current();
  std::lock_guard lock(c.mutex);
  std::swap(c.cache, fresh);
}

}  // namespace v1
}  // namespace attile
