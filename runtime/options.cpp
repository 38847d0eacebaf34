#include "runtime/options.h"

#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <set>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {
namespace {

[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view allowed) {
  throw Error(ErrorKind::argument, std::string(name), fmt::format("'{}' is not a value of this variable", value),
              fmt::format("allowed: {}", allowed));
}

constexpr std::string_view allowed_bytes = "a number of bytes, with k, M, G or T for binary units, such as 512M";

struct Row {
  const char* name;
  const char* allowed;
  const char* doc;
  void (*set)(Options& options, const Row& row, std::string_view value);
};

void set_cache_mode(Options& options, const Row& row, std::string_view value) {
  if (value == "on")
    options.cache = CacheMode::on;
  else if (value == "off")
    options.cache = CacheMode::off;
  else if (value == "readonly")
    options.cache = CacheMode::readonly;
  else
    refuse(row.name, value, row.allowed);
}

void set_threads(Options& options, const Row& row, std::string_view value) {
  int threads = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), threads);
  if (error != std::errc() || end != value.data() + value.size() || threads < 1 || threads > 4096)
    refuse(row.name, value, row.allowed);
  options.threads = threads;
}

void set_cpu(Options& options, const Row& row, std::string_view value) {
  if (value != "native" && value != "x86-64-v3" && value != "x86-64-v4") refuse(row.name, value, row.allowed);
  options.cpu = value == "native" ? "" : value;
}

void set_log(Options& options, const Row& row, std::string_view value) {
  if (value == "quiet")
    options.log = LogLevel::quiet;
  else if (value == "warning")
    options.log = LogLevel::warning;
  else if (value == "info")
    options.log = LogLevel::info;
  else
    refuse(row.name, value, row.allowed);
}

const Row rows[] = {
    {"ATTILE_CACHE_DIR", "a folder", "where compiled kernels are kept (default: attile in the user's cache folder)",
     [](Options& o, const Row&, std::string_view v) { o.cache_dir = v; }},
    {"ATTILE_CACHE", "on, off, readonly", "whether compiled kernels are kept on disk (default: on)", set_cache_mode},
    {"ATTILE_CACHE_SIZE", allowed_bytes.data(), "size at which the oldest kernels are removed (default: 1G)",
     [](Options& o, const Row& r, std::string_view v) { o.cache_bytes = parse_bytes(v, r.name); }},
    {"ATTILE_THREADS", "1 to 4096", "threads of a call on the CPU (default: every core this process may use)",
     set_threads},
    {"ATTILE_CPU", "native, x86-64-v3, x86-64-v4", "instructions CPU kernels may use (default: native)", set_cpu},
    {"ATTILE_LLVM_MODULE", "path of libattile_llvm.so", "the LLVM module (default: looked for beside libattile)",
     [](Options& o, const Row&, std::string_view v) { o.llvm_module = v; }},
    {"ATTILE_NVRTC", "path of libnvrtc.so", "the compiler of CUDA kernels (default: looked for, see docs/environment.md)",
     [](Options& o, const Row&, std::string_view v) { o.nvrtc = v; }},
    {"ATTILE_LOG", "quiet, warning, info", "what is told on stderr (default: warning)", set_log},
};

std::mutex* text_mutex_made() {
  static auto* mutex = new std::mutex();
  return mutex;
}
std::atomic<TextSink*> text_sink{nullptr};  // changed at once, so that a child of a fork never has half of one
std::set<std::string, std::less<>>& said() {
  static auto* texts = new std::set<std::string, std::less<>>();
  return *texts;
}

// A sink takes its time: a child of a fork does not wait for one that its parent was in.
std::mutex& text_mutex() {
  [[maybe_unused]] static const int registered = (text_mutex_made(), said(), pthread_atfork(nullptr, nullptr, [] {
                                                    new (text_mutex_made()) std::mutex();
                                                    new (&said()) std::set<std::string, std::less<>>();
                                                  }));
  return *text_mutex_made();
}

// A bad ATTILE_LOG is reported by options(); here it only means the default.
LogLevel log_level() noexcept {
  try {
    return options().log;
  } catch (...) {
    return LogLevel::warning;
  }
}

void say(std::string_view prefix, std::string_view text) {
  if (const TextSink* sink = text_sink) return (*sink)(text);
  std::string line = fmt::format("attile: {}{}\n", prefix, text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text, std::string_view where) {
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  int shift = -1;
  if (unit.empty()) shift = 0;
  if (unit.size() == 1) {
    switch (std::tolower(static_cast<unsigned char>(unit[0]))) {
      case 'k': shift = 10; break;
      case 'm': shift = 20; break;
      case 'g': shift = 30; break;
      case 't': shift = 40; break;
    }
  }
  if (error != std::errc() || shift < 0 || value > (std::numeric_limits<std::uint64_t>::max() >> shift))
    refuse(where, text, allowed_bytes);
  return value << shift;
}

Options read_options(const std::function<const char*(const char* name)>& lookup) {
  Options options;
  for (const Row& row : rows)
    if (const char* value = lookup(row.name); value && *value) row.set(options, row, value);
  return options;
}

const Options& options() {
  static const Options* from_environment =
      new Options(read_options([](const char* name) { return std::getenv(name); }));
  return *from_environment;
}

std::vector<OptionDoc> option_docs() {
  std::vector<OptionDoc> docs;
  for (const Row& row : rows) {
    const char* value = std::getenv(row.name);
    docs.push_back({row.name, row.allowed, row.doc, value ? value : ""});
  }
  return docs;
}

void set_text_sink(TextSink sink) {
  auto* made = sink ? new TextSink(std::move(sink)) : nullptr;
  std::lock_guard lock(text_mutex());  // no call of the one before runs on
  delete text_sink.exchange(made);
}

void warn(std::string_view text) noexcept {
  if (log_level() == LogLevel::quiet) return;
  try {
    std::lock_guard lock(text_mutex());
    if (said().emplace(text).second) say("warning: ", text);
  } catch (...) {  // no memory to warn with
  }
}

void note(std::string_view text) noexcept {
  if (log_level() != LogLevel::info) return;
  try {
    std::lock_guard lock(text_mutex());
    say("", text);
  } catch (...) {
  }
}

void forget_warnings() {
  std::lock_guard lock(text_mutex());
  said().clear();
}

}  // namespace v1
}  // namespace attile
