// Tables of host_cpu.cpp: x86 features by cpuid bit (AMD64 APM vol. 3 appendix E, Intel SDM vol. 2 CPUID), the psABI
// level that implies each, and chips by family and model.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace attile {
inline namespace v1 {
namespace cpu_tables {

constexpr std::uint64_t no_state = 0, ymm_state = 0x6, zmm_state = 0xe6;  // bits of XCR0
constexpr int beyond = 9;                                                 // in no level

struct Feature {
  const char* name;  // LLVM's
  unsigned leaf, subleaf;
  char reg;
  int bit;
  std::uint64_t state;  // of XCR0, that must be saved
  int level;            // first x86-64-vN that implies it
};

constexpr Feature features[] = {
    {"cx16", 1, 0, 'c', 13, no_state, 2},
    {"sse3", 1, 0, 'c', 0, no_state, 2},
    {"ssse3", 1, 0, 'c', 9, no_state, 2},
    {"sse4.1", 1, 0, 'c', 19, no_state, 2},
    {"sse4.2", 1, 0, 'c', 20, no_state, 2},
    {"popcnt", 1, 0, 'c', 23, no_state, 2},
    {"sahf", 0x80000001, 0, 'c', 0, no_state, 2},
    {"avx", 1, 0, 'c', 28, ymm_state, 3},
    {"avx2", 7, 0, 'b', 5, ymm_state, 3},
    {"fma", 1, 0, 'c', 12, ymm_state, 3},
    {"f16c", 1, 0, 'c', 29, ymm_state, 3},
    {"bmi", 7, 0, 'b', 3, no_state, 3},
    {"bmi2", 7, 0, 'b', 8, no_state, 3},
    {"lzcnt", 0x80000001, 0, 'c', 5, no_state, 3},
    {"movbe", 1, 0, 'c', 22, no_state, 3},
    {"xsave", 1, 0, 'c', 27, no_state, 3},
    {"avx512f", 7, 0, 'b', 16, zmm_state, 4},
    {"avx512bw", 7, 0, 'b', 30, zmm_state, 4},
    {"avx512cd", 7, 0, 'b', 28, zmm_state, 4},
    {"avx512dq", 7, 0, 'b', 17, zmm_state, 4},
    {"avx512vl", 7, 0, 'b', 31, zmm_state, 4},
    {"avx512bf16", 7, 1, 'a', 5, zmm_state, beyond},
    {"avx512fp16", 7, 0, 'd', 23, zmm_state, beyond},
    {"avx512vbmi", 7, 0, 'c', 1, zmm_state, beyond},
    {"avx512vbmi2", 7, 0, 'c', 6, zmm_state, beyond},
    {"avx512vnni", 7, 0, 'c', 11, zmm_state, beyond},
    {"avxvnni", 7, 1, 'a', 4, ymm_state, beyond},
};

constexpr int level_number(std::string_view level) { return level.size() > 8 ? level.back() - '0' : 1; }

struct Chip {
  unsigned family, first_model, last_model, first_stepping;
  const char* name;  // LLVM's, for "tune-cpu"
};

constexpr Chip amd_chips[] = {
    {0x17, 0x00, 0x2f, 0, "znver1"}, {0x17, 0x30, 0xff, 0, "znver2"}, {0x19, 0x10, 0x1f, 0, "znver4"},
    {0x19, 0x60, 0xaf, 0, "znver4"}, {0x19, 0x00, 0xff, 0, "znver3"}, {0x1a, 0x00, 0xff, 0, "znver5"},
};

constexpr Chip intel_chips[] = {
    {6, 0x3c, 0x3c, 0, "haswell"},        {6, 0x3f, 0x3f, 0, "haswell"},        {6, 0x45, 0x46, 0, "haswell"},
    {6, 0x3d, 0x3d, 0, "broadwell"},      {6, 0x47, 0x47, 0, "broadwell"},      {6, 0x4f, 0x4f, 0, "broadwell"},
    {6, 0x56, 0x56, 0, "broadwell"},      {6, 0x4e, 0x4e, 0, "skylake"},        {6, 0x5e, 0x5e, 0, "skylake"},
    {6, 0x8e, 0x8e, 0, "skylake"},        {6, 0x9e, 0x9e, 0, "skylake"},        {6, 0xa5, 0xa6, 0, "skylake"},
    {6, 0x55, 0x55, 10, "cooperlake"},    {6, 0x55, 0x55, 5, "cascadelake"},    {6, 0x55, 0x55, 0, "skylake-avx512"},
    {6, 0x6a, 0x6a, 0, "icelake-server"}, {6, 0x6c, 0x6c, 0, "icelake-server"}, {6, 0x7d, 0x7e, 0, "icelake-client"},
    {6, 0x8c, 0x8d, 0, "tigerlake"},      {6, 0xa7, 0xa7, 0, "rocketlake"},     {6, 0x8f, 0x8f, 0, "sapphirerapids"},
    {6, 0xcf, 0xcf, 0, "sapphirerapids"}, {6, 0xad, 0xae, 0, "graniterapids"},  {6, 0x97, 0x97, 0, "alderlake"},
    {6, 0x9a, 0x9a, 0, "alderlake"},      {6, 0xb7, 0xb7, 0, "alderlake"},      {6, 0xba, 0xba, 0, "alderlake"},
    {6, 0xbf, 0xbf, 0, "alderlake"},      {6, 0xaa, 0xaa, 0, "meteorlake"},     {6, 0xac, 0xac, 0, "meteorlake"},
};

}  // namespace cpu_tables
}  // namespace v1
}  // namespace attile
