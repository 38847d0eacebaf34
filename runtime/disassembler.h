// Machine code of a cubin as SASS text, through NVIDIA's nvdisasm or cuobjdump where one is installed. Looked for in
// $PATH, in bin of $CUDA_HOME, $CUDA_PATH, $CONDA_PREFIX and /usr/local/cuda, and in nvidia/cu13/bin,
// nvidia/cuda_nvdisasm/bin and nvidia/cuda_cuobjdump/bin of the Python packages (see runtime/nvrtc.h).
#pragma once

#include <string>
#include <vector>

#include "dsl/export.h"
#include "runtime/cuda_places.h"

namespace attile {
inline namespace v1 {

// The path of the first one found; empty when there is none.
ATTILE_API std::string find_disassembler(const SearchedMachine& machine = this_machine());

// Throws Error(environment) that names the packages when there is no disassembler, Error(internal) with its own words
// when it refuses the cubin.
ATTILE_API std::string disassemble(const std::string& cubin, const SearchedMachine& machine = this_machine());

}  // namespace v1
}  // namespace attile
