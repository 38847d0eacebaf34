#include "tests/cli/command_line.h"

#include <spawn.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace attile::test {
namespace {

// One for the whole test program, so that kernels are compiled once.
const std::string& cache_folder() {
  static const ScratchPlace place;
  static const std::string path = place.str();
  return path;
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const auto equals = text.find('=');
    all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  all["ATTILE_CACHE_DIR"] = cache_folder();
  all["CUDA_VISIBLE_DEVICES"] = "-1";
  for (const auto& [name, value] : changes) all[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : all)
    if (!value.empty()) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Finished attile_command(const std::vector<std::string>& words, const std::map<std::string, std::string>& environment) {
  const ScratchPlace place;
  const std::string out = (place / "out").string(), err = (place / "err").string();
  std::vector<std::string> arguments{ATTILE_COMMAND}, variables = environment_with(environment);
  arguments.insert(arguments.end(), words.begin(), words.end());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int fault =
      posix_spawn(&child, ATTILE_COMMAND, &actions, nullptr, pointers(arguments).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (fault != 0) throw std::runtime_error(std::string("the command cannot be started: ") + std::strerror(fault));
  const int code = wait_for(child);
  return {code, read_text(out), read_text(err)};
}

Finished attile_on_gpu(const std::vector<std::string>& words) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return attile_command(words, {{"CUDA_VISIBLE_DEVICES", visible ? visible : ""}});
}

std::string npy_bytes(const std::string& dictionary, const std::string& data, int version) {
  std::string header = dictionary;
  const std::size_t before = version == 1 ? 10 : 12;
  header.append(63 - (before + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes +=
      {static_cast<char>(version), '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  if (version != 1) bytes += std::string(2, '\0');
  return bytes + header + data;
}

static std::string tuple_of(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (const auto extent : shape) text += std::to_string(extent) + ", ";
  return text + ")";
}

std::string npy_floats(const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
  return npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': " + tuple_of(shape) + ", }",
                   std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
}

std::vector<float> floats_of(const std::string& bytes, const std::string& shape) {
  const std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
  if (bytes.substr(0, 8) != std::string("\x93NUMPY\x01\x00", 8)) throw std::runtime_error("not version 1");
  const std::size_t length = static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  if ((10 + length) % 64 != 0 || bytes.substr(10, dictionary.size()) != dictionary)
    throw std::runtime_error("header is " + bytes.substr(10, length));
  std::vector<float> values((bytes.size() - 10 - length) / 4);
  std::memcpy(values.data(), bytes.data() + 10 + length, values.size() * 4);
  return values;
}

SmallInputs::SmallInputs() {
  const auto make = [&](const char* name, const std::vector<std::int64_t>& shape, float phase) {
    std::vector<float> values(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 0.7f + phase);
    write_text(place_ / name, npy_floats(shape, values));
  };
  make("q.npy", {1, 2, 5, 4}, 0.1f);
  make("k.npy", {1, 2, 7, 4}, 0.2f);
  make("v.npy", {1, 2, 7, 3}, 0.3f);
}

std::vector<std::string> SmallInputs::run(std::vector<std::string> more) const {
  std::vector<std::string> words{"run", "--q",         path("q.npy"), "--k", path("k.npy"),
                                 "--v", path("v.npy"), "--repeat",    "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string data_path(const std::string& name) { return ATTILE_SOURCE_DIR "/tests/data/" + name; }

}  // namespace attile::test
