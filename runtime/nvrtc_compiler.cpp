#include "runtime/nvrtc_compiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <chrono>

#include "dsl/error.h"
#include "runtime/cubin.h"
#include "runtime/files.h"
#include "runtime/nvrtc.h"
#include "runtime/options.h"

namespace attile {
inline namespace v1 {
namespace {

constexpr const char* where = "compile for CUDA";
constexpr const char* our_fault = "this is a fault of Attile; please report it with the text above";

// Every compile has these, after --gpu-architecture. Functions without an execution space are the device's; products
// and sums are fused where the text says so.
constexpr const char* fixed_flags[] = {"--std=c++17", "-default-device", "--fmad=false", "--ptxas-options=-v"};

class Program {
 public:
  Program(const Nvrtc& nvrtc, const std::string& text, const std::string& name, std::span<const embedded::File> headers)
      : nvrtc_(nvrtc) {
    std::vector<std::string> texts;
    for (const embedded::File& header : headers)
      texts.insert(texts.end(), {std::string(header.content), std::string(header.path)});
    std::vector<const char*> contents, names;
    for (std::size_t i = 0; i < texts.size(); i += 2) {
      contents.push_back(texts[i].c_str());
      names.push_back(texts[i + 1].c_str());
    }
    result = nvrtc.create_program(&program_, text.c_str(), name.c_str(), static_cast<int>(names.size()),
                                  contents.data(), names.data());
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (program_) nvrtc_.destroy_program(&program_);
  }

  void compile(const std::vector<std::string>& flags) {
    std::vector<const char*> words;
    for (const std::string& flag : flags) words.push_back(flag.c_str());
    if (nvrtc_.set_flow_callback) nvrtc_.set_flow_callback(program_, NvrtcInUse::keep_going, nullptr);
    result = nvrtc_.compile_program(program_, static_cast<int>(words.size()), words.data());
    in_use_.stop_if_ending();
  }
  std::string log() const { return text_of(nvrtc_.get_program_log_size, nvrtc_.get_program_log); }
  std::string ptx() const { return text_of(nvrtc_.get_ptx_size, nvrtc_.get_ptx); }
  std::string cubin() const { return bytes_of(nvrtc_.get_cubin_size, nvrtc_.get_cubin); }

  NvrtcResult result;

 private:
  using Size = NvrtcResult (*)(Nvrtc::Program, std::size_t*);
  using Get = NvrtcResult (*)(Nvrtc::Program, char*);
  std::string bytes_of(Size size, Get get) const {
    std::size_t count = 0;
    if (!program_ || size(program_, &count) != NvrtcResult::success || count == 0) return {};
    std::string bytes(count, '\0');
    return get(program_, bytes.data()) == NvrtcResult::success ? bytes : std::string();
  }
  std::string text_of(Size size, Get get) const {
    std::string text = bytes_of(size, get);
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }

  const Nvrtc& nvrtc_;
  NvrtcInUse in_use_;
  Nvrtc::Program program_ = nullptr;
};

// For a shell, whatever letters the text has.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

struct Request {
  const std::string& text;
  const std::string& file_name;
  std::string_view asked;
  std::string arch;
  const CudaCompileOptions& options;
};

std::string reproduction(const Request& r) {
  std::string path;
  if (write_temporary(".cu", r.text, path) != 0) return {};
  std::string command = fmt::format("attile doctor --compile {} --arch {}", quoted(path), r.asked);
  for (const std::string& flag : r.options.extra_flags) command += fmt::format(" --nvrtc-flag={}", quoted(flag));
  return "; to reproduce: " + command;
}

// NVRTC tells a wrong number and a wrong suffix in two ways.
bool is_about_arch(const std::string& error) {
  return error.find("--gpu-architecture") != std::string::npos || error.find("--nv_arch") != std::string::npos;
}

[[noreturn]] void refuse(const Request& r, const Nvrtc& nvrtc, NvrtcResult result, const std::string& log) {
  if (result == NvrtcResult::out_of_memory) throw Error(ErrorKind::resource, where, "out of memory", "");
  std::string error = parse_cuda_log(log).first_error;
  if (error.empty()) error = log.substr(0, log.find('\n'));
  std::string name = nvrtc.get_error_string(result);
  if (result == NvrtcResult::builtin_operation_failure)
    throw Error(ErrorKind::environment, where, fmt::format("{} is not whole: {}", nvrtc.path, error),
                "install NVRTC anew, or name another in ATTILE_NVRTC");
  if (is_about_arch(error))
    throw Error(ErrorKind::unsupported, where, fmt::format("NVRTC {} does not compile for {}", nvrtc.version(), r.arch),
                "install a newer NVRTC: 'pip install --upgrade nvidia-cuda-nvrtc'");
  std::string what =
      fmt::format("NVRTC {} refused {} for {}: {} ({})", nvrtc.version(), r.file_name, r.arch, error, name);
  if (r.arch != r.asked)
    throw Error(ErrorKind::unsupported, where,
                fmt::format("NVRTC {} does not know {}; {}", nvrtc.version(), r.asked, what),
                "install a newer NVRTC: 'pip install --upgrade nvidia-cuda-nvrtc'" + reproduction(r));
  throw Error(ErrorKind::internal, where, what, our_fault + reproduction(r));
}

// What only the cubin tells, and everything should a future log be silent.
void complete(CompiledCuda& compiled) {
  const auto cubin = read_cubin(compiled.cubin);
  if (!cubin) return;
  if (compiled.resources.empty()) compiled.resources = cubin->kernels;
  for (CudaResources& kernel : compiled.resources)
    if (const CudaResources* known = cubin->kernel(kernel.entry)) {
      kernel.parameter_bytes = known->parameter_bytes;
      kernel.max_threads = known->max_threads;
      kernel.constant_bytes = known->constant_bytes;
    }
}

std::string newer_than_known(const Nvrtc& nvrtc, std::string_view asked, const std::string& arch) {
  return fmt::format(
      "NVRTC {} does not know {}: the kernel is compiled to PTX of {}, which the driver finishes; a newer NVRTC "
      "('pip install --upgrade nvidia-cuda-nvrtc') makes it faster to load and to run",
      nvrtc.version(), asked, arch);
}

}  // namespace

std::vector<std::string> cuda_flags(std::string_view arch) {
  std::vector<std::string> flags{fmt::format("--gpu-architecture={}", arch)};
  flags.insert(flags.end(), std::begin(fixed_flags), std::end(fixed_flags));
  return flags;
}

std::string cuda_compiler_text(const CudaCompileOptions& options) {
  std::string text = fmt::format("NVRTC {} {}", nvrtc().version(), fmt::join(fixed_flags, " "));
  for (const std::string& flag : options.extra_flags) text += " " + flag;
  return text;
}

std::string compiled_arch(std::string_view asked, std::span<const int> known, std::string_view version) {
  std::string_view digits = asked;
  int number = 0;
  bool good = digits.starts_with("sm_");
  if (good) digits.remove_prefix(3);
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  std::string_view rest(end, static_cast<std::size_t>(digits.data() + digits.size() - end));
  if (!good || error != std::errc() || number < 10 || !(rest.empty() || rest == "a" || rest == "f"))
    throw Error(ErrorKind::argument, "architecture", fmt::format("'{}' is not a chip", asked),
                "chips are written sm_80, sm_90a, sm_100f");
  int below = 0;
  for (int chip : known) {
    if (chip == number) return std::string(asked);
    if (chip < number) below = chip;
  }
  if (below == 0)
    throw Error(ErrorKind::unsupported, where,
                fmt::format("NVRTC {} no longer compiles for {}; the oldest it knows is sm_{}", version, asked,
                            known.empty() ? 0 : known.front()),
                "install an older NVRTC ('pip install nvidia-cuda-nvrtc-cu12') or set ATTILE_NVRTC");
  return fmt::format("compute_{}", below);
}

CompiledCuda compile_cuda(const std::string& text, const std::string& file_name, std::string_view arch,
                          std::span<const embedded::File> headers, const CudaCompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Nvrtc& library = nvrtc();
  const Request request{text, file_name, arch, compiled_arch(arch, library.archs, library.version()), options};
  const bool only_ptx = request.arch != arch;
  std::vector<std::string> flags = cuda_flags(request.arch);
  flags.insert(flags.end(), options.extra_flags.begin(), options.extra_flags.end());
  Program program(library, text, file_name, headers);
  if (program.result == NvrtcResult::success) program.compile(flags);
  CompiledCuda compiled;
  compiled.log = program.log();
  if (program.result != NvrtcResult::success) refuse(request, library, program.result, compiled.log);
  compiled.arch = request.arch;
  CudaLog log = parse_cuda_log(compiled.log);
  compiled.resources = std::move(log.kernels);
  compiled.warnings = std::move(log.warnings);
  if (only_ptx) {
    compiled.warnings.push_back(newer_than_known(library, arch, request.arch));
    warn(compiled.warnings.back());
  } else {
    compiled.cubin = program.cubin();
    internal_check(!compiled.cubin.empty(), "a compile for a chip returns a cubin");
    complete(compiled);
  }
  if (only_ptx || options.ptx) compiled.ptx = program.ptx();
  compiled.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

}  // namespace v1
}  // namespace attile
