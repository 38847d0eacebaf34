#include "runtime/attention.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "dsl/error.h"
#include "dsl/evaluate.h"
#include "tests/runtime/small_call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

// What the call's own algorithm gives, evaluated untiled in double.
std::map<std::string, EvaluatedOutput> evaluated(const AttentionCall& call) {
  const Algorithm a = attention(attention_options(call));
  const Arguments arguments = attention_arguments(call);
  EvaluateInputs in;
  in.batch = call.cu_seqlens_q ? call.cu_seqlens_q->shape[0] - 1 : call.q.shape[0];
  in.heads = call.q.shape[1];
  for (const auto& t : arguments.tensors) {
    if (!a.find_input(t.name)) continue;
    const auto rank = t.tensor.rank;
    HostTensor host{t.tensor.dtype,
                    t.tensor.data,
                    {t.tensor.shape.begin(), t.tensor.shape.begin() + rank},
                    {t.tensor.strides.begin(), t.tensor.strides.begin() + rank}};
    for (std::size_t i = 0; i < host.shape.size(); ++i)
      if (host.shape[i] == 1) host.strides[i] = 0;
    in.tensors[t.name] = host;
  }
  for (const auto& n : arguments.numbers) in.scalars[n.name] = n.real;
  return evaluate(a, in);
}

double worst_difference(const std::vector<float>& got, const std::vector<double>& want, double tolerance = 1e-5) {
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = std::isinf(want[i]) && got[i] == want[i] ? 0 : std::fabs(got[i] - want[i]);
    worst = std::max(worst, difference / (tolerance * (1 + std::fabs(std::isinf(want[i]) ? 0 : want[i]))));
  }
  return worst;  // in units of what is allowed
}

void check_agrees(SmallCall& c) {
  run_attention(c.call);
  const auto want = evaluated(c.call);
  CHECK(worst_difference(c.o, want.at("o").values) < 1);
  if (c.call.lse) CHECK(worst_difference(c.lse, want.at("lse").values) < 1);
  if (!c.call.values) return;
  CHECK(worst_difference(c.values, want.at("values").values) < 1);
  CHECK(std::equal(want.at("indices").values.begin(), want.at("indices").values.end(), c.indices.begin()));
}

}  // namespace

TEST_CASE("run_attention agrees with evaluate for what the tensors of the call imply") {
  const std::pair<const char*, void (*)(SmallCall&)> calls[] = {
      {"plain", [](SmallCall&) {}},
      {"causal with lse and a scale", [](SmallCall& c) { c.call.causal = true, c.call.scale = 0.5, c.with_lse(); }},
      {"a scale of 0", [](SmallCall& c) { c.call.scale = 0; }},
      {"window, softcap, slopes", [](SmallCall& c) { c.call.window_left = 1, c.call.softcap = 0.7, c.with_slopes(); }},
      {"right window", [](SmallCall& c) { c.call.window_right = 0; }},
      {"bias, mask, sink",
       [](SmallCall& c) { c.mask[3] = c.mask[7] = 0, c.with_bias(), c.with_mask(), c.with_sink(), c.with_lse(); }},
      {"prefix and documents", [](SmallCall& c) { c.call.causal = true, c.with_prefix(), c.with_documents(); }},
      {"used lengths", [](SmallCall& c) { c.with_lens(), c.call.causal = true; }},
      {"packed", [](SmallCall& c) { c.packed(), c.call.causal = true; }},
      {"packed with slopes per sequence", [](SmallCall& c) { c.packed(), c.with_slopes(); }},
      {"top-k", [](SmallCall& c) { c.with_top_k(3); }},
      {"top-k without renormalising", [](SmallCall& c) { c.with_top_k(4), c.call.top_k_renormalise = false; }},
      {"dropout", [](SmallCall& c) { c.call.dropout = 0.4, c.call.seed = 0x123456789abcull, c.call.offset = 7; }},
      {"softmax_plus_one", [](SmallCall& c) { c.call.rule = Rule::softmax_plus_one, c.with_lse(); }},
      {"sigmoid", [](SmallCall& c) { c.call.rule = Rule::sigmoid; }},
      {"linear", [](SmallCall& c) { c.call.rule = Rule::linear; }},
  };
  for (const auto& [name, make] : calls) {
    INFO(name);
    SmallCall c;
    make(c);
    check_agrees(c);
  }
}

TEST_CASE("one slope per head, [H] or [1][H], serves every batch") {
  SmallCall flat, one, all;
  flat.call.alibi_slopes = contiguous(flat.slopes.data(), DType::float32, {SmallCall::H});
  one.call.alibi_slopes = contiguous(one.slopes.data(), DType::float32, {1, SmallCall::H});
  std::copy_n(all.slopes.begin(), SmallCall::H, all.slopes.begin() + SmallCall::H);
  all.with_slopes();
  for (SmallCall* c : {&flat, &one, &all}) run_attention(c->call);
  CHECK(flat.o == all.o);
  CHECK(one.o == all.o);
}

TEST_CASE("a call without rows, keys or batches runs") {
  SmallCall no_keys, nothing;
  no_keys.call.k.shape[2] = no_keys.call.v.shape[2] = 0;
  no_keys.with_lse();
  run_attention(no_keys.call);
  CHECK(std::all_of(no_keys.o.begin(), no_keys.o.end(), [](float x) { return x == 0; }));
  CHECK(std::all_of(no_keys.lse.begin(), no_keys.lse.end(), [](float x) { return x == -INFINITY; }));
  for (auto* t : {&nothing.call.q, &nothing.call.k, &nothing.call.v, &nothing.call.o}) t->shape[0] = 0;
  run_attention(nothing.call);
  CHECK(nothing.outputs_untouched());
}

TEST_CASE("the dropout threshold is round(p * 2^32) and the scale 1/(1 - p)") {
  SmallCall c;
  c.call.dropout = 0.3;
  const Arguments arguments = attention_arguments(c.call);
  std::map<std::string, Arguments::Number> numbers;
  for (const auto& n : arguments.numbers) numbers.emplace(n.name, n);
  CHECK(numbers.at("dropout_threshold").integer == 1288490189);
  CHECK(numbers.at("dropout_scale").real == 1 / 0.7);
  CHECK(numbers.at("scale").real == 0.25);
}

TEST_CASE("a kernel is remembered for what decides it, and for nothing else") {
  SmallCall first, longer, other, scheduled;
  const Program* program = &attention_kernel(first.call).program();
  longer.call.scale = 3;
  longer.call.k.shape[2] = longer.call.v.shape[2] = 2;
  CHECK(&attention_kernel(longer.call).program() == program);
  other.call.causal = true;
  CHECK(&attention_kernel(other.call).program() != program);
  scheduled.call.schedule = attention_kernel(first.call).program().schedule;
  scheduled.call.schedule->tile_keys = 64;
  CHECK(attention_kernel(scheduled.call).program().schedule.tile_keys == 64);
  CHECK(&attention_kernel(first.call).program() == program);
}

TEST_CASE("threads that ask for new kernels at once all get right results") {
  std::vector<std::thread> threads;
  std::vector<double> worst(8);
  for (std::size_t i = 0; i < worst.size(); ++i)
    threads.emplace_back([i, &worst] {
      SmallCall c;
      c.call.window_left = static_cast<std::int64_t>(i % 2);
      c.call.causal = i % 4 < 2;
      for (int round = 0; round < 20; ++round) {
        c.fill_outputs();
        run_attention(c.call);
        worst[i] = std::max(worst[i], worst_difference(c.o, evaluated(c.call).at("o").values));
      }
    });
  for (std::thread& t : threads) t.join();
  for (const double w : worst) CHECK(w < 1);
}

// Weights of the linear rule are the scores themselves; they stay in float32 between the two products.
TEST_CASE("float16 linear attention keeps scores beyond the range of float16") {
  SmallCall c;
  std::vector<std::uint16_t> q(c.q.size()), k(c.k.size()), v(c.v.size());
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = to_float16(200);
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = to_float16(200);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = to_float16(c.v[i] / 1024);
  const auto half = [](TensorRef t, const std::vector<std::uint16_t>& data) {
    t.data = const_cast<std::uint16_t*>(data.data());
    t.dtype = DType::float16;
    return t;
  };
  c.call.q = half(c.call.q, q), c.call.k = half(c.call.k, k), c.call.v = half(c.call.v, v);
  c.call.rule = Rule::linear;
  c.call.scale = 1;  // scores of 640000
  run_attention(c.call);
  CHECK(worst_difference(c.o, evaluated(c.call).at("o").values, 1e-4) < 1);
}
