// Standard attention (scores, probabilities and output written in full between three kernels) against `evaluate`, step
// by step, and against the one-pass kernel.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "dsl/evaluate.h"
#include "dsl/library.h"
#include "runtime/kernel.h"
#include "tests/numeric/test_device.h"
#include "tests/numeric/guarded_tensor.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

struct Sizes {
  std::int64_t batches, heads, kv_heads, rows, keys, head_dim, value_dim;
};

// The tensors of all three steps and of the one-pass kernel, between guard pages.
class Tensors {
 public:
  explicit Tensors(const Sizes& s) : sizes_(s) {
    add("q", {s.batches, s.heads, s.rows, s.head_dim});
    add("k", {s.batches, s.kv_heads, s.keys, s.head_dim});
    add("v", {s.batches, s.kv_heads, s.keys, s.value_dim});
    for (const char* name : {"s", "p"}) add(name, {s.batches, s.heads, s.rows, s.keys});
    for (const char* name : {"m", "l"}) add(name, {s.batches, s.heads, s.rows});
    for (const char* name : {"o", "o_one_pass"}) add(name, {s.batches, s.heads, s.rows, s.value_dim});
    std::uint64_t state = 7;
    for (const char* name : {"q", "k", "v"})
      for (std::int64_t i = 0; i < at(name).count(); ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        at(name).set(i, static_cast<double>(state >> 40) / (1 << 23) - 1);
      }
    for (const char* name : {"s", "p", "m", "l", "o", "o_one_pass"}) at(name).fill(std::nan(""));
  }
  GuardedTensor& at(const std::string& name) { return *tensors_.at(name); }

  Arguments arguments(const Algorithm& a, const std::string& output_suffix = "") {
    Arguments out;
    for (const InputDecl& i : a.inputs) out.tensor(i.name, at(i.name).ref());
    for (const OutputDecl& o : a.outputs) out.tensor(o.name, at(o.name + output_suffix).ref());
    for (const ScalarDecl& s : a.scalars) out.real(s.name, scale());
    return out;
  }
  EvaluateInputs evaluate_inputs(const Algorithm& a) {
    EvaluateInputs in;
    in.batch = sizes_.batches, in.heads = sizes_.heads;
    for (const InputDecl& i : a.inputs) {
      const GuardedTensor& t = at(i.name);
      in.tensors[i.name] = {t.dtype(), t.data(), t.shape(), t.strides()};
    }
    for (const ScalarDecl& s : a.scalars) in.scalars[s.name] = scale();
    return in;
  }

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape) {
    const Edge edge = tensors_.size() % 2 ? Edge::begin : Edge::end;
    tensors_[name] = std::make_unique<GuardedTensor>(DType::float32, shape, row_major(shape), edge);
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(sizes_.head_dim)); }

  Sizes sizes_;
  std::map<std::string, std::unique_ptr<GuardedTensor>> tensors_;
};

// Empty if every element agrees; the kernel's inputs are what the step before wrote.
std::string difference(const GuardedTensor& got, const std::vector<double>& want) {
  for (std::int64_t i = 0; i < got.count(); ++i) {
    const double g = got.get(i), w = want[static_cast<std::size_t>(i)];
    const bool agrees = std::isfinite(w) ? std::fabs(g - w) <= 2e-5 + 2e-5 * std::fabs(w) : g == w;
    if (!agrees) return fmt::format("element {}: {} instead of {}", i, g, w);
  }
  return {};
}

void run_step(const Algorithm& a, Tensors& t, const Schedule& schedule) {
  CAPTURE(a.name);
  const Arguments arguments = t.arguments(a);
  const Problem p = problem_of(a, arguments);
  run_there(Kernel::get(a, p, made_legal(a, p, schedule, test_target()), test_device()), arguments);
  for (const auto& [name, want] : evaluate(a, t.evaluate_inputs(a))) {
    CAPTURE(name);
    CHECK(difference(t.at(name), want.values) == "");
  }
}

void compare_with_one_pass(bool causal, Tensors& t) {
  AttentionOptions options;
  options.causal = causal;
  const Algorithm one_pass = attention(options);
  const Arguments arguments = t.arguments(one_pass, "_one_pass");
  run_there(Kernel::get(one_pass, problem_of(one_pass, arguments), std::nullopt, test_device()), arguments);
  std::vector<double> want;
  for (std::int64_t i = 0; i < t.at("o_one_pass").count(); ++i) want.push_back(t.at("o_one_pass").get(i));
  CHECK(difference(t.at("o"), want) == "");
}

// Both lane forms, and both orders of the loops where there are two.
std::vector<Schedule> small_tiles() {
  std::vector<Schedule> out(3);
  for (Schedule& s : out) s.tile_rows = 96, s.tile_keys = 32;
  out[1].order = Order::keys_outer;
  out[2].lanes = Lanes::positions;
  out[2].tile_rows = 4;
  return out;
}

}  // namespace

TEST_CASE("standard attention in three kernels agrees with the reference and with one pass") {
  const Sizes cases[] = {{2, 4, 2, 150, 170, 64, 64},
                         {1, 2, 2, 37, 203, 24, 40},
                         {1, 1, 1, 203, 37, 16, 16},
                         {1, 3, 1, 1, 100, 80, 8},
                         {1, 1, 1, 96, 64, 32, 32}};
  for (const bool causal : {false, true})
    for (const Schedule& schedule : small_tiles())
      for (const Sizes& sizes : cases) {
        CAPTURE(causal, to_string(schedule), sizes.rows, sizes.keys, sizes.head_dim);
        Tensors tensors(sizes);
        const StandardAttention steps = standard_attention(causal);
        for (const Algorithm& a : {steps.scores, steps.probabilities, steps.output}) run_step(a, tensors, schedule);
        compare_with_one_pass(causal, tensors);
      }
}

TEST_CASE("an output at every position is 0 at hidden positions, whatever tile they lie in") {
  const Sizes sizes{1, 1, 1, 200, 200, 16, 16};
  for (const Schedule& schedule : small_tiles()) {
    Tensors t(sizes);
    const StandardAttention steps = standard_attention(true);
    run_step(steps.scores, t, schedule);
    std::int64_t not_zero = 0;
    for (std::int64_t i = 0; i < sizes.rows; ++i)
      for (std::int64_t j = i + 1; j < sizes.keys; ++j) not_zero += t.at("s").get(i * sizes.keys + j) != 0;
    CHECK(not_zero == 0);
  }
}
