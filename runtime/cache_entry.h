// One entry of the disk cache: a folder of plain files with a meta.yaml that names the key in readable form and holds
// size and checksum of every file, itself included. What is read is whole and belongs to the key, or it is not read.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

// All that decides what the files are, in a fixed order: emitted text, target, compiler and its version, flags,
// library version. Nothing of this run (paths, times, addresses) belongs here.
struct ATTILE_API CacheKey {
  std::string name;  // the kernel's, for people
  std::vector<std::pair<std::string, std::string>> parts;

  std::string hex() const;          // 128-bit hash of name and parts, 32 digits
  std::string folder_name() const;  // "<name>-<hex>"; letters a file system may dislike become '_'
};

// File name to content: "kernel.ll", "kernel.ir", "kernel.o", "compile.log". Flat names other than "meta.yaml".
struct CacheEntry {
  std::map<std::string, std::string> files;
};

struct EntryRead {
  enum State { good, missing, damaged } state = missing;
  CacheEntry entry;
  std::string fault;  // of a damaged one
};
// Throws nothing but std::bad_alloc.
EntryRead read_entry(const std::string& folder, const CacheKey& key);

// As read_entry for an entry whose key is not at hand: what meta.yaml says of it is taken and checked.
struct EntryInfo {
  CacheKey key;       // long parts abbreviated to their hash
  std::string fault;  // empty when whole
};
EntryInfo inspect_entry(const std::string& folder, const std::string& name);

// Writes beside and renames, so the entry is there whole or not at all. When another process was first, its good entry
// stays. Returns 0 or an errno; a failure leaves nothing behind.
int write_entry(const std::string& folder, const CacheKey& key, const CacheEntry& entry);

}  // namespace v1
}  // namespace attile
