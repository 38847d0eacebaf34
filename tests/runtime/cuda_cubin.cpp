#include "runtime/cubin.h"

#include <random>

#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

std::string kept(const std::string& name) { return read_text(ATTILE_SOURCE_DIR "/tests/data/cubin/" + name); }

}  // namespace

TEST_CASE("a cubin tells its chip and its kernels' resources") {
  const auto [name, arch] =
      GENERATE(values<std::pair<const char*, int>>({{"scale-sm_80.cubin", 80}, {"scale-sm_90a-nvrtc12.cubin", 90}}));
  const auto cubin = read_cubin(kept(name));
  REQUIRE(cubin);
  CHECK(cubin->arch == arch);
  REQUIRE(cubin->kernels.size() == 1);
  CHECK_FALSE(cubin->kernel("scal"));
  const CudaResources* kernel = cubin->kernel("scale");
  REQUIRE(kernel);
  CHECK(kernel->registers == 10);
  CHECK(kernel->barriers == 1);
  CHECK(kernel->stack_bytes == 0);
  CHECK(kernel->shared_bytes == 512);
  CHECK(kernel->parameter_bytes == 12);
  CHECK(kernel->constant_bytes > 12);
  CHECK(kernel->max_threads == 0);
}

TEST_CASE("a cubin cut anywhere is not a cubin") {
  const std::string whole = kept("scale-sm_80.cubin");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // Bytes on the heap, so that a sanitizer sees a read beyond them.
    const std::vector<char> bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    if (read_cubin({bytes.data(), bytes.size()})) FAIL_CHECK("accepted " << size << " bytes");
  }
  CHECK_FALSE(
      read_cubin("\x7f"
                 "ELF"));
  CHECK_FALSE(read_cubin(read_text("/proc/self/exe").substr(0, 1 << 20)));  // of another machine
}

TEST_CASE("a cubin with changed bytes is read or refused and nothing else") {
  const std::string whole = kept(GENERATE("scale-sm_80.cubin", "scale-sm_90a-nvrtc12.cubin"));
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<char> bytes(whole.begin(), whole.end());
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      // Half of the changes in header and section table, where all offsets stand.
      const std::size_t at = random() % 2 ? random() % bytes.size() : bytes.size() - 1 - random() % 1400;
      bytes[round % 3 ? at : random() % 64] = static_cast<char>(random() % 3 ? random() : 0xff);
    }
    if (const auto cubin = read_cubin({bytes.data(), bytes.size()}))
      for (const CudaResources& k : cubin->kernels)
        if (k.shared_bytes < 0 || k.registers < 0 || k.max_threads < 0) FAIL_CHECK("negative in round " << round);
  }
  SUCCEED();
}
