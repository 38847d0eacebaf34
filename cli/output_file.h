// A file that appears whole or not at all: written beside its place and renamed when the work is done, so that a run
// that fails leaves an older file as it was. Devices and pipes are written directly.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "runtime/files.h"

namespace attile::cli {

class OutputFile {
 public:
  // Begins at once, so that a place that cannot be written is known before any work. Throws Error(environment).
  explicit OutputFile(const std::string& path);
  OutputFile(OutputFile&&) = default;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // The file takes its place.
  void finish();
  const std::string& path() const { return path_; }

 private:
  std::string path_, place_, beside_;  // beside_: empty when written directly or when done
  Fd file_;
};

}  // namespace attile::cli
