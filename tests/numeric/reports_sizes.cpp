// Reported faults of large counts: batches, heads, sequences and query tiles above 65535, and kernels per length.
#include <cmath>
#include <cstring>
#include <set>

#include "runtime/attention.h"
#include "runtime/cache.h"
#include "tests/numeric/test_device.h"
#include "tests/numeric/call.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

// Values that differ from batch to batch, made quickly.
std::vector<float> numbers(std::int64_t count) {
  std::vector<float> all(static_cast<std::size_t>(count));
  std::uint32_t state = 7;
  for (float& x : all) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int>(state >> 24) - 128) / 64;
  }
  return all;
}

// q, k, v, o of many small problems, contiguous; extents may be lowered call by call.
struct Many {
  std::vector<float> q, k, v, o;
  AttentionCall call;
  std::vector<std::int64_t> shape;

  explicit Many(std::vector<std::int64_t> extents) : shape(std::move(extents)) {
    const std::int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
    q = numbers(count), k = q, v = q;
    std::reverse(k.begin(), k.end());
    o.assign(q.size(), NAN);
    call.q = contiguous(q.data(), DType::float32, shape), call.k = contiguous(k.data(), DType::float32, shape);
    call.v = contiguous(v.data(), DType::float32, shape), call.o = contiguous(o.data(), DType::float32, shape);
  }

  // The largest difference from `evaluate` over the given rows.
  double worst(const std::vector<EvaluateInputs::Row>& rows) const {
    const Algorithm a = attention(attention_options(call));
    EvaluateInputs in;
    in.batch = call.cu_seqlens_q ? call.cu_seqlens_q->shape[0] - 1 : call.q.shape[0];
    in.heads = call.q.shape[1], in.rows = rows;
    const Arguments arguments = attention_arguments(call);
    for (const auto& [name, t] : arguments.tensors)
      if (a.find_input(name)) in.tensors[name] = {t.dtype, t.data, {t.shape.begin(), t.shape.begin() + t.rank}, {t.strides.begin(), t.strides.begin() + t.rank}};
    for (const auto& n : arguments.numbers) in.scalars[n.name] = n.real;
    const auto expected = evaluate(a, in).at("o");
    double largest = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::int64_t row = call.cu_seqlens_q ? static_cast<const std::int32_t*>(call.cu_seqlens_q->data)[rows[r].sequence] + rows[r].row : rows[r].row;
      const std::int64_t batch_number = call.cu_seqlens_q ? 0 : rows[r].sequence;
      for (std::int64_t e = 0; e < shape[3]; ++e) {
        const float got = o[static_cast<std::size_t>(((batch_number * shape[1] + rows[r].head) * shape[2] + row) * shape[3] + e)];
        const double error = std::fabs(got - expected.values[r * static_cast<std::size_t>(shape[3]) + static_cast<std::size_t>(e)]);
        largest = error <= largest ? largest : error;   // a NaN stays
      }
    }
    return largest;
  }
  bool complete(std::int64_t batches) const {
    const auto end = o.begin() + batches * shape[1] * shape[2] * shape[3];
    return std::none_of(o.begin(), end, [](float x) { return std::isnan(x); }) &&
           std::all_of(end, o.end(), [](float x) { return std::isnan(x); });
  }
};

}  // namespace

TEST_CASE("batches of 65535, 65536 and 80000 are computed to the last", "[C34]") {
  Many many({80000, 1, 16, 16});
  for (const std::int64_t batches : {65535, 65536, 80000}) {
    std::fill(many.o.begin(), many.o.end(), NAN);
    for (TensorRef* t : {&many.call.q, &many.call.k, &many.call.v, &many.call.o}) t->shape[0] = batches;
    run_attention(many.call);
    CHECK(many.complete(batches));
    CHECK(many.worst({{0, 0, 0}, {32768, 0, 7}, {65534, 0, 15}, {batches - 1, 0, 0}, {batches - 1, 0, 15}}) < 1e-5);
  }
}

TEST_CASE("65536 heads are computed to the last", "[C34]") {
  Many many({1, 65536, 16, 16});
  many.call.causal = true;
  run_attention(many.call);
  CHECK(many.complete(1));
  CHECK(many.worst({{0, 0, 0}, {0, 65534, 15}, {0, 65535, 0}, {0, 65535, 15}}) < 1e-5);
}

TEST_CASE("70000 packed sequences of three tokens are computed to the last", "[C34]") {
  Many many({1, 2, 210000, 16});
  std::vector<std::int32_t> bounds(70001);
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = static_cast<std::int32_t>(3 * i);
  many.call.cu_seqlens_q = many.call.cu_seqlens_k = contiguous(bounds.data(), DType::int32, {70001});
  for (const bool causal : {false, true}) {
    std::fill(many.o.begin(), many.o.end(), NAN);
    many.call.causal = causal;
    run_attention(many.call);
    CHECK(many.complete(1));
    CHECK(many.worst({{0, 0, 0}, {65535, 1, 2}, {65536, 0, 1}, {69999, 0, 0}, {69999, 1, 2}}) < 1e-5);
  }
}

TEST_CASE("four million query rows are computed to the last", "[C34]") {
  constexpr std::int64_t rows = 64 * 65535 + 1;
  Call call(AttentionOptions{}, {.rows = 1, .keys = 16, .head_dim = 16}, DType::bfloat16);
  // Row i of q equals row i + 97·n.
  GuardedTensor q(DType::bfloat16, {1, 1, rows, 16}, {0, 0, 16, 1}, Edge::end), o(DType::bfloat16, {1, 1, rows, 16}, {0, 0, 16, 1}, Edge::end);
  auto* const q_bits = reinterpret_cast<std::uint16_t*>(q.data());
  for (std::int64_t i = 0; i < rows * 16; ++i) q_bits[i] = to_bfloat16(static_cast<float>(i / 16 % 97 * 3 % 17 - 8) / 4);
  std::memset(o.data(), 0xFF, static_cast<std::size_t>(rows) * 32);
  call.ref("q") = q.ref(), call.ref("o") = o.ref();
  const Arguments arguments = call.arguments();
  run_there(Kernel::get(call.algorithm(), call.problem(), std::nullopt, test_device()), arguments);
  // So do the rows of o, bit by bit; the first 97 are compared with the reference.
  const auto* const out = reinterpret_cast<const std::uint16_t*>(o.data());
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < rows * 16; ++i) wrong += out[i] != out[i % (97 * 16)];
  CHECK(wrong == 0);
  EvaluateInputs in = call.evaluate_inputs();
  for (std::int64_t i = 0; i < 97; ++i) in.rows.push_back({0, 0, i});
  const auto expected = evaluate(call.algorithm(), in).at("o");
  for (std::size_t i = 0; i < expected.values.size(); ++i) CHECK(std::fabs(from_bfloat16(out[i]) - expected.values[i]) < 2e-2);
}

TEST_CASE("five hundred lengths, then batches, then windows take at most four kernels", "[C70]") {
  const ScratchPlace place;
  set_kernel_cache({.folder = place.str()});
  std::set<const Program*> kernels;
  std::uint64_t after_ten = 0;
  const auto run = [&](std::int64_t batches, std::int64_t n, std::int64_t window) {
    static std::vector<float> memory = numbers(64 * 2200 * 128), out(memory.size());
    const std::int64_t shape[] = {batches, 1, n, 128};
    AttentionCall call;
    call.q = call.k = call.v = contiguous(memory.data(), DType::float32, shape);
    call.o = contiguous(out.data(), DType::float32, shape);
    call.window_left = window;
    call.causal = window >= 0;
    kernels.insert(&attention_kernel(call).program());
    if (n < 300) run_attention(call);
  };
  int length_number = 0;
  for (std::int64_t n = 200; n < 2200; n += 4) {
    run(1, n, -1);
    if (++length_number == 10) after_ten = kernel_cache()->stats().builds;
  }
  CHECK(length_number == 500);
  CHECK(kernels.size() <= 2);
  CHECK(kernel_cache()->stats().builds == after_ten);
  for (std::int64_t batches = 1; batches <= 64; ++batches) run(batches, 208, -1);
  for (std::int64_t window = 1; window <= 64; ++window) run(1, 208, window);
  CHECK(kernels.size() <= 4);
  CHECK(kernel_cache()->stats().builds <= 4);
  set_kernel_cache(CacheOptions::from_environment());
}
