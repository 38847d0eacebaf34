#include "runtime/measure.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "dsl/error.h"
#include "runtime/host_cpu.h"
#include "runtime/parallel_for.h"

namespace attile {
inline namespace v1 {
namespace {

// Each returns a number that depends on all of its work, so that none of it can be left out.
using Burst = float (*)(std::int64_t rounds);

// Twelve chains hide the latency of two units (2 units × 4 or 5 cycles) and leave registers for the operands.
constexpr int chains = 12;

__attribute__((target("avx2,fma"))) float fma_256(std::int64_t rounds) {
  __m256 a[chains];
  for (int c = 0; c < chains; ++c) a[c] = _mm256_set1_ps(static_cast<float>(c));
  const __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(1.0f);
  for (std::int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) a[c] = _mm256_fmadd_ps(a[c], x, y);
  for (int c = 1; c < chains; ++c) a[0] = _mm256_add_ps(a[0], a[c]);
  return _mm256_cvtss_f32(a[0]);
}

__attribute__((target("avx512f"))) float fma_512(std::int64_t rounds) {
  __m512 a[chains];
  for (int c = 0; c < chains; ++c) a[c] = _mm512_set1_ps(static_cast<float>(c));
  const __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(1.0f);
  for (std::int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) a[c] = _mm512_fmadd_ps(a[c], x, y);
  for (int c = 1; c < chains; ++c) a[0] = _mm512_add_ps(a[0], a[c]);
  return _mm512_cvtss_f32(a[0]);
}

__attribute__((target("avx512f,avx512bf16"))) float bf16_dot_512(std::int64_t rounds) {
  __m512 a[chains];
  for (int c = 0; c < chains; ++c) a[c] = _mm512_set1_ps(static_cast<float>(c));
  const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3F80), y = (__m512bh)_mm512_set1_epi16(0x3C00);
  for (std::int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) a[c] = _mm512_dpbf16_ps(a[c], x, y);
  for (int c = 1; c < chains; ++c) a[0] = _mm512_add_ps(a[0], a[c]);
  return _mm512_cvtss_f32(a[0]);
}

__attribute__((target("avx2"))) float read_256(const std::byte* from, std::size_t bytes) {
  __m256i sum[4] = {};
  for (std::size_t at = 0; at < bytes; at += 128)
#pragma GCC unroll 4
    for (std::size_t part = 0; part < 4; ++part)
      sum[part] = _mm256_xor_si256(sum[part], _mm256_load_si256(reinterpret_cast<const __m256i*>(from + at) + part));
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return static_cast<float>(_mm256_extract_epi32(all, 0));
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Keeps the compiler from leaving out what a result comes from.
void keep(float result) {
  static std::atomic<float> kept;
  kept.store(result, std::memory_order_relaxed);
}

double burst_seconds(Burst burst, std::int64_t tasks, std::int64_t rounds) {
  const double start = now();
  parallel_for(tasks, [&](std::int64_t, int) { keep(burst(rounds)); });
  return now() - start;
}

double best_seconds(Burst burst, std::int64_t tasks, std::int64_t rounds, int times) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) best = std::min(best, burst_seconds(burst, tasks, rounds));
  return best;
}

// Bursts of about a millisecond, so that some fall between the turns of other programs; in each many tasks per thread,
// so that a thread that wakes late costs little.
double rate(Burst burst, double operations_of_a_round, double seconds) {
  constexpr double burst_time = 1e-3, task_time = 5e-5;
  constexpr std::int64_t trial = 1 << 12;
  burst_seconds(burst, 4 * worker_count(), trial);  // wakes the threads, brings the clock up
  const double round_seconds = best_seconds(burst, 1, trial, 8) / trial;
  const auto rounds = std::max<std::int64_t>(1, static_cast<std::int64_t>(task_time / round_seconds));
  const std::int64_t tasks = static_cast<std::int64_t>(burst_time / task_time) * worker_count();
  const double best = best_seconds(burst, tasks, rounds, std::max(5, static_cast<int>(seconds / burst_time)));
  return operations_of_a_round * static_cast<double>(rounds) * static_cast<double>(tasks) / best / 1e9;
}

struct Release {
  void operator()(std::byte* memory) const { std::free(memory); }
};

}  // namespace

double measure_fma_gflops(double seconds) {
  const HostCpu& cpu = host_cpu();
  if (cpu.has("avx512f")) return rate(fma_512, 2.0 * 16 * chains, seconds);
  if (!cpu.has("avx2") || !cpu.has("fma"))
    throw Error(ErrorKind::unsupported, "measure", "this CPU has no AVX2 with FMA");
  return rate(fma_256, 2.0 * 8 * chains, seconds);
}

double measure_bf16_dot_gflops(double seconds) {
  const HostCpu& cpu = host_cpu();
  if (!cpu.has("avx512f") || !cpu.has("avx512bf16")) return 0;
  return rate(bf16_dot_512, 4.0 * 16 * chains, seconds);
}

double measure_read_gbs() {
  if (!host_cpu().has("avx2")) throw Error(ErrorKind::unsupported, "measure", "this CPU has no AVX2");
  constexpr std::int64_t slice = 1 << 20;
  const std::int64_t wanted = std::clamp<std::int64_t>(4 * host_cpu().l3_bytes, 128 << 20, 1 << 30),
                     slices = wanted / slice;
  const std::unique_ptr<std::byte, Release> buffer(
      static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<std::size_t>(slices * slice))));
  if (!buffer) throw Error(ErrorKind::resource, "measure", "no memory for a buffer to read");
  const auto at = [&](std::int64_t i) { return buffer.get() + i * slice; };
  parallel_for(slices, [&](std::int64_t i, int) { std::fill_n(at(i), slice, std::byte(i)); });
  // The best window of about a millisecond. The caches have lost a window when its turn comes again.
  const std::int64_t window = std::min<std::int64_t>(std::int64_t{16} * worker_count(), slices / 4);
  double best = 1e30;
  for (int pass = 0; pass < 4; ++pass)
    for (std::int64_t first = 0; first + window <= slices; first += window) {
      const double start = now();
      parallel_for(window, [&](std::int64_t i, int) { keep(read_256(at(first + i), slice)); });
      best = std::min(best, now() - start);
    }
  return static_cast<double>(window * slice) / best / 1e9;
}

}  // namespace v1
}  // namespace attile
