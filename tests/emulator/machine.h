// What the emulated driver and the emulated NVRTC agree on.
#pragma once

#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace emulator {

// EMULATOR_CHIP: 80, 86, 89, 90...
inline int chip() {
  const char* text = std::getenv("EMULATOR_CHIP");
  return text ? std::atoi(text) : 90;
}

constexpr Elf64_Half machine_of_gpus = 190;

inline std::string with_machine(std::string image, Elf64_Half machine) {
  std::memcpy(image.data() + offsetof(Elf64_Ehdr, e_machine), &machine, sizeof machine);
  return image;
}
inline std::string as_cubin(std::string library) { return with_machine(std::move(library), machine_of_gpus); }
// Of an image whose size nobody tells: its table of sections ends it.
inline std::string as_library(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  const auto size = header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
  return with_machine(std::string(static_cast<const char*>(image), size), EM_X86_64);
}

}  // namespace emulator
