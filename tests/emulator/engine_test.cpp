// What the emulated device computes, and that it shows each fault it says it shows.
#include "tests/emulator/engine.h"

#include <cmath>
#include <string>
#include <vector>

#include "dsl/dtype.h"
#include "tests/support/catch_compat.h"
#include "tests/emulator/device.h"  // last: its macros are CUDA's words

using namespace attile::test;
using emulator::u16;
using emulator::u32;
namespace ptx = emulator::ptx;

namespace {

std::string run(unsigned threads, void (*kernel)(void**), void* argument = nullptr) {
  void* arguments[] = {argument};
  const char* wrong = emulator::run({{3, 2, 1}, {threads, 1, 1}, 4096, kernel, arguments});
  return wrong ? wrong : "";
}
u32 thread() { return threadIdx.x; }
u32 read(u32 address) {
  u32 x = 0;
  ptx::ld_shared_b32(x, address);
  return x;
}

}  // namespace

TEST_CASE("an emulated block: shuffles, votes, barriers and shared memory give what a GPU gives") {
  std::vector<u32> out(6 * 128);
  const std::string wrong = run(128, [](void** a) {
    ptx::st_shared_b32(thread() * 4, thread() * 3);
    __syncthreads();
    u32 x = read((thread() + 64) % 128 * 4);
    x += static_cast<u32>(__shfl_xor_sync(~0u, thread(), 1)) + __shfl_up_sync(~0u, thread(), 1) + __shfl_sync(~0u, thread(), 5);
    x += __ballot_sync(~0u, thread() % 2 == 0) + static_cast<u32>(__reduce_max_sync(~0u, static_cast<int>(thread()))) -
         static_cast<u32>(__reduce_min_sync(~0u, static_cast<int>(thread())));
    x += static_cast<u32>(__syncthreads_or(thread() == 77)) + static_cast<u32>(__syncthreads_or(0));
    (*static_cast<std::vector<u32>*>(a[0]))[(blockIdx.x + gridDim.x * blockIdx.y) * 128 + thread()] = x;
  }, &out);
  CHECK(wrong == "");
  for (u32 i = 0; i < out.size(); ++i) {
    const u32 t = i % 128, warp = t / 32 * 32;
    const u32 expected = (t + 64) % 128 * 3 + (t ^ 1) + (t % 32 ? t - 1 : t) + warp + 5 + 0x55555555u + 31 + 1;
    REQUIRE(out[i] == expected);
  }
}

TEST_CASE("an emulated matrix product agrees with its definition, operands loaded by ldmatrix") {
  struct Data {
    float a[16][16], b[16][8], d[16][8];
  } data;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) data.a[i][j] = static_cast<float>((i * 7 + j * 3) % 13 - 6);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) data.b[i][j] = static_cast<float>((i * 5 + j) % 11 - 5);
  const std::string wrong = run(32, [](void** arguments) {
    auto& x = *static_cast<Data*>(arguments[0]);
    const u32 lane = thread();
    for (u32 i = lane; i < 256; i += 32) ptx::st_shared_b16(i * 2, ptx::bf16_nearest(x.a[i / 16][i % 16]));
    for (u32 i = lane; i < 128; i += 32) ptx::st_shared_b16(1024 + i * 2, ptx::bf16_nearest(x.b[i / 8][i % 8]));
    __syncwarp();
    u32 a[4], b[2];
    ptx::ldmatrix_sync_aligned_m8n8_x4_shared_b16(a[0], a[1], a[2], a[3], lane % 16 * 32 + lane / 16 * 16);
    ptx::ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(b[0], b[1], 1024 + lane % 16 * 16);
    float d[4] = {1, 1, 1, 1};
    ptx::mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], b[0], b[1]);
    for (u32 e = 0; e < 4; ++e) x.d[lane / 4 + e / 2 * 8][lane % 4 * 2 + e % 2] = d[e];
  }, &data);
  CHECK(wrong == "");
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      float sum = 1;
      for (int k = 0; k < 16; ++k) sum += data.a[i][k] * data.b[k][j];
      REQUIRE(data.d[i][j] == sum);
    }
}

TEST_CASE("numbers of 16 bits are converted as the library converts them") {
  for (u32 bits = 0; bits < 65536; ++bits) {
    const auto x = static_cast<u16>(bits);
    const float half = attile::from_float16(x);
    if (half == half) {
      REQUIRE(ptx::f16_value(x) == half);
    } else {
      REQUIRE(std::isnan(ptx::f16_value(x)));
    }
    for (const float y : {half, half * 1.0004f, half * 0.9997f, half * 1e-7f})
      if (y == y) {
        REQUIRE(ptx::f16_nearest(y) == attile::to_float16(y));
        REQUIRE(ptx::bf16_nearest(y) == attile::to_bfloat16(y));
      }
  }
}

TEST_CASE("the emulated device shows races, reads too early, wrong addresses and lanes that part") {
  CHECK_THAT(run(64, [](void**) { read(thread() * 4); }), ContainsSubstring("that nobody wrote"));
  CHECK_THAT(run(64, [](void**) {
               ptx::st_shared_b32(thread() * 4, 1);
               read((thread() ^ 32) * 4);
             }), ContainsSubstring("nobody wrote") || ContainsSubstring("another warp wrote, without a barrier"));
  CHECK_THAT(run(64, [](void**) { ptx::st_shared_b32(thread() % 32 * 4, 1); }), ContainsSubstring("two warps write"));
  CHECK_THAT(run(64, [](void**) {
               ptx::st_shared_b32(thread() * 4, 1);
               __syncthreads();
               read((thread() ^ 32) * 4);
               ptx::st_shared_b32(thread() * 4, 2);
             }), ContainsSubstring("without a barrier"));
  // A barrier of two warps says nothing of the other two.
  CHECK(run(128, [](void**) {
          ptx::st_shared_b32(thread() * 4, 1);
          ptx::bar_sync(1 + thread() / 64, 64);
          read((thread() ^ 32) * 4);
        }) == "");
  CHECK_THAT(run(128, [](void**) {
               ptx::st_shared_b32(thread() * 4, 1);
               ptx::bar_sync(1 + thread() / 64, 64);
               read((thread() ^ 64) * 4);
             }), ContainsSubstring("nobody wrote") || ContainsSubstring("another warp wrote, without a barrier"));
  CHECK_THAT(run(64, [](void**) { ptx::bar_sync(1, thread() < 32 ? 32 : 64), ptx::bar_sync(1, 64); }), ContainsSubstring("different counts") || ContainsSubstring("wait"));
  static const float source[64] = {};
  const auto copy = [](u32 to) { ptx::cp_async_ca_shared_global(to, &source[thread()], 4); };
  static const auto begin_copy = copy;
  CHECK_THAT(run(64, [](void**) {
               begin_copy(thread() * 4);
               ptx::cp_async_commit_group();
               ptx::cp_async_wait_group(1);
               read(thread() * 4);
             }), ContainsSubstring("before a copy on its way"));
  CHECK_THAT(run(64, [](void**) {
               begin_copy(thread() * 4);
               ptx::cp_async_commit_group();
               ptx::cp_async_wait_group(0);
               read((thread() ^ 32) * 4);
             }), ContainsSubstring("before a copy on its way") || ContainsSubstring("without a barrier") || ContainsSubstring("nobody wrote"));
  CHECK(run(64, [](void**) {
          begin_copy(thread() * 4);
          ptx::cp_async_commit_group();
          ptx::cp_async_wait_group(0);
          __syncthreads();
          if (read((thread() ^ 32) * 4) != 0) emulator::fault("the copy did not arrive");
        }) == "");
  CHECK_THAT(run(32, [](void**) { ptx::st_shared_b32(4096 - 64 + thread() * 4, 1); }), ContainsSubstring("outside"));
  CHECK_THAT(run(32, [](void**) { ptx::st_shared_b32(thread() * 4 + 2, 1); }), ContainsSubstring("not aligned"));
  CHECK_THAT(run(32, [](void**) {
               if (thread() < 7) __shfl_sync(~0u, thread(), 0);
               else __ballot_sync(~0u, 1);
             }), ContainsSubstring("come to"));
  CHECK_THAT(run(64, [](void**) {
               if (thread() >= 32) __syncthreads();
             }), ContainsSubstring("have ended and the others wait"));
  CHECK_THAT(run(32, [](void**) { __shfl_sync(0xFFFFu, thread(), 0); }), ContainsSubstring("mask"));
  CHECK(run(96, [](void**) { __syncthreads(); }) == "");  // and the next launch is none the worse
}
