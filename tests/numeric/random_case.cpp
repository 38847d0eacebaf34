#include <algorithm>

#include "schedules/footprint.h"
#include "tests/numeric/test_device.h"
#include "tests/numeric/problem_case.h"

namespace attile::test {
namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed * 0x2545F4914F6CDD1Dull + 99) {}
  std::uint64_t word() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ * 0x9E3779B97F4A7C15ull >> 16;
  }
  std::int64_t in(std::int64_t low, std::int64_t high) { return low + static_cast<std::int64_t>(word() % static_cast<std::uint64_t>(high - low + 1)); }
  bool chance(int one_in) { return word() % static_cast<std::uint64_t>(one_in) == 0; }
  template <typename T>
  T of(std::initializer_list<T> list) { return list.begin()[word() % list.size()]; }

 private:
  std::uint64_t state_;
};

// What the kernel is compiled for.
void draw_variant(Draw& d, ProblemCase& c) {
  AttentionOptions& o = c.options;
  o.rule = d.chance(2) ? Rule::softmax : d.of({Rule::softmax, Rule::softmax_plus_one, Rule::sigmoid, Rule::linear});
  const bool soft = o.rule == Rule::softmax || o.rule == Rule::softmax_plus_one;
  o.lse = soft && d.chance(2);
  o.lengths = d.chance(4) ? Lengths::used : d.chance(5) ? Lengths::packed : Lengths::dense;
  const bool packed = o.lengths == Lengths::packed;
  o.causal = d.chance(2);
  o.window = d.chance(5);
  o.softcap = d.chance(6);
  o.alibi = d.chance(6);
  o.bias = !packed && d.chance(6);
  o.mask = !packed && d.chance(6);
  o.sink = o.rule == Rule::softmax && d.chance(6);
  o.prefix = o.causal && !packed && d.chance(6);
  o.documents = !packed && d.chance(6);
  if (soft && d.chance(8)) {
    o.top_k = static_cast<int>(d.of<std::int64_t>({1, 2, 5, 8, 128}));
    o.top_k_renormalise = d.chance(2);
    o.top_k_outputs = d.chance(2);
  } else {
    o.dropout = d.chance(7);
  }
}

void draw_types(Draw& d, ProblemCase& c) {
  c.dtype = d.of({DType::float32, DType::float32, DType::bfloat16, DType::float16});
  c.out_dtype = d.chance(3) ? DType::float32 : c.dtype;
  c.bias_dtype = d.chance(2) ? DType::float32 : c.dtype;
  c.head_dim = d.chance(3) ? d.in(1, 40) : d.of<std::int64_t>({16, 32, 64, 72, 80, 96, 100, 128});
  c.value_dim = d.chance(2) ? c.head_dim : d.in(1, 70);
  c.heads = d.of<std::int64_t>({1, 1, 2, 3, 4});   // per kv head, for now
}

Schedule draw_schedule(Draw& d, const ProblemCase& c, const Target& t) {
  Schedule s;
  s.longest_first = d.chance(2);
  s.pack_group = c.heads > 1 && d.chance(3);
  if (d.chance(3)) {
    s.lanes = Lanes::positions;
    s.tile_rows = static_cast<int>(d.in(1, 16));
    s.tile_keys = static_cast<int>(d.of<std::int64_t>({16, 32, 64, 128}));
  } else {
    const bool wide = t.vector_registers >= 32;
    s.panel_vectors = static_cast<int>(d.in(1, wide ? 3 : 2));
    s.block = static_cast<int>(d.of<std::int64_t>({2, 4, wide ? 8 : 4}));
    s.tile_rows = static_cast<int>(panel_rows(s, t) * d.in(1, 3));
    s.tile_keys = static_cast<int>(d.of<std::int64_t>({16, 32, 64, 128}));
    s.pack_ahead = d.chance(2);
  }
  s.bf16_dot = t.bf16_dot && c.dtype == DType::bfloat16 && d.chance(2);
  if (!s.pack_ahead && c.options.top_k == 0 && d.chance(5)) s.splits = static_cast<int>(d.of<std::int64_t>({2, 3, 7}));
  if (s.lanes == Lanes::rows && s.splits == 1 && !s.pack_ahead && d.chance(2)) s.order = Order::keys_outer;
  return s;
}

Schedule draw_gpu_schedule(Draw& d, ProblemCase& c) {
  Schedule s;
  s.longest_first = d.chance(2);
  s.pack_group = c.heads > 1 && d.chance(3);
  if (c.options.top_k == 0 && d.chance(5)) s.splits = static_cast<int>(d.of<std::int64_t>({0, 2, 3, 7}));
  if (c.options.top_k > 0 || d.chance(6)) {
    s.lanes = Lanes::positions;
    s.warps = s.tile_rows = static_cast<int>(d.of<std::int64_t>({1, 4, 8}));
    s.tile_keys = static_cast<int>(d.of<std::int64_t>({32, 64}));
  } else {
    s.lanes = Lanes::fragments;
    s.warps = static_cast<int>(d.of<std::int64_t>({4, 4, 8, 2, 1}));
    s.partition = d.chance(4) ? Partition::positions : Partition::rows;
    const bool rows = s.partition == Partition::rows;
    s.tile_rows = (rows ? 16 * s.warps : 16) * static_cast<int>(d.in(1, 2));
    s.tile_keys = (rows ? 16 : 16 * s.warps) * static_cast<int>(d.in(1, rows ? 4 : 1));
    s.stages = static_cast<int>(d.in(1, 4));
    s.rows_in_registers = d.chance(2);
    s.fold_scale = !d.chance(4);
    s.lazy_rescale = d.chance(2);
    s.late_copies = d.chance(3);
    if (rows && s.warps > 1 && d.chance(3)) {
      s.column_warps = static_cast<int>(std::min<std::int64_t>(s.warps, d.of<std::int64_t>({2, 2, 4})));
      s.tile_rows = 16 * s.warps / s.column_warps * static_cast<int>(d.in(1, 2));
      s.tile_keys = 16 * s.column_warps * static_cast<int>(d.in(1, 2));
      const std::int64_t step = 16 * s.column_warps;
      c.value_dim = (c.value_dim + step - 1) / step * step;
    }
  }
  AttentionOptions options = c.options;
  const Algorithm a = attention(options);
  Problem p;
  for (const InputDecl& i : a.inputs)
    p.dtypes[i.name] = i.name == "q" || i.name == "k" || i.name == "v" ? c.dtype : i.name == "bias" ? c.bias_dtype : i.kind == Kind::integer ? DType::int32 : i.kind == Kind::boolean ? DType::boolean : DType::float32;
  for (const OutputDecl& o : a.outputs) p.dtypes[o.name] = o.name == "o" ? c.out_dtype : o.kind == Kind::integer ? DType::int32 : DType::float32;
  p.extents = {{"head_dim", c.head_dim}, {"value_dim", c.value_dim}};
  p.group = c.heads;
  return made_legal(a, p, s, test_target());
}

// What only a call knows.
void draw_sizes(Draw& d, ProblemCase& c) {
  c.batches = d.in(1, 3);
  c.kv_heads = d.in(1, 3);
  c.heads *= c.kv_heads;
  c.rows = d.chance(4) ? d.in(0, 4) : d.in(1, 150);
  c.positions = d.chance(8) ? d.in(0, 3) : d.in(1, 300);
  if (c.options.window) c.window_left = static_cast<double>(d.in(-1, 40)), c.window_right = static_cast<double>(d.in(-1, 40));
  c.nan_in_hidden = c.options.top_k == 0 && d.chance(6);
  if (c.options.lengths == Lengths::used)
    for (std::int64_t b = 0; b < c.batches; ++b) c.lengths_k.push_back(d.in(0, c.positions));
  if (c.options.lengths != Lengths::packed) return;
  for (std::int64_t b = d.in(1, 6); b > 0; --b) {
    c.lengths_q.push_back(d.chance(4) ? 0 : d.in(1, 70));
    c.lengths_k.push_back(d.chance(4) ? 0 : d.in(1, 90));
  }
  c.batches = static_cast<std::int64_t>(c.lengths_q.size());
}

}  // namespace

// On a GPU a compile takes a second of a core.
std::uint64_t calls_per_kernel() { return test_device().kind == Device::Kind::cpu ? 8 : 40; }

ProblemCase random_case(std::uint64_t seed) {
  Draw kernel(seed / calls_per_kernel()), call(seed + 0x5851F42Dull);
  ProblemCase c;
  c.seed = seed;
  draw_variant(kernel, c);
  draw_types(kernel, c);
  const Target& t = test_target();
  c.schedule = t.family == TargetFamily::cuda ? draw_gpu_schedule(kernel, c) : draw_schedule(kernel, c, t);
  draw_sizes(call, c);
  return c;
}

}  // namespace attile::test
