#include "cli/attention_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "dsl/error.h"
#include "runtime/cuda_device.h"
#include "runtime/host_cpu.h"
#include "runtime/nvrtc.h"
#include "runtime/options.h"
#include "runtime/parallel_for.h"
#include "schedules/registry.h"

namespace attile::cli {
namespace {

constexpr std::int64_t largest_extent = std::numeric_limits<std::int32_t>::max();

// The limits show in errors, not in every line of the help.
template <typename T>
CLI::Validator in_range(T from, T to) {
  return CLI::Range(from, to).description("");
}

template <typename T>
void add_size(CLI::App& app, const char* flag, T& value, const char* doc) {
  app.add_option(flag, value, doc)->check(in_range(std::int64_t{0}, largest_extent))->group("Sizes");
}

std::vector<std::string> pieces_of(const std::string& text) {
  std::vector<std::string> pieces;
  std::stringstream stream(text);
  for (std::string piece; std::getline(stream, piece, ',');) {
    const auto from = piece.find_first_not_of(" []"), to = piece.find_last_not_of(" []");
    pieces.push_back(from == std::string::npos ? "" : piece.substr(from, to - from + 1));
  }
  return pieces;
}

// The oldest chip that device headers are written for.
constexpr int oldest_major = 8;

void refuse_old_chip(const CudaDevice& d) {
  if (d.major < oldest_major)
    throw Error(ErrorKind::unsupported, "--device",
                fmt::format("cuda:{} ({}) is {}, and kernels are made for sm_80 and newer", d.index, d.name, d.arch()),
                "use --device cpu");
}

// What "auto" takes; a GPU that is passed over is told of once.
std::optional<Device> first_usable_gpu() {
  if (cuda_device_count() == 0) return std::nullopt;
  try {
    for (const CudaDevice& d : cuda_devices())
      if (d.major >= oldest_major) return nvrtc(), Device{Device::Kind::cuda, d.index};
    refuse_old_chip(cuda_devices().front());
  } catch (const Error& e) {
    warn(fmt::format("the GPU is not used: {}; {}", e.message(), e.remedy()));
  }
  return std::nullopt;
}

}  // namespace

void add_input_flags(CLI::App& app, AttentionFlags& flags) {
  const auto add = [&](const char* flag, std::string& value, const char* doc) {
    return app.add_option(flag, value, doc)->type_name("FILE")->group("Inputs");
  };
  add("--q", flags.q, "Queries [B][H][Nq][D], .npy of float32, float16 or bfloat16");
  add("--k", flags.k, "Keys [B][Hk][Nk][D]");
  add("--v", flags.v, "Values [B][Hk][Nk][Dv]");
  app.add_flag("--random", flags.random, "Generated q, k and v, the same every time; the default without files")
      ->group("Inputs");
}

void add_size_flags(CLI::App& app, AttentionFlags& flags) {
  add_size(app, "--batch", flags.batch, "Sequences (1)");
  add_size(app, "--heads", flags.heads, "Query heads (8)");
  add_size(app, "--kv-heads", flags.kv_heads, "Key and value heads, a divisor of heads (as heads)");
  add_size(app, "--seqlen-q", flags.seqlen_q, "Queries of a sequence (1024)");
  add_size(app, "--seqlen-k", flags.seqlen_k, "Keys of a sequence (as seqlen-q)");
  add_size(app, "--head-dim", flags.head_dim, "Numbers of a query and a key (64)");
  add_size(app, "--value-dim", flags.value_dim, "Numbers of a value (as head-dim)");
}

void add_variant_flags(CLI::App& app, AttentionFlags& flags, bool with_causal) {
  const auto text = [&](const char* flag, std::string& value, const char* type, const char* doc) {
    return app.add_option(flag, value, doc)->type_name(type)->group("Attention");
  };
  text("--dtype", flags.dtype, "TYPE",
       "float32, bfloat16 or float16; inputs are converted (as the files, else float32)");
  app.add_flag("--tf32", flags.tf32, "On a GPU, float32 products may round their operands to TF32")->group("Attention");
  app.add_option("--scale", flags.scale, "Factor of the scores (1/sqrt(D))")->group("Attention");
  text("--rule", flags.rule, "RULE", "softmax, softmax_plus_one, sigmoid or linear");
  if (with_causal)
    app.add_flag("--causal", flags.causal, "A query sees keys up to its own position, aligned at the last")
        ->group("Attention");
  text("--window", flags.window, "LEFT,RIGHT", "Keys seen left and right of a query's position; -1 is no limit");
  app.add_option("--softcap", flags.softcap, "Scores become c*tanh(score/c); 0 is off")
      ->check(in_range(0.0, 1e30))
      ->group("Attention");
  text("--alibi-slopes", flags.alibi_slopes, "LIST|FILE|standard", "Slope of each head, [H] or [B][H]");
  text("--bias", flags.bias, "FILE|random", "Added to the scores, [B or 1][H or 1][Nq or 1][Nk]");
  text("--mask", flags.mask, "FILE|random", "Booleans of the same shape; false hides a key");
  text("--sink", flags.sink, "LIST|FILE|random", "A logit of each head that joins the sum, [H]");
  app.add_option("--top-k", flags.top_k, "Only the k largest scores of a query, 1 to 128; 0 is off")
      ->check(in_range(0, 128))
      ->group("Attention");
  text("--top-k-renormalise", flags.top_k_renormalise, "true|false", "Softmax over the selected keys only (true)");
  text("--kv-lens", flags.kv_lens, "LIST|FILE|random", "Keys in use of each sequence, [B]");
  text("--cu-seqlens-q", flags.cu_seqlens_q, "LIST|FILE", "Bounds of packed sequences, 0 first, [sequences + 1]");
  text("--cu-seqlens-k", flags.cu_seqlens_k, "LIST|FILE", "The same for the keys (as cu-seqlens-q)");
  text("--prefix-len", flags.prefix_len, "LIST|FILE|random", "Keys that every query sees, [B]; with causal");
  text("--doc-ids", flags.doc_ids, "LIST|FILE|random", "Document of each position, [B][Nk]; queries see their own");
  app.add_option("--dropout", flags.dropout, "Share of the weights to drop, in [0, 1)")
      ->check(in_range(0.0, 0.999999))
      ->group("Attention");
  app.add_option("--seed", flags.seed, "Seed of the dropout")
      ->check(in_range(std::uint64_t{0}, std::uint64_t{1} << 53))
      ->group("Attention");
}

void add_device_flag(CLI::App& app, MachineFlags& flags) {
  app.add_option("--device", flags.device, "auto (the first GPU, else cpu), cpu, cuda or cuda:i")
      ->type_name("DEVICE")
      ->group("Machine");
}
void add_machine_flags(CLI::App& app, MachineFlags& flags) {
  add_device_flag(app, flags);
  app.add_option("--threads", flags.threads, "Threads of a call on the CPU; 0 is every core")
      ->check(in_range(0, 4096))
      ->group("Machine");
}
void add_schedule_flag(CLI::App& app, MachineFlags& flags) {
  app.add_option("--schedule", flags.schedule, "A YAML file or the name of a shipped schedule (the best known)")
      ->type_name("FILE|NAME")
      ->group("Machine");
}

Device device_of(const std::string& text) {
  if (text == "auto") return first_usable_gpu().value_or(Device{});
  const Device device = parse_device(text, "--device");
  if (device.kind == Device::Kind::cpu) return device;
  refuse_old_chip(cuda_device(device.index));
  nvrtc();  // throws where there is none
  return device;
}

Device use_machine(const MachineFlags& flags) {
  set_worker_count(flags.threads);
  return device_of(flags.device);
}

std::string device_text(Device device) {
  if (device.kind == Device::Kind::cpu) return host_cpu().model;
  const CudaDevice& d = cuda_device(device.index);
  return fmt::format("{} {}, {}, {} SMs", to_string(device), d.name, d.arch(), d.sms);
}

std::optional<Schedule> chosen_schedule(const MachineFlags& flags, const Target& target) {
  if (flags.schedule.empty()) return std::nullopt;
  for (const KnownSchedule& known : schedule_file(target).best)
    if (known.name == flags.schedule) return known.schedule;
  std::ifstream file(flags.schedule, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (file && text) return parse_schedule(text.str(), flags.schedule);
  std::string names;
  for (const KnownSchedule& known : schedule_file(target).best)
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", known.name);
  throw Error(ErrorKind::environment, "--schedule",
              fmt::format("\"{}\" is neither a file that can be read nor a shipped schedule", flags.schedule),
              fmt::format("shipped for {} are {}", target.name, names));
}

std::vector<double> parse_numbers(const std::string& text, const std::string& flag) {
  std::vector<double> numbers;
  for (const std::string& piece : pieces_of(text)) {
    double value = 0;
    const auto [end, error] = std::from_chars(piece.data(), piece.data() + piece.size(), value);
    if (error != std::errc() || end != piece.data() + piece.size())
      throw Error(ErrorKind::argument, flag, fmt::format("\"{}\" is not a number", piece),
                  "give numbers with commas between");
    numbers.push_back(value);
  }
  return numbers;
}

std::vector<std::int64_t> parse_integers(const std::string& text, const std::string& flag) {
  std::vector<std::int64_t> integers;
  for (const double value : parse_numbers(text, flag)) {
    if (value != std::floor(value) || std::fabs(value) > static_cast<double>(largest_extent))
      throw Error(ErrorKind::argument, flag, fmt::format("{} is not an integer of 32 bits", value));
    integers.push_back(static_cast<std::int64_t>(value));
  }
  return integers;
}

bool parse_boolean(const std::string& text, const std::string& flag) {
  for (const char* yes : {"true", "1", "yes", "on"})
    if (text == yes) return true;
  for (const char* no : {"false", "0", "no", "off"})
    if (text == no) return false;
  throw Error(ErrorKind::argument, flag, fmt::format("\"{}\" is neither true nor false", text));
}

DType parse_float_dtype(const std::string& text, const std::string& flag) {
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16})
    if (to_string(type) == text) return type;
  throw Error(ErrorKind::argument, flag, fmt::format("\"{}\" is not a type of tensors", text),
              "known are float32, bfloat16 and float16");
}

std::string variant_text(const AttentionFlags& f) {
  std::string text = f.rule;
  const auto add = [&](bool on, const std::string& words) {
    if (on) text += ", " + words;
  };
  add(f.causal, "causal");
  add(!f.window.empty(), "window " + f.window);
  add(f.softcap > 0, fmt::format("softcap {}", f.softcap));
  add(!f.alibi_slopes.empty(), "alibi_slopes");
  add(!f.bias.empty(), "bias");
  add(!f.mask.empty(), "mask");
  add(!f.sink.empty(), "sink");
  add(f.top_k > 0, fmt::format("top_k {}", f.top_k));
  add(!f.kv_lens.empty(), "kv_lens");
  add(!f.cu_seqlens_q.empty(), "packed");
  add(!f.prefix_len.empty(), "prefix_len");
  add(!f.doc_ids.empty(), "doc_ids");
  add(f.dropout > 0, fmt::format("dropout {} seed {}", f.dropout, f.seed));
  add(f.tf32, "tf32");
  return text;
}

}  // namespace attile::cli
