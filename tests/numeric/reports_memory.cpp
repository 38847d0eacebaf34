// Reported faults of memory layouts, each with its input and the right value: views, expanded dims, alignment, far strides.
#include <sys/mman.h>

#include <cmath>

#include "dsl/error.h"
#include "tests/numeric/call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

constexpr DType all_types[] = {DType::float32, DType::bfloat16, DType::float16};

// Address space of which only what is touched takes memory.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes) : bytes_(bytes) {
    map_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Sparse() { munmap(map_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  void* data() const { return map_; }

 private:
  void* map_;
  std::size_t bytes_;
};

// Runs `call` as it is, then with rows of q, k, v and o that far apart; the outputs must be the same bits.
void check_far_rows(Call& call, std::int64_t row_stride, const Schedule& s) {
  const Values near = call.output("o", s);
  const Call compact = call;
  std::vector<std::unique_ptr<Sparse>> memory;
  for (const char* name : {"q", "k", "v", "o"}) {
    TensorRef& t = call.ref(name);
    const std::size_t rows = static_cast<std::size_t>(t.shape[2]);
    memory.push_back(std::make_unique<Sparse>(rows * static_cast<std::size_t>(row_stride) * size_of(t.dtype)));
    t.data = memory.back()->data();
    t.strides = {std::int64_t{1} << 61, t.shape[3], row_stride, 1};   // one batch: its stride is never used
    call.fill(name, [&](std::int64_t i) { return compact.get(name, i); });
  }
  INFO(to_string(s));
  CHECK(same_bits(call.output("o", s), near));
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("every combination of layouts of q, k, v and o gives the bits of contiguous copies", "[C27]") {
  constexpr std::int64_t B = 2, H = 4, N = 100, D = 64;
  const std::vector<std::vector<std::int64_t>> layouts = {
      {H * N * D, N * D, D, 1},           // [B][H][N][D]
      {N * H * D, D, H * D, 1},           // [B][N][H][D]
      {H * D, D, B * H * D, 1},           // [N][B][H][D]
      {N * H * 3 * D, 3 * D, H * 3 * D, 1},   // a slice of [B][N][H][3][D]
      {H * 2 * N * D, 2 * N * D, 2 * D, 1}};  // every other row of [B][H][2N][D]
  const AttentionOptions options = with([](AttentionOptions& o) { o.causal = true; });
  Call call(options, {.batches = B, .heads = H, .rows = N, .keys = N, .head_dim = D});
  std::vector<Call> laid(layouts.size(), call);
  for (std::size_t i = 0; i < layouts.size(); ++i)
    for (const char* name : {"q", "k", "v", "o"}) laid[i].lay(name, layouts[i]);
  std::vector<Schedule> schedules = call.tilings();
  schedules.resize(std::min<std::size_t>(schedules.size(), 4));
  for (const Schedule& s : schedules) {
    const Values expected = call.output("o", s);
    std::int64_t wrong = 0;
    for (const Call& q : laid)
      for (const Call& k : laid)
        for (const Call& v : laid)
          for (const Call& o : laid) {
            Call view = call;
            view.ref("q") = q.ref("q"), view.ref("k") = k.ref("k"), view.ref("v") = v.ref("v"), view.ref("o") = o.ref("o");
            wrong += !same_bits(view.output("o", s), expected);
          }
    INFO(to_string(s));
    CHECK(wrong == 0);
  }
}

TEST_CASE("rows in reverse order, by a negative stride, are rows as any others", "[C27]") {
  Call call(AttentionOptions{}, {.heads = 2, .rows = 50, .keys = 70, .head_dim = 24});
  Call reversed = call;
  for (const auto& [name, n] : {std::pair("q", 50), {"k", 70}, {"v", 70}, {"o", 50}}) {
    reversed.lay(name, {});
    TensorRef& t = reversed.ref(name);
    t.data = static_cast<float*>(t.data) + (n - 1) * 24;
    t.strides[2] = -24;
    reversed.fill(name, [&](std::int64_t i) { return call.get(name, i); });
  }
  for (const Schedule& s : call.tilings()) CHECK(same_bits(reversed.output("o", s), call.output("o", s)));
}

TEST_CASE("a last dim whose stride is not 1 is refused by name", "[C27]") {
  Call call(AttentionOptions{}, {.rows = 4, .keys = 5, .head_dim = 8});
  call.lay("k", {80, 80, 16, 2});
  CHECK_THAT(message_of([&] { call.run(); }), ContainsSubstring("the last dim of 'k' has stride 2"));
}

TEST_CASE("expanded keys and values give the bits of their copies", "[C28]") {
  for (const std::int64_t d : {64, 512})
    for (const DType type : all_types)
      for (const std::int64_t keys : {33, 64, 65, 97}) {
        if (d == 512 && type != DType::float32) continue;
        const Sizes sizes{.batches = 3, .heads = 8, .rows = 20, .keys = keys, .head_dim = d};
        Call call(AttentionOptions{}, sizes, type);
        Call copy = call;
        for (const char* name : {"k", "v"}) {
          TensorRef& t = call.ref(name);
          t.strides[0] = t.strides[1] = 0;
          copy.put(name, type, {3, 8, keys, d}, call.values(name));
        }
        for (const Schedule& s : call.tilings()) {
          INFO("D " << d << " keys " << keys << " " << to_string(type) << " " << to_string(s));
          const Values expanded = call.output("o", s);
          CHECK(same_bits(expanded, copy.output("o", s)));
        }
        copy.run();
        CHECK(copy.mismatch() == "");
      }
}

TEST_CASE("a bias expanded over batch, heads or queries gives the bits of its copy", "[C28]") {
  struct { std::int64_t batches, heads, rows; } bias_shapes[] = {{1, 1, 20}, {2, 1, 1}, {1, 4, 1}, {1, 1, 1}};
  for (const std::int64_t keys : {33, 64, 65, 97})
    for (const auto& [bb, bh, br] : bias_shapes) {
      Call call(with([](AttentionOptions& o) { o.bias = true; }), {.batches = 2, .heads = 4, .rows = 20, .keys = keys, .head_dim = 64});
      call.put("bias", DType::float32, {bb, bh, br, keys}, {0});
      call.fill("bias", [](std::int64_t i) { return static_cast<double>(i * 37 % 29) / 8; });
      Call expanded = call, copy = call;
      TensorRef& t = expanded.ref("bias");
      t.shape = {2, 4, 20, keys};
      for (const auto& [dim, extent] : {std::pair(std::size_t{0}, bb), {1, bh}, {2, br}})
        if (extent == 1) t.strides[dim] = 0;
      copy.put("bias", DType::float32, {2, 4, 20, keys}, expanded.values("bias"));
      for (const Schedule& s : call.tilings()) {
        const Values expected = copy.output("o", s);
        CHECK(same_bits(call.output("o", s), expected));
        CHECK(same_bits(expanded.output("o", s), expected));
      }
      CHECK(copy.mismatch() == "");
    }
}

TEST_CASE("an expanded output is refused and nothing is written", "[C28]") {
  Call call(AttentionOptions{}, {.batches = 2, .heads = 3, .rows = 4, .keys = 5, .head_dim = 8});
  for (const std::size_t dim : {0, 1, 2}) {
    Call expanded = call;
    expanded.ref("o").strides[dim] = 0;
    CHECK_THAT(message_of([&] { expanded.run(); }), ContainsSubstring("output 'o' overlaps itself"));
    CHECK(std::isnan(expanded.get("o", 0)));
  }
}

TEST_CASE("buffers off the 16-byte grid and odd row strides give the bits of aligned ones, in either order", "[C29]") {
  for (const DType type : all_types) {
    const Sizes sizes{.heads = 2, .rows = 43, .keys = 43, .head_dim = 64};
    const AttentionOptions options = with([](AttentionOptions& o) { o.bias = true; });
    Call aligned(options, sizes, type);
    aligned.put("bias", type, {1, 1, 43, 43}, {0});
    aligned.fill("bias", [](std::int64_t i) { return static_cast<double>(i % 17) / 4; });
    for (const Schedule& s : aligned.tilings()) {
      const Values expected = aligned.output("o", s);
      for (const int shift : {1, 2, 3, 7})
        for (const std::int64_t row : {64, 65, 66, 68}) {
          Call shifted = aligned;
          for (const char* name : {"q", "k", "v", "o"}) shifted.lay(name, {2 * 43 * row, 43 * row, row, 1}, shift);
          shifted.lay("bias", {}, shift);
          INFO(to_string(type) << " shift " << shift << " row stride " << row << " " << to_string(s));
          CHECK(same_bits(shifted.output("o", s), expected));
        }
      CHECK(same_bits(aligned.output("o", s), expected));
    }
    CHECK(aligned.mismatch() == "");
  }
}

TEST_CASE("an unaligned call may come first", "[C29]") {
  Call call(with([](AttentionOptions& o) { o.causal = true; }), {.heads = 2, .rows = 43, .keys = 43, .head_dim = 61}, DType::float16);
  Call shifted = call;
  for (const char* name : {"q", "k", "v", "o"}) shifted.lay(name, {}, 3);
  const Values first = shifted.output("o");
  CHECK(same_bits(call.output("o"), first));
  CHECK(call.mismatch() == "");
}

TEST_CASE("an address between two elements is refused", "[C29]") {
  Call call(AttentionOptions{}, {.rows = 4, .keys = 5, .head_dim = 8});
  call.lay("q", {}, 1);
  call.ref("q").data = static_cast<std::byte*>(call.ref("q").data) - 2;
  CHECK_THAT(message_of([&] { call.run(); }), ContainsSubstring("the address of 'q' is no multiple of its element size"));
}

TEST_CASE("tensors that reach beyond 2^31 elements give the bits of compact ones", "[C30]") {
  for (const bool causal : {false, true}) {
    Call call(with([&](AttentionOptions& o) { o.causal = causal; }), {.rows = 2049 + 64, .keys = 2049 + 64, .head_dim = 64}, DType::float16);
    const std::vector<Schedule> schedules = call.tilings();
    for (const Schedule& s : schedules) {
      Call far = call;
      check_far_rows(far, std::int64_t{1} << 20, s);
    }
    call.run();
    std::vector<EvaluateInputs::Row> last;
    for (std::int64_t i = 2049; i < 2049 + 64; ++i) last.push_back({0, 0, i});
    EvaluateInputs in = call.evaluate_inputs();
    in.rows = last;
    const auto expected = evaluate(call.algorithm(), in).at("o");
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < expected.values.size(); ++i)
      wrong += !(std::fabs(call.get("o", 2049 * 64 + static_cast<std::int64_t>(i)) - expected.values[i]) < 4e-3);
    CHECK(wrong == 0);
  }
}

TEST_CASE("rows of one tile may lie beyond 2^31 elements from each other", "[C30]") {
  for (const DType type : all_types) {
    Call call(AttentionOptions{}, {.rows = 200, .keys = 200, .head_dim = 16}, type);
    for (const Schedule& s : call.tilings()) {
      Call far = call;
      check_far_rows(far, std::int64_t{1} << 28, s);
    }
    call.run();
    CHECK(call.mismatch() == "");
  }
}

TEST_CASE("a bias that reaches beyond 2^31 elements gives the bits of a compact one", "[C30]") {
  Call call(with([](AttentionOptions& o) { o.bias = true; }), {.rows = 40, .keys = 50, .head_dim = 16});
  call.put("bias", DType::float32, {1, 1, 40, 50}, {0});
  call.fill("bias", [](std::int64_t i) { return static_cast<double>(i % 23) / 8; });
  const Call compact = call;
  constexpr std::int64_t row = std::int64_t{1} << 26;
  const Sparse memory(40 * row * sizeof(float));
  for (const Schedule& s : call.tilings()) {
    call.ref("bias") = compact.ref("bias");
    const Values near = call.output("o", s);
    call.ref("bias").data = memory.data();
    call.ref("bias").strides = {0, 0, row, 1};
    call.fill("bias", [&](std::int64_t i) { return compact.get("bias", i); });
    CHECK(same_bits(call.output("o", s), near));
  }
  CHECK(call.mismatch() == "");
}
