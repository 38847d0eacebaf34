#include "runtime/cache_entry.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>

#include "runtime/cache_folder.h"
#include "runtime/file_lock.h"
#include "runtime/files.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr const char* meta_name = "meta.yaml";
constexpr std::string_view seal = "# xxh3 ";  // first line of meta.yaml: checksum of the rest
constexpr std::size_t largest_file = std::size_t{1} << 30;
constexpr std::size_t longest_part = 120;

std::string hex_of(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }
std::string checksum(std::string_view text) { return hex_of(XXH3_128bits(text.data(), text.size())); }

// A YAML (and JSON) string on one line, whatever the bytes are.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (byte < 0x20 || byte >= 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + "\"";
}

std::string abbreviated(const std::string& value) {
  if (value.size() <= longest_part) return value;
  return fmt::format("{} bytes, xxh3 {}", value.size(), checksum(value));
}

std::string meta_text(const CacheKey& key, const CacheEntry& entry) {
  std::string text = fmt::format("name: {}\nkey: {}\nparts:\n", quoted(key.name), quoted(key.hex()));
  if (key.parts.empty()) text = fmt::format("name: {}\nkey: {}\nparts: []\n", quoted(key.name), quoted(key.hex()));
  for (const auto& [name, value] : key.parts)
    text += fmt::format("  - [{}, {}]\n", quoted(name), quoted(abbreviated(value)));
  text += entry.files.empty() ? "files: []\n" : "files:\n";
  for (const auto& [name, content] : entry.files)
    text +=
        fmt::format("  - {{name: {}, bytes: {}, xxh3: {}}}\n", quoted(name), content.size(), quoted(checksum(content)));
  return fmt::format("{}{}\n{}", seal, checksum(text), text);
}

struct Meta {
  CacheKey key;
  std::string hex;
  struct File {
    std::string name, checksum;
    std::uint64_t bytes;
  };
  std::vector<File> files;
};

// The fault, or empty. The parser only ever sees text whose checksum is right.
std::string parse_meta(std::string_view text, Meta& meta) {
  std::size_t line = text.find('\n');
  if (!text.starts_with(seal) || line == std::string_view::npos) return "meta.yaml is cut short or not ours";
  std::string_view body = text.substr(line + 1);
  if (text.substr(seal.size(), line - seal.size()) != checksum(body)) return "meta.yaml has a wrong checksum";
  try {
    YAML::Node root = YAML::Load(std::string(body));
    meta.key.name = root["name"].as<std::string>();
    meta.hex = root["key"].as<std::string>();
    for (const YAML::Node& part : root["parts"])
      meta.key.parts.emplace_back(part[0].as<std::string>(), part[1].as<std::string>());
    for (const YAML::Node& file : root["files"])
      meta.files.push_back(
          {file["name"].as<std::string>(), file["xxh3"].as<std::string>(), file["bytes"].as<std::uint64_t>()});
  } catch (const YAML::Exception& e) {
    return fmt::format("meta.yaml: {}", e.what());
  }
  return {};
}

// Says nothing about the entry: no descriptors or memory left, no right to look, a server that went away.
bool is_damage(int error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EINVAL || error == EFBIG || error == EIO;
}

struct Unreadable {};

std::string fault_text(const std::string& name, int error) {
  if (!is_damage(error)) throw Unreadable{};
  return fmt::format("{}: {}", name, error == EINVAL || error == ELOOP ? "not a file" : error_text(error));
}

// The fault, or empty.
std::string read_files(int folder, const Meta& meta, CacheEntry& entry) {
  for (const Meta::File& file : meta.files) {
    if (file.name.empty() || file.name.find('/') != std::string::npos) return "meta.yaml names a file elsewhere";
    std::string& content = entry.files[file.name];
    if (int error = read_file(folder, file.name, largest_file, content)) return fault_text(file.name, error);
    if (content.size() != file.bytes)
      return fmt::format("{} has {} bytes of {}", file.name, content.size(), file.bytes);
    if (checksum(content) != file.checksum) return fmt::format("{} has a wrong checksum", file.name);
  }
  return {};
}

std::string read_open(int folder, Meta& meta, CacheEntry& entry) {
  std::string text;
  if (int error = read_file(folder, meta_name, largest_file, text)) return fault_text(meta_name, error);
  std::string fault = parse_meta(text, meta);
  return fault.empty() ? read_files(folder, meta, entry) : fault;
}

EntryRead read_named(const std::string& folder, const std::string& name, Meta& meta) {
  std::string path = fmt::format("{}/{}", folder, name);
  EntryRead result;
  Fd fd = open_folder(path);
  if (!fd && (errno == ENOENT || !is_damage(errno))) return result;
  if (!fd) return {EntryRead::damaged, {}, "not a folder"};
  try {
    result.fault = read_open(fd.get(), meta, result.entry);
  } catch (const Unreadable&) {
    return {};
  }
  result.state = result.fault.empty() ? EntryRead::good : EntryRead::damaged;
  // Taken away by another process while we read: not there, rather than damaged.
  if (result.state == EntryRead::damaged && !still_names(path, fd)) return {};
  return result;
}

// A folder of our own under a name nobody knows, locked so that a sweeper sees it is in use.
class TemporaryFolder {
 public:
  TemporaryFolder(const std::string& folder, const std::string& name) {
    do {
      path_ = fmt::format("{}/{}{}-{}", folder, temporary_prefix, name, unique_suffix());
      error_ = make();
    } while (error_ == EEXIST || error_ == EAGAIN);
  }
  ~TemporaryFolder() {
    if (!renamed_) remove_tree(path_);
  }

  int error() const { return error_; }
  int fd() const { return fd_.get(); }
  int rename_to(const std::string& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0) return errno;
    renamed_ = true;
    return 0;
  }

 private:
  // EAGAIN: a sweeper came between and has removed the folder.
  int make() {
    if (::mkdir(path_.c_str(), 0700) != 0) return errno;
    fd_ = open_folder(path_);
    if (!fd_) return errno == ENOENT ? EAGAIN : errno;
    return lock_folder(fd_) == EWOULDBLOCK || !still_names(path_, fd_) ? EAGAIN : 0;
  }

  std::string path_;
  Fd fd_;
  int error_ = 0;
  bool renamed_ = false;
};

int fill(int folder, const CacheKey& key, const CacheEntry& entry) {
  for (const auto& [name, content] : entry.files)
    if (int error = write_file(folder, name, content)) return error;
  return write_file(folder, meta_name, meta_text(key, entry));
}

void hash_text(XXH3_state_t* state, std::string_view text) {
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(std::uint64_t{text.size()} >> (8 * i));
  XXH3_128bits_update(state, length, sizeof length);
  XXH3_128bits_update(state, text.data(), text.size());
}

}  // namespace

std::string CacheKey::hex() const {
  XXH3_state_t* state = XXH3_createState();
  if (!state) throw std::bad_alloc();
  XXH3_128bits_reset(state);
  hash_text(state, name);
  for (const auto& [part, value] : parts) hash_text(state, part), hash_text(state, value);
  std::string digits = hex_of(XXH3_128bits_digest(state));
  XXH3_freeState(state);
  return digits;
}

std::string CacheKey::folder_name() const {
  std::string safe = name.substr(0, 80);
  for (char& c : safe)
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_' && c != '-') c = '_';
  if (safe.empty()) safe = "kernel";
  return fmt::format("{}-{}", safe, hex());
}

EntryRead read_entry(const std::string& folder, const CacheKey& key) {
  Meta meta;
  EntryRead result = read_named(folder, key.folder_name(), meta);
  if (result.state == EntryRead::good && meta.hex != key.hex())
    return {EntryRead::damaged, {}, "meta.yaml belongs to another kernel"};
  return result;
}

EntryInfo inspect_entry(const std::string& folder, const std::string& name) {
  Meta meta;
  EntryRead result = read_named(folder, name, meta);
  EntryInfo info{meta.key, result.fault};
  if (result.state == EntryRead::missing)
    info.fault = "gone";
  else if (result.state == EntryRead::good && !name.ends_with("-" + meta.hex))
    info.fault = "meta.yaml belongs to another kernel";
  return info;
}

int write_entry(const std::string& folder, const CacheKey& key, const CacheEntry& entry) {
  std::string name = key.folder_name();
  std::string path = fmt::format("{}/{}", folder, name);
  TemporaryFolder temporary(folder, name);
  if (temporary.error()) return temporary.error();
  if (int error = fill(temporary.fd(), key, entry)) return error;
  int error = temporary.rename_to(path);
  if (error != EEXIST && error != ENOTEMPTY && error != ENOTDIR) return error;
  if (read_entry(folder, key).state == EntryRead::good) return 0;
  if (int fault = discard_entry(folder, name)) return fault;
  return temporary.rename_to(path);
}

}  // namespace v1
}  // namespace attile
