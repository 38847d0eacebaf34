#include "autotune/results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>

#include "dsl/error.h"
#include "runtime/cache_folder.h"
#include "runtime/file_lock.h"
#include "runtime/files.h"
#include "runtime/options.h"

namespace attile {
inline namespace v1 {
namespace {

// What another process may take for a change of the file, which is a few milliseconds' work.
constexpr std::chrono::milliseconds patience{10'000};
constexpr std::string_view temporary = ".tmp-";
constexpr std::string_view results_head = "# What attile tune found on this device; see attile tune show.\nresults:\n";
constexpr std::string_view tried_head = "# What attile tune tried.\ntried:\n";

std::string text_of_file(const std::string& path) {
  std::string text;
  read_file(AT_FDCWD, path, 2 * most_result_bytes, text);
  return text;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (const std::string_view line = text.substr(0, end); line.starts_with('-')) lines.push_back(line);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

// What a line of this kind begins with.
std::string beginning(const Bucket& bucket) {
  TuneResult r;
  r.bucket = bucket;
  const std::string line = result_line(r);
  return line.substr(0, line.find(", bucket: ["));
}

std::string tried_key(const Bucket& bucket, const std::string& machine, const std::string& versions) {
  const std::string text = to_string(bucket) + machine + versions;
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("- {:016x}{:016x}: ", hash.high64, hash.low64);
}

// Of a machine's text.
std::string without_units(std::string text) {
  const std::size_t end = text.rfind(" units"), from = end == std::string::npos ? end : text.rfind(", ", end);
  return from == std::string::npos ? text : text.erase(from, end - from);
}

std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 160))
    out += c == '|' || c == ';' || c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return out;
}

// "seen hash hash …|point;seconds;model;fault|…": read by the tuner only, by hand, since it is long.
std::string tried_line(const std::string& key, const TriedList& tried) {
  std::string body = "seen";
  for (const std::uint64_t hash : tried.seen) body += fmt::format(" {:016x}", hash);
  for (const auto& [point, outcome] : tried.outcomes)
    body += fmt::format("|{};{};{};{}", point, outcome.seconds, outcome.predicted, plain(outcome.fault));
  return fmt::format("{}\"{:016x}|{}\"", key, XXH3_64bits(body.data(), body.size()), body);
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(by);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text = text.substr(at + 1);
  }
}

// Nothing of a damaged line: the candidates are tried again.
TriedList parse_tried(std::string_view line, std::string_view key) {
  TriedList tried;
  std::string_view body = line.substr(key.size());
  if (body.size() < 19 || body.front() != '"' || body.back() != '"') return tried;
  body = body.substr(1, body.size() - 2);
  const std::string_view sum = body.substr(0, 16);
  body = body.substr(17);
  if (sum != fmt::format("{:016x}", XXH3_64bits(body.data(), body.size()))) return tried;
  const std::vector<std::string_view> parts = split(body, '|');
  for (const std::string_view word : split(parts.front(), ' ')) {
    std::uint64_t hash = 0;
    if (word.size() == 16 && std::from_chars(word.data(), word.data() + 16, hash, 16).ec == std::errc())
      tried.seen.insert(hash);
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::vector<std::string_view> fields = split(parts[i], ';');
    if (fields.size() != 4) continue;
    Outcome outcome;
    std::from_chars(fields[1].data(), fields[1].data() + fields[1].size(), outcome.seconds);
    std::from_chars(fields[2].data(), fields[2].data() + fields[2].size(), outcome.predicted);
    outcome.fault = fields[3];
    if (!std::isfinite(outcome.seconds) || outcome.seconds < 0) continue;
    tried.outcomes.emplace(fields[0], outcome);
  }
  return tried;
}

// Writes beside and renames. Only the holder of the lock comes here, so every other temporary file is a leftover.
int replace_file(const std::string& folder, const std::string& path, const std::string& text) {
  const std::string name = path.substr(path.rfind('/') + 1),
                    beside = fmt::format("{}/{}{}-{}", folder, temporary, name, unique_suffix());
  std::vector<std::string> names;
  list_folder(folder, names);
  for (const std::string& other : names)
    if (other.starts_with(fmt::format("{}{}-", temporary, name))) ::unlink(fmt::format("{}/{}", folder, other).c_str());
  int error = write_file(AT_FDCWD, beside, text);
  if (!error && ::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error) ::unlink(beside.c_str());
  return error;
}

// The lines kept, newest last; the oldest go when they are too many or too long.
template <typename Line>
std::string joined(std::string_view head, std::vector<Line> lines) {
  std::size_t bytes = head.size(), first = lines.size();
  while (first > 0 && lines.size() - first < most_results && bytes + lines[first - 1].size() + 1 <= most_result_bytes)
    bytes += lines[--first].size() + 1;
  std::string text(head);
  for (std::size_t i = first; i < lines.size(); ++i) text += std::string(lines[i]) + "\n";
  return text;
}

}  // namespace

ResultStore::ResultStore(std::string folder, Machine machine)
    : folder_(std::move(folder)), machine_(std::move(machine)) {}

std::string ResultStore::path() const { return fmt::format("{}/{}.yaml", folder_, machine_.file_name()); }
std::string ResultStore::tried_path() const { return fmt::format("{}/{}.tried.yaml", folder_, machine_.file_name()); }
std::string ResultStore::timing_lock_path() const {
  return fmt::format("{}/.lock-timing-{}", folder_, machine_.file_name());
}

std::vector<TuneResult> ResultStore::nearest(const Bucket& bucket) const {
  std::vector<TuneResult> found;
  if (folder_.empty()) return found;
  const std::string text = text_of_file(path());
  if (text.empty()) return found;
  const std::string begin = beginning(bucket), machine = machine_.text(), versions = machine_.versions();
  for (const std::string_view line : lines_of(text)) {
    if (!line.starts_with(begin)) continue;
    try {
      TuneResult r = parse_result_line(line, path());
      if (r.machine != machine && same_device(r.machine, machine)) continue;
      if (r.machine != machine || r.versions != versions)
        warn(fmt::format("a tuning result of {} with {} is passed over; here it is {} with {}", r.machine, r.versions,
                         machine, versions));
      else if (distance(bucket, r.bucket) < far_apart)
        found.push_back(std::move(r));
    } catch (const Error& e) {
      warn(fmt::format("a tuning result is passed over: {}", e.what()));
    }
  }
  std::sort(found.begin(), found.end(), [&](const TuneResult& a, const TuneResult& b) {
    const int x = distance(bucket, a.bucket), y = distance(bucket, b.bucket);
    return x != y ? x < y : to_string(a.bucket) < to_string(b.bucket);
  });
  return found;
}

std::optional<TuneResult> ResultStore::find(const Bucket& bucket) const {
  std::vector<TuneResult> near = nearest(bucket);
  if (near.empty() || near.front().bucket != bucket) return std::nullopt;
  try {
    schedule_of(near.front().winner, path());
  } catch (const Error& e) {
    warn(fmt::format("a tuning result is passed over: {}", e.what()));
    return std::nullopt;
  }
  return std::move(near.front());
}

TriedList ResultStore::tried(const Bucket& bucket) const {
  if (folder_.empty()) return {};
  const std::string text = text_of_file(tried_path()), key = tried_key(bucket, machine_.text(), machine_.versions());
  for (const std::string_view line : lines_of(text))
    if (line.starts_with(key)) return parse_tried(line, key);
  return {};
}

std::vector<TriedList> ResultStore::all_tried() const {
  std::vector<TriedList> out;
  if (folder_.empty()) return out;
  const std::string text = text_of_file(tried_path());
  for (const std::string_view line : lines_of(text))
    if (const std::size_t colon = line.find(": "); colon != std::string_view::npos)
      out.push_back(parse_tried(line, line.substr(0, colon + 2)));
  return out;
}

std::string ResultStore::put(const TuneResult& result, const TriedList& tried) {
  if (std::string fault = store_fault(folder_); !fault.empty()) return fault;
  if (const int error = make_folders(folder_))
    return fmt::format("'{}' cannot be created: {}", folder_, error_text(error));
  const FileLock lock(fmt::format("{}/.lock-{}", folder_, machine_.file_name()), patience, {});
  const std::string old = text_of_file(path()), old_tried = text_of_file(tried_path());
  const std::string begin = beginning(result.bucket), key = tried_key(result.bucket, result.machine, result.versions);
  std::vector<std::string> lines, tried_lines;
  for (const std::string_view line : lines_of(old)) {
    if (line.starts_with(begin)) {  // of this kind: replaced if it is this bucket's, whole or not, of any version
      try {
        const TuneResult r = parse_result_line(line, path());
        const bool other_units = r.machine != result.machine && same_device(r.machine, result.machine);
        if (r.bucket == result.bucket && !other_units) continue;
      } catch (const Error&) {
        continue;
      }
    }
    lines.emplace_back(line);
  }
  lines.push_back(result_line(result));
  for (const std::string_view line : lines_of(old_tried))
    if (!line.starts_with(key)) tried_lines.emplace_back(line);
  tried_lines.push_back(tried_line(key, tried));
  const auto told = [](const std::string& file, int error) {
    return fmt::format("'{}' cannot be written: {}", file, error_text(error));
  };
  if (const int error = replace_file(folder_, path(), joined(results_head, std::move(lines))))
    return told(path(), error);
  const int error = replace_file(folder_, tried_path(), joined(tried_head, std::move(tried_lines)));
  return error ? told(tried_path(), error) : "";
}

std::vector<TuneResult> ResultStore::all(std::vector<std::string>* faults) const {
  std::vector<TuneResult> out;
  if (folder_.empty()) return out;
  const std::string text = text_of_file(path());
  for (const std::string_view line : lines_of(text)) {
    try {
      out.push_back(parse_result_line(line, path()));
    } catch (const Error& e) {
      if (faults) faults->push_back(e.what());
    }
  }
  return out;
}

std::size_t ResultStore::forget(const std::function<bool(const TuneResult&)>& gone) {
  if (const std::string fault = store_fault(folder_); !fault.empty())
    throw Error(ErrorKind::environment, "forget", fault);
  if (::access(path().c_str(), F_OK) != 0 && ::access(tried_path().c_str(), F_OK) != 0) return 0;
  const FileLock lock(fmt::format("{}/.lock-{}", folder_, machine_.file_name()), patience, {});
  const std::string old = text_of_file(path()), old_tried = text_of_file(tried_path());
  std::vector<std::string_view> lines, tried_lines = lines_of(old_tried);
  std::size_t count = 0;
  for (const std::string_view line : lines_of(old)) {
    bool goes = true;  // damaged lines go too, uncounted
    try {
      const TuneResult r = parse_result_line(line, path());
      goes = gone(r);
      count += goes;
      if (goes)
        std::erase_if(tried_lines, [&, key = tried_key(r.bucket, r.machine, r.versions)](std::string_view l) {
          return l.starts_with(key);
        });
    } catch (const Error&) {
    }
    if (!goes) lines.push_back(line);
  }
  const auto replace = [&](const std::string& file, const std::string& text) {
    if (const int error = replace_file(folder_, file, text))
      throw Error(ErrorKind::environment, file, fmt::format("it cannot be written: {}", error_text(error)));
  };
  replace(path(), joined(results_head, lines));
  replace(tried_path(), joined(tried_head, tried_lines));
  return count;
}

bool same_device(const std::string& machine, const std::string& other) {
  return without_units(machine) == without_units(other);
}

std::string store_fault(const std::string& folder) {
  const CacheMode mode = options().cache;
  if (mode == CacheMode::readonly) return "the cache folder is to be read only (ATTILE_CACHE=readonly)";
  if (!folder.empty()) return "";
  if (mode == CacheMode::off) return "there is no folder to keep tuning results in (ATTILE_CACHE=off)";
  const std::string reason = open_cache_folder(options().cache_dir, mode).reason;
  return fmt::format("there is no folder to keep tuning results in{}{}", reason.empty() ? "" : ": ", reason);
}

std::string result_folder() {
  const CacheFolder folder = open_cache_folder(options().cache_dir, options().cache);
  return folder.readable ? folder.path + "/tuned" : "";
}

}  // namespace v1
}  // namespace attile
