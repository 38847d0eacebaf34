// Every environment variable Attile reads, in one table, read once at first use; and the one place warnings go to.
// A value that means nothing is an Error(argument) that lists what is allowed; an empty variable counts as unset.
// Values set by API (CacheOptions, set_worker_count, ...) win over the environment where they exist.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

enum class CacheMode { on, off, readonly };
enum class LogLevel { quiet, warning, info };

struct Options {
  std::string cache_dir;                               // ATTILE_CACHE_DIR; empty: the user's cache folder
  CacheMode cache = CacheMode::on;                     // ATTILE_CACHE
  std::uint64_t cache_bytes = std::uint64_t{1} << 30;  // ATTILE_CACHE_SIZE
  int threads = 0;                                     // ATTILE_THREADS; 0: every core this process may use
  std::string cpu;                                     // ATTILE_CPU; empty: native
  std::string llvm_module;                             // ATTILE_LLVM_MODULE; empty: beside libattile
  std::string nvrtc;                                   // ATTILE_NVRTC; empty: looked for, see runtime/nvrtc.h
  LogLevel log = LogLevel::warning;                    // ATTILE_LOG
};

// What the environment said at the first call. Throws Error(argument) at every call while a value is bad.
ATTILE_API const Options& options();

// The same from any source of variables; `lookup` returns null for an unset one.
ATTILE_API Options read_options(const std::function<const char*(const char* name)>& lookup);

struct OptionDoc {
  std::string name, allowed, doc;
  std::string value;  // as found in the environment; empty when unset
};
// One line each, for `attile doctor`; never throws for a bad value.
ATTILE_API std::vector<OptionDoc> option_docs();

// Accepts "512M", "2G", "100k", "1048576"; binary units. Throws Error(argument).
ATTILE_API std::uint64_t parse_bytes(std::string_view text, std::string_view where);

using TextSink = std::function<void(std::string_view text)>;
// Replaces where warnings and notes go (default: one line each on stderr); an empty sink restores the default.
ATTILE_API void set_text_sink(TextSink sink);
// Each distinct text once per process, unless ATTILE_LOG=quiet. Never throws.
ATTILE_API void warn(std::string_view text) noexcept;
// Only with ATTILE_LOG=info. Never throws.
ATTILE_API void note(std::string_view text) noexcept;
// Lets every warning be said again; for tests.
ATTILE_API void forget_warnings();

}  // namespace v1
}  // namespace attile
