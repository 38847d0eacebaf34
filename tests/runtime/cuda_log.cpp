#include "runtime/ptxas_log.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

// As NVRTC 13.0 writes it, shortened; the second kernel calls a function that is not inlined.
constexpr const char* two_kernels =
    R"(kernel.cu(3): warning #177-D: variable "y" was declared but never referenced
  float y;
        ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'attention'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'attention' for 'sm_90a'
ptxas info    : Function properties for attention
ptxas         .     1760 bytes stack frame, 2556 bytes spill stores, 2548 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers, 1760 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 170.291 ms
ptxas info    : Compiling entry function '_Z3genILi3EEvPfi' for 'sm_80'
ptxas info    : Function properties for _Z3genILi3EEvPfi
ptxas         .     256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 34 registers, used 0 barriers, 264 bytes cumulative stack size, 364 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Function properties for _Z6helperfi
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
)";

}  // namespace

TEST_CASE("the compiler's log tells resources of every kernel") {
  const CudaLog log = parse_cuda_log(two_kernels);
  REQUIRE(log.kernels.size() == 2);
  const CudaResources& a = log.kernels[0];
  CHECK(a.entry == "attention");
  CHECK(a.registers == 168);
  CHECK(a.barriers == 16);
  CHECK((a.stack_bytes == 1760 && a.spill_store_bytes == 2556 && a.spill_load_bytes == 2548));
  CHECK((a.shared_bytes == 1024 && a.constant_bytes == 0));
  const CudaResources& b = log.kernels[1];
  CHECK(b.entry == "_Z3genILi3EEvPfi");
  CHECK((b.registers == 34 && b.barriers == 0 && b.constant_bytes == 372 && b.shared_bytes == 0));
  CHECK((b.stack_bytes == 264 && b.spill_store_bytes == 4 && b.spill_load_bytes == 12));
  CHECK(log.first_error.empty());
}

TEST_CASE("warnings of ptxas about wgmma belong to their kernel") {
  const CudaLog log = parse_cuda_log(two_kernels);
  REQUIRE(log.warnings.size() == 2);
  CHECK_THAT(log.warnings[0], ContainsSubstring("kernel.cu(3): warning #177-D"));
  REQUIRE(log.kernels[0].warnings.size() == 1);
  CHECK_THAT(log.kernels[0].warnings[0], ContainsSubstring("(C7510)"));
  CHECK(log.kernels[1].warnings.empty());
  const CudaLog other = parse_cuda_log(
      "ptxas info    : (C7508) 'setmaxnreg' ignored to maintain minimum register requirements.\n"
      "ptxas warning : Value of threads per SM for entry attention is out of range. .minnctapersm will be ignored\n");
  CHECK(other.warnings.size() == 2);
  CHECK(other.first_error.empty());
}

TEST_CASE("the first error of a log is found whoever wrote it") {
  const auto [log, error] = GENERATE(values<std::pair<const char*, const char*>>({
      {"kernel.cu(2): warning #1-D: x\nkernel.cu(1): error: identifier \"y\" is undefined\n  y\n  ^\nkernel.cu(9): "
       "error: z\n",
       "kernel.cu(1): error: identifier \"y\" is undefined"},
      {"kernel.cu(1): catastrophic error: cannot open source file \"tile.cuh\"\n",
       "kernel.cu(1): catastrophic error: cannot open source file \"tile.cuh\""},
      {"ptxas info    : 0 bytes gmem\nptxas error   : Entry function 'f' uses too much shared data (0x20000 bytes, "
       "0xc000 max)\n",
       "ptxas error   : Entry function 'f' uses too much shared data (0x20000 bytes, 0xc000 max)"},
      {"ptxas fatal   : Ptx assembly aborted due to errors\n", "ptxas fatal   : Ptx assembly aborted due to errors"},
      {"nvrtc: error: invalid value for --gpu-architecture (-arch)\n",
       "nvrtc: error: invalid value for --gpu-architecture (-arch)"},
      {"nothing of note\n", ""},
      {"", ""},
  }));
  CHECK(parse_cuda_log(log).first_error == error);
}

TEST_CASE("any text passes for a log") {
  std::string text = two_kernels;
  for (std::size_t cut = 0; cut < text.size(); cut += 7) parse_cuda_log(std::string_view(text).substr(0, cut));
  for (std::size_t at = 0; at < text.size(); at += 5) {
    std::string changed = text;
    changed[at] = at % 2 ? '\'' : '\0';
    parse_cuda_log(changed);
  }
  parse_cuda_log("ptxas info    : Compiling entry function '");
  parse_cuda_log(
      "ptxas info    : Compiling entry function 'f'\nUsed 99999999999999999999999 registers, used barriers,  bytes "
      "cmem[");
}
