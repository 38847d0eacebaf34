// Opening libraries that are looked for at run time. A file that is cut short, which would end the process inside
// dlopen (SIGBUS), is refused with words. What was opened stays open: drivers and compilers do not bear unloading.
#pragma once

#include <dlfcn.h>

#include <string>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

struct OpenedLibrary {
  void* handle = nullptr;
  std::string path;   // of the file, where the loader tells it
  std::string fault;  // why it could not be opened
};

// `name` is a path, or a name for the loader's own search (LD_LIBRARY_PATH, ld.so.cache, what the process has open).
ATTILE_API OpenedLibrary open_library(const std::string& name);

// What is wrong with a file that should be a 64-bit ELF library, before the loader sees it; empty when nothing is.
ATTILE_API std::string library_fault(const std::string& path);

template <typename F>
bool bind(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

ATTILE_API std::string folder_of(const std::string& path);
// With links followed; the path itself where that fails.
ATTILE_API std::string resolved(const std::string& path);

}  // namespace v1
}  // namespace attile
