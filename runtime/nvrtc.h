// NVRTC, NVIDIA's run-time compiler, opened at the first use with the file of built-in functions that belongs to it.
// Looked for, in this order; the first that opens whole is taken:
//   1. the file that ATTILE_NVRTC names, and then nothing else
//   2. libnvrtc.so.13, then .12, by the loader: what the process has open, LD_LIBRARY_PATH, ld.so.cache
//   3. lib64, lib and targets/*/lib of $CUDA_HOME, $CUDA_PATH, $CONDA_PREFIX, /usr/local/cuda
//   4. nvidia/cu13/lib and nvidia/cuda_nvrtc/lib of the Python packages of $VIRTUAL_ENV, $CONDA_PREFIX, the user, /usr
//      and /usr/local ('pip install nvidia-cuda-nvrtc'); no Python is run
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dsl/export.h"
#include "runtime/cuda_places.h"

namespace attile {
inline namespace v1 {

enum class NvrtcResult : int {
  success = 0,
  out_of_memory = 1,
  program_creation_failure = 2,
  invalid_input = 3,
  invalid_program = 4,
  invalid_option = 5,
  compilation = 6,
  builtin_operation_failure = 7,
  internal_error = 11,
  cancelled = 16,
};

// Functions of nvrtc.h by the words of their names.
struct Nvrtc {
  using Program = struct NvrtcProgram*;
  std::string path;  // the file that was opened
  int major = 0, minor = 0;
  std::vector<int> archs;  // chips it compiles for, ascending: 75 ... 121

  const char* (*get_error_string)(NvrtcResult);
  NvrtcResult (*get_version)(int* major, int* minor);
  NvrtcResult (*get_num_supported_archs)(int* count);
  NvrtcResult (*get_supported_archs)(int* archs);
  NvrtcResult (*create_program)(Program*, const char* text, const char* name, int header_count,
                                const char* const* headers, const char* const* include_names);
  NvrtcResult (*destroy_program)(Program*);
  NvrtcResult (*compile_program)(Program, int option_count, const char* const* options);
  NvrtcResult (*get_program_log_size)(Program, std::size_t*);
  NvrtcResult (*get_program_log)(Program, char*);
  NvrtcResult (*get_cubin_size)(Program, std::size_t*);
  NvrtcResult (*get_cubin)(Program, char*);
  NvrtcResult (*get_ptx_size)(Program, std::size_t*);
  NvrtcResult (*get_ptx)(Program, char*);
  NvrtcResult (*set_flow_callback)(Program, int (*callback)(void*, void*), void*);  // null before 12.8

  ATTILE_API std::string version() const;  // "13.0"
};

// Throws Error(environment) with every place looked in when there is none that works; a later call looks again.
ATTILE_API const Nvrtc& nvrtc();

// Opens one file or name; throws Error(environment) when it is none, is not whole or lacks its file of built-ins.
ATTILE_API const Nvrtc* open_nvrtc(const std::string& name);

// Stands around every use of a program. NVRTC takes itself apart when the process exits and does not bear a compile on
// another thread at that time: exit cuts short the compiles that run and waits for them, and their threads, like those
// that would begin one after that, go no further. (Some milliseconds of a process's very first compile stay unguarded:
// what NVRTC registers for exit then comes before ours.)
class NvrtcInUse {
 public:
  // Throws Error(environment) on the thread that exits.
  NvrtcInUse();
  ~NvrtcInUse();
  NvrtcInUse(const NvrtcInUse&) = delete;
  NvrtcInUse& operator=(const NvrtcInUse&) = delete;

  // For set_flow_callback: 1 once the process exits.
  static int keep_going(void*, void*);
  // Does not return while the process exits: what a compile says then is worth nothing.
  void stop_if_ending();
};

// What nvrtc() tries, files that exist only, and the folders it looked in for them, for people.
struct NvrtcPlaces {
  std::vector<std::string> names, folders;
};
ATTILE_API NvrtcPlaces nvrtc_places(const std::string& chosen, const SearchedMachine& machine);
// The same for this process.
ATTILE_API NvrtcPlaces nvrtc_places();

// Opens the first that works; throws Error(environment) as nvrtc() does.
ATTILE_API const Nvrtc* find_nvrtc(const NvrtcPlaces& places);

}  // namespace v1
}  // namespace attile
