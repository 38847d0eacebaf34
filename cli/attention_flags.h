// The attention options as flags, the same words for every verb, and what they say as plain values. Tensors stay text
// here; cli/call_data.h turns them into memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsl/library.h"
#include "runtime/device.h"
#include "schedules/schedule.h"

namespace CLI {
class App;
}  // namespace CLI

namespace attile::cli {

struct AttentionFlags {
  std::string q, k, v;  // files
  bool random = false;
  std::optional<std::int64_t> batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, value_dim;
  std::string dtype, out_dtype;  // empty: see CallData

  std::optional<double> scale;
  std::string rule = "softmax";
  bool causal = false, tf32 = false;
  std::string window;  // "left,right"
  double softcap = 0, dropout = 0;
  std::uint64_t seed = 0;
  int top_k = 0;
  std::string top_k_renormalise;  // "", "true", "false"
  // Each a list of numbers, a file or "random".
  std::string alibi_slopes, bias, mask, sink, kv_lens, cu_seqlens_q, cu_seqlens_k, prefix_len, doc_ids;
};

struct MachineFlags {
  std::string device = "auto", schedule;
  int threads = 0;
};

// --q, --k, --v and --random.
void add_input_flags(CLI::App& app, AttentionFlags& flags);
void add_size_flags(CLI::App& app, AttentionFlags& flags);
// --dtype, scale, rule, masks and modifiers; `causal` may be left to the verb.
void add_variant_flags(CLI::App& app, AttentionFlags& flags, bool with_causal = true);
void add_device_flag(CLI::App& app, MachineFlags& flags);
void add_machine_flags(CLI::App& app, MachineFlags& flags);  // device and threads
void add_schedule_flag(CLI::App& app, MachineFlags& flags);

// "auto", "cpu", "cuda", "cuda:i" as a device that kernels can run on: auto is the first GPU if there is one of a chip
// that kernels are made for, and NVRTC, else the CPU. Throws Error(argument) for another word or a device that is not
// there, Error(environment) where driver or NVRTC is missing, Error(unsupported) for a chip older than sm_80.
Device device_of(const std::string& text);
// The device of --device; applies --threads. Throws as device_of does.
Device use_machine(const MachineFlags& flags);
// "cuda:0 NVIDIA H200, sm_90, 132 SMs", or the CPU's model.
std::string device_text(Device device);
// The schedule of --schedule: a YAML file, or the name of a shipped one for this target; nothing without the flag.
std::optional<Schedule> chosen_schedule(const MachineFlags& flags, const Target& target);

// "1,2.5,-inf" as numbers. Throws Error(argument) whose `where` is the flag.
std::vector<double> parse_numbers(const std::string& text, const std::string& flag);
std::vector<std::int64_t> parse_integers(const std::string& text, const std::string& flag);
bool parse_boolean(const std::string& text, const std::string& flag);
DType parse_float_dtype(const std::string& text, const std::string& flag);

// "causal window 128,0 softcap 30": the options that are on, for reports.
std::string variant_text(const AttentionFlags& flags);

}  // namespace attile::cli
