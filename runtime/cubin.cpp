#include "runtime/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace attile {
inline namespace v1 {
namespace {

constexpr std::uint16_t machine_cuda = 190;
// Attributes of .nv.info; each entry is a format, an attribute, and a value of 16 bits or of as many bytes as those
// say.
constexpr std::uint8_t format_none = 1, format_byte = 2, format_half = 3, format_sized = 4;
constexpr std::uint8_t attribute_max_threads = 0x05, attribute_frame_size = 0x11, attribute_stack_size = 0x12,
                       attribute_parameter_bytes = 0x19, attribute_registers = 0x2f, attribute_barriers = 0x4c;
// From sm_90 on, shared memory of a block begins with this much that belongs to the system.
constexpr std::int64_t reserved_shared_bytes = 1024;

template <typename T>
bool read_at(std::string_view bytes, std::uint64_t at, T& value) {
  if (at > bytes.size() || bytes.size() - at < sizeof value) return false;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return true;
}

// The text that begins at `at`, which must end within the table.
std::string_view text_at(std::string_view table, std::uint64_t at) {
  if (at >= table.size()) return {};
  auto end = table.find('\0', at);
  return end == std::string_view::npos ? std::string_view() : table.substr(at, end - at);
}

struct Section {
  std::string_view name;
  std::string_view data;  // empty for one without bytes in the file
  std::uint64_t size = 0, flags = 0;
  std::uint32_t type = 0, link = 0;
};

class Image {
 public:
  // Whether header, section table and all sections are inside the bytes.
  bool read(std::string_view bytes) {
    if (!read_at(bytes, 0, header_) || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) return false;
    if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB) return false;
    if (header_.e_machine != machine_cuda || header_.e_shentsize != sizeof(Elf64_Shdr)) return false;
    std::vector<std::uint64_t> names;
    for (int i = 0; i < header_.e_shnum; ++i) {
      Elf64_Shdr section;
      if (header_.e_shoff > bytes.size()) return false;
      if (!read_at(bytes, header_.e_shoff + std::uint64_t(i) * sizeof section, section)) return false;
      bool stored = section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL;
      if (stored && (section.sh_offset > bytes.size() || section.sh_size > bytes.size() - section.sh_offset))
        return false;
      names.push_back(section.sh_name);
      std::string_view data = stored ? bytes.substr(section.sh_offset, section.sh_size) : std::string_view();
      sections_.push_back({{}, data, section.sh_size, section.sh_flags, section.sh_type, section.sh_link});
    }
    if (header_.e_shstrndx >= sections_.size() || !segments_are_inside(bytes)) return false;
    for (std::size_t i = 0; i < sections_.size(); ++i)
      sections_[i].name = text_at(sections_[header_.e_shstrndx].data, names[i]);
    return true;
  }

  int arch() const {
    // Since ABI 8 the chip stands in the second byte of the flags, before in the first.
    int shift = header_.e_ident[EI_ABIVERSION] >= 8 ? 8 : 0;
    return static_cast<int>(header_.e_flags >> shift & 0xff);
  }
  const std::vector<Section>& sections() const { return sections_; }

  std::string_view symbol(std::uint32_t number) const {
    for (const Section& table : sections_) {
      if (table.type != SHT_SYMTAB || table.link >= sections_.size()) continue;
      Elf64_Sym symbol;
      if (!read_at(table.data, std::uint64_t(number) * sizeof symbol, symbol)) return {};
      return text_at(sections_[table.link].data, symbol.st_name);
    }
    return {};
  }

 private:
  bool segments_are_inside(std::string_view bytes) const {
    for (int i = 0; i < header_.e_phnum; ++i) {
      Elf64_Phdr segment;
      if (header_.e_phoff > bytes.size()) return false;
      if (!read_at(bytes, header_.e_phoff + std::uint64_t(i) * sizeof segment, segment)) return false;
      if (segment.p_offset > bytes.size() || segment.p_filesz > bytes.size() - segment.p_offset) return false;
    }
    return true;
  }

  Elf64_Ehdr header_{};
  std::vector<Section> sections_;
};

// Calls visit(attribute, value) for each entry, the value as bytes; false when the list breaks off.
template <typename F>
bool for_attributes(std::string_view list, const F& visit) {
  while (!list.empty()) {
    if (list.size() < 4) return false;
    auto format = static_cast<std::uint8_t>(list[0]), attribute = static_cast<std::uint8_t>(list[1]);
    std::string_view value = list.substr(2, 2);
    list.remove_prefix(4);
    if (format == format_sized) {
      std::uint16_t size = 0;
      read_at(value, 0, size);
      if (size > list.size()) return false;
      value = list.substr(0, size);
      list.remove_prefix(size);
    } else if (format != format_none && format != format_byte && format != format_half) {
      return false;
    }
    visit(attribute, value);
  }
  return true;
}

using Kernels = std::map<std::string, CudaResources, std::less<>>;

// Sections of a kernel are named after it: ".text.<kernel>".
std::string_view kernel_of(std::string_view section, std::string_view prefix) {
  return section.starts_with(prefix) ? section.substr(prefix.size()) : std::string_view();
}

CudaResources* find(Kernels& kernels, std::string_view name) {
  auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : &found->second;
}

bool read_shared_attributes(const Image& image, std::string_view list, Kernels& kernels) {
  return for_attributes(list, [&](std::uint8_t attribute, std::string_view value) {
    std::uint32_t symbol = 0, number = 0;
    if (!read_at(value, 0, symbol) || !read_at(value, 4, number)) return;
    CudaResources* kernel = find(kernels, image.symbol(symbol));
    if (!kernel) return;
    if (attribute == attribute_registers) kernel->registers = static_cast<int>(number & 0xffff);
    if (attribute == attribute_frame_size || attribute == attribute_stack_size)
      kernel->stack_bytes = std::max<std::int64_t>(kernel->stack_bytes, number);
  });
}

bool read_own_attributes(std::string_view list, CudaResources& kernel) {
  return for_attributes(list, [&](std::uint8_t attribute, std::string_view value) {
    std::uint16_t half = 0;
    read_at(value, 0, half);
    if (attribute == attribute_barriers) kernel.barriers = half & 0xff;
    if (attribute == attribute_parameter_bytes) kernel.parameter_bytes = half;
    std::uint32_t x = 0, y = 0, z = 0;
    if (attribute == attribute_max_threads && read_at(value, 0, x) && read_at(value, 4, y) && read_at(value, 8, z))
      kernel.max_threads = static_cast<int>(std::min(std::uint64_t(x) * y * z, std::uint64_t(1) << 20));
  });
}

}  // namespace

const CudaResources* CubinInfo::kernel(std::string_view name) const {
  for (const CudaResources& k : kernels)
    if (k.entry == name) return &k;
  return nullptr;
}

std::optional<CubinInfo> read_cubin(std::string_view bytes) {
  Image image;
  if (!image.read(bytes)) return std::nullopt;
  CubinInfo info;
  info.arch = image.arch();
  Kernels kernels;
  for (const Section& section : image.sections())
    if (auto name = kernel_of(section.name, ".text."); !name.empty()) {
      CudaResources& kernel = kernels[std::string(name)];
      kernel.entry = name;
      kernel.barriers = static_cast<int>(section.flags >> 20 & 0x7f);  // before ABI 8; since then an attribute
    }
  for (const Section& section : image.sections()) {
    if (section.name == ".nv.info" && !read_shared_attributes(image, section.data, kernels)) return std::nullopt;
    if (auto* kernel = find(kernels, kernel_of(section.name, ".nv.info.")))
      if (!read_own_attributes(section.data, *kernel)) return std::nullopt;
    if (auto* kernel = find(kernels, kernel_of(section.name, ".nv.shared.")))
      kernel->shared_bytes =
          std::max<std::int64_t>(static_cast<std::int64_t>(std::min<std::uint64_t>(section.size, 1u << 30)) -
                                     (info.arch >= 90 ? reserved_shared_bytes : 0),
                                 0);
    if (section.name.starts_with(".nv.constant") && section.name.size() > 14)
      if (auto* kernel = find(kernels, section.name.substr(14)))
        kernel->constant_bytes += static_cast<std::int64_t>(section.data.size());
  }
  for (auto& [name, kernel] : kernels) info.kernels.push_back(std::move(kernel));
  return info;
}

}  // namespace v1
}  // namespace attile
