#include "runtime/host_cpu.h"

#include <sched.h>

#include "dsl/error.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

TEST_CASE("the host is described the same at every call") {
  HostCpu first = detect_host_cpu(), second = detect_host_cpu();
  CHECK(first == second);
  CHECK(first.cpu.starts_with("x86-64"));
  CHECK(first.cores >= 1);
  CHECK(first.has("sse3"));
  CHECK(first.vector_bytes == (first.has("avx512f") ? 64 : first.has("avx") ? 32 : 16));
}

TEST_CASE("the system's own list of flags agrees with ours") {
  std::string flags;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags")) flags = line + " ";
  if (flags.empty()) ATTILE_SKIP("/proc/cpuinfo lists no flags");
  HostCpu host = detect_host_cpu();
  for (auto [ours, theirs] : {std::pair{"avx2", "avx2"},
                              {"fma", "fma"},
                              {"f16c", "f16c"},
                              {"avx512f", "avx512f"},
                              {"avx512vl", "avx512vl"},
                              {"avx512bf16", "avx512_bf16"},
                              {"avx512fp16", "avx512_fp16"}}) {
    CAPTURE(ours);
    CHECK(host.has(ours) == (flags.find(std::string(" ") + theirs + " ") != std::string::npos));
  }
}

TEST_CASE("a named CPU has the features of its level and no more") {
  HostCpu v3 = named_cpu("x86-64-v3"), v4 = named_cpu("x86-64-v4");
  CHECK(v3.isa() == "x86-64-v3");
  CHECK(v4.isa() == "x86-64-v4");
  CHECK(v3.has("fma"));
  CHECK_FALSE(v3.has("avx512f"));
  CHECK(v4.has("avx512dq"));
  CHECK_FALSE(v4.has("avx512bf16"));
  CHECK(v3.vector_bytes == 32);
  CHECK(v4.vector_bytes == 64);
  CHECK_THROWS_AS(named_cpu("x86-64-v5"), Error);
}

TEST_CASE("a host limited to a level has no more than the level") {
  HostCpu host = detect_host_cpu();
  if (!host.has("avx2")) ATTILE_SKIP("this machine has no AVX2");
  HostCpu limited = limited_to(host, "x86-64-v3");
  CHECK(limited.cpu == "x86-64-v3");
  CHECK(limited.features.empty());
  CHECK(limited.vector_bytes == 32);
  CHECK(limited.model == host.model);
  CHECK(limited_to(host, "native") == host);
}

TEST_CASE("a level that the host lacks is refused with what is missing") {
  HostCpu old = limited_to(named_cpu("x86-64-v3"), "x86-64-v3");
  try {
    limited_to(old, "x86-64-v4");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    CHECK_THAT(error.what(), ContainsSubstring("avx512") && ContainsSubstring("x86-64-v3"));
  }
}

TEST_CASE("usable cores follow the affinity mask") {
  CHECK(run_in_child([] {
          cpu_set_t one, all;
          expect(sched_getaffinity(0, sizeof all, &all) == 0, "affinity");
          CPU_ZERO(&one);
          for (int i = 0; i < CPU_SETSIZE; ++i)
            if (CPU_ISSET(i, &all)) {
              CPU_SET(i, &one);
              break;
            }
          expect(sched_setaffinity(0, sizeof one, &one) == 0, "set affinity");
          expect(usable_cores() == 1, "one core");
        }) == 0);
}
