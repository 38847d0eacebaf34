// Where the disk cache lies and whether it may be trusted and written: chosen from the options and the user's
// environment, created private, refused when others could plant code in it. Also its leftovers and its upkeep.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/export.h"
#include "runtime/options.h"

namespace attile {
inline namespace v1 {

struct CacheFolder {
  std::string path;       // absolute; empty when there is none
  bool readable = false;  // entries may be used
  bool writable = false;  // entries may be added and repaired
  std::string reason;     // why not, in the user's terms; empty when writable or when so ordered
};

// `folder` empty: $XDG_CACHE_HOME/attile, else $HOME/.cache/attile. Creates it unless read-only is asked for.
// Never throws for the state of the machine.
ATTILE_API CacheFolder open_cache_folder(const std::string& folder, CacheMode mode);

// Entries are folders "<kernel>-<32 hex digits>"; everything else in the folder is not ours, but for these two.
constexpr std::string_view temporary_prefix = ".tmp-", lock_prefix = ".lock-";
bool is_entry_name(std::string_view name);

// Removes what killed processes left: temporary folders and lock files that nobody holds.
void sweep_leftovers(const std::string& folder);

// Takes an entry (or whatever stands at its name) out of sight at once, then removes it. Returns 0 or an errno.
int discard_entry(const std::string& folder, const std::string& name);

struct EntryOnDisk {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t last_used_ns = 0;  // since 1970
};
// Oldest use first.
std::vector<EntryOnDisk> entries_on_disk(const std::string& folder);
// Marks an entry as used now, at most once a minute.
void touch_entry(const std::string& folder, const std::string& name);

}  // namespace v1
}  // namespace attile
