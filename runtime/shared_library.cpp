#include "runtime/shared_library.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "runtime/files.h"

namespace attile {
inline namespace v1 {
namespace {

// Whether every byte that the loader maps is in the file.
bool segments_are_whole(int fd, const Elf64_Ehdr& header, std::uint64_t size) {
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::uint64_t at = header.e_phoff + std::uint64_t(i) * sizeof segment;
    if (at > size || ::pread(fd, &segment, sizeof segment, static_cast<off_t>(at)) != sizeof segment) return false;
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) return false;
  }
  return true;
}

}  // namespace

std::string folder_of(const std::string& path) {
  auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string resolved(const std::string& path) {
  char buffer[PATH_MAX];
  return realpath(path.c_str(), buffer) ? std::string(buffer) : path;
}

std::string library_fault(const std::string& path) {
  // Nonblocking, or a pipe in the file's place would hold us up.
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return error_text(errno);
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return error_text(errno);
  if (!S_ISREG(status.st_mode)) return "is no file";
  Elf64_Ehdr header;
  if (::pread(fd.get(), &header, sizeof header, 0) != sizeof header ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    return "is no 64-bit library";
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return "is damaged";
  if (!segments_are_whole(fd.get(), header, static_cast<std::uint64_t>(status.st_size))) return "is cut short";
  return {};
}

OpenedLibrary open_library(const std::string& name) {
  OpenedLibrary opened;
  if (name.find('/') != std::string::npos) {
    if (std::string fault = library_fault(name); !fault.empty()) {
      opened.fault = fmt::format("{}: {}", name, fault);
      return opened;
    }
  }
  // Local: its symbols must not serve (or be served by) another copy in the process.
  opened.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened.handle) {
    const char* fault = dlerror();
    opened.fault = fault ? fault : name;
    return opened;
  }
  link_map* map = nullptr;
  bool told = dlinfo(opened.handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name;
  opened.path = told ? map->l_name : name;
  return opened;
}

}  // namespace v1
}  // namespace attile
