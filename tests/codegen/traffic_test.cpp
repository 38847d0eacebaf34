// Bytes and operations counted from the IR against the closed forms of the papers, which stand here: standard attention
// (Dao et al. 2022, algorithm 0), FlashAttention (its algorithm 1) and FlashAttention-2 (Dao 2023, algorithm 1). Those
// give orders of growth; written out for tiles of B_q rows and B_k keys they are exact.
#include "codegen/traffic.h"

#include "tests/schedules/problems.h"
#include "tests/support/catch_compat.h"

namespace attile::test {
namespace {

using Count = std::int64_t;

struct Sizes {
  Count batches, heads, kv_heads, rows, keys, d, dv, tile_rows, tile_keys;
};
constexpr Sizes all_sizes[] = {
    {1, 1, 1, 192, 256, 64, 64, 96, 128}, {2, 4, 2, 1000, 777, 64, 80, 192, 64}, {1, 6, 2, 100, 1, 128, 16, 48, 32},
    {3, 2, 2, 1, 1000, 32, 32, 48, 16},   {1, 1, 1, 95, 97, 16, 8, 96, 32},      {1, 8, 1, 0, 50, 64, 64, 48, 32},
};

Count tiles(Count n, Count tile) { return (n + tile - 1) / tile; }

struct Case {
  Sizes n;
  Schedule schedule;
  DType type = DType::float32;
  Count bytes() const { return static_cast<Count>(size_of(type)); }
  Count row_tiles() const { return tiles(n.rows, n.tile_rows); }
  Count key_tiles() const { return tiles(n.keys, n.tile_keys); }
  Count all_heads() const { return n.batches * n.heads; }

  Problem problem(const Algorithm& a) const {
    Problem p = problem_for(a, type, n.d, n.dv);
    p.group = n.heads / n.kv_heads;
    return p;
  }
  Traffic count(const Algorithm& a) const {
    const Target t = target_from_name("x86-64-v4-bf16");
    const Problem p = problem(a);
    CHECK(legality(a, p, schedule, t) == std::vector<std::string>{});
    return traffic(a, p, schedule, t, {n.batches, n.heads, n.rows, n.keys});
  }
};

Case case_of(const Sizes& n, Order order = Order::queries_outer, DType type = DType::float32) {
  Case c{n, {}, type};
  c.schedule.tile_rows = static_cast<int>(n.tile_rows);
  c.schedule.tile_keys = static_cast<int>(n.tile_keys);
  c.schedule.order = order;
  return c;
}

Bytes at(const Traffic& t, const std::string& tensor) {
  const auto found = t.memory.find(tensor);
  return found == t.memory.end() ? Bytes{} : found->second;
}
Bytes read(Count bytes) { return {bytes, 0}; }
Bytes written(Count bytes) { return {0, bytes}; }

Algorithm plain_attention() { return attention(AttentionOptions{}); }
Algorithm causal_attention() {
  return attention_with([](AttentionOptions& o) { o.causal = true; });
}

}  // namespace

TEST_CASE("standard attention: S and P pass through memory whole, K and V once for each row tile") {
  const StandardAttention steps = standard_attention(false);
  for (const Sizes& n : all_sizes) {
    const Case c = case_of(n);
    CAPTURE(n.rows, n.keys, n.d, n.tile_rows, n.tile_keys);
    const Count heads = c.all_heads(), square = heads * n.rows * n.keys * 4, row_state = heads * n.rows * 4;

    const Traffic scores = c.count(steps.scores);
    CHECK(at(scores, "q") == read(heads * n.rows * n.d * 4));
    CHECK(at(scores, "k") == read(heads * c.row_tiles() * n.keys * n.d * 4));
    CHECK(at(scores, "s") == written(square));
    for (const char* name : {"m", "l"}) CHECK(at(scores, name) == written(row_state));
    CHECK(scores.flops == 2 * heads * n.rows * n.keys * n.d);

    const Traffic probabilities = c.count(steps.probabilities);
    CHECK(at(probabilities, "s") == read(square));
    CHECK(at(probabilities, "p") == written(square));
    for (const char* name : {"m", "l"}) CHECK(at(probabilities, name) == read(c.key_tiles() * row_state));
    CHECK(probabilities.exponentials == heads * n.rows * n.keys);
    CHECK(probabilities.flops == 0);

    const Traffic output = c.count(steps.output);
    CHECK(at(output, "p") == read(square));
    CHECK(at(output, "v") == read(heads * c.row_tiles() * n.keys * n.dv * 4));
    CHECK(at(output, "o") == written(heads * n.rows * n.dv * 4));
    CHECK(output.flops == 2 * heads * n.rows * n.keys * n.dv);
  }
}

TEST_CASE("FlashAttention: K and V are read once, Q and the states pass through memory for each key tile") {
  const Algorithm a = plain_attention();
  for (const DType type : {DType::float32, DType::bfloat16})
    for (const Sizes& n : all_sizes) {
      const Case c = case_of(n, Order::keys_outer, type);
      CAPTURE(to_string(type), n.rows, n.keys, n.d, n.tile_rows, n.tile_keys);
      const Traffic t = c.count(a);
      const Count heads = c.all_heads(), passes = c.key_tiles();
      const bool any_rows = n.rows > 0;
      CHECK(at(t, "k") == read(any_rows ? heads * n.keys * n.d * c.bytes() : 0));
      CHECK(at(t, "v") == read(any_rows ? heads * n.keys * n.dv * c.bytes() : 0));
      CHECK(at(t, "q") == read(passes * heads * n.rows * n.d * c.bytes()));
      // Written once at the start and read once at the end besides; the states are float32.
      const auto state = [&](Count cols) {
        const Count bytes = (passes + 1) * heads * n.rows * cols * 4;
        return Bytes{bytes, bytes};
      };
      CHECK(at(t, "work.m") == state(1));
      CHECK(at(t, "work.l") == state(1));
      CHECK(at(t, "work.o") == state(n.dv));
      CHECK(at(t, "o") == written(heads * n.rows * n.dv * c.bytes()));
      CHECK(t.flops == 2 * heads * n.rows * n.keys * (n.d + n.dv));
    }
}

TEST_CASE("FlashAttention-2: Q is read and O written once, K and V once for each row tile") {
  const Algorithm a = plain_attention();
  for (const DType type : {DType::float32, DType::bfloat16})
    for (const Sizes& n : all_sizes) {
      const Case c = case_of(n, Order::queries_outer, type);
      CAPTURE(to_string(type), n.rows, n.keys, n.d, n.tile_rows, n.tile_keys);
      const Traffic t = c.count(a);
      const Count heads = c.all_heads();
      CHECK(at(t, "q") == read(heads * n.rows * n.d * c.bytes()));
      CHECK(at(t, "k") == read(heads * c.row_tiles() * n.keys * n.d * c.bytes()));
      CHECK(at(t, "v") == read(heads * c.row_tiles() * n.keys * n.dv * c.bytes()));
      CHECK(at(t, "o") == written(heads * n.rows * n.dv * c.bytes()));
      CHECK(t.memory.size() == (n.rows > 0 ? 4 : 0));
      CHECK(t.flops == 2 * heads * n.rows * n.keys * (n.d + n.dv));
      // One a score, and one a row and key tile for the factor.
      CHECK(t.exponentials == heads * n.rows * (n.keys + c.key_tiles()));
    }
}

TEST_CASE("with the group in the rows of a task, its heads share one reading of K and V") {
  const Algorithm a = plain_attention();
  for (const Sizes& n : all_sizes) {
    Case c = case_of(n);
    const Count group = n.heads / n.kv_heads;
    c.schedule.pack_group = group > 1;
    CAPTURE(n.rows, n.keys, n.heads, n.kv_heads);
    const Traffic t = c.count(a);
    const Count visits = n.batches * n.kv_heads * tiles(n.rows * group, n.tile_rows);
    CHECK(at(t, "k") == read(visits * n.keys * n.d * 4));
    CHECK(at(t, "q") == read(c.all_heads() * n.rows * n.d * 4));
    CHECK(t.flops == 2 * c.all_heads() * n.rows * n.keys * (n.d + n.dv));
  }
}

TEST_CASE("packed ahead, K and V are read once and their packed copies once for each row tile") {
  const Algorithm a = plain_attention();
  for (const Sizes& n : all_sizes) {
    Case c = case_of(n);
    c.schedule.pack_ahead = true;
    const Traffic t = c.count(a);
    const Count once = n.rows > 0 ? n.batches * n.kv_heads * n.keys * n.d * 4 : 0;
    CHECK(at(t, "k") == read(once));
    CHECK(at(t, "work.k") == Bytes{c.all_heads() * c.row_tiles() * n.keys * n.d * 4, once});
  }
}

TEST_CASE("a split reads the stream once over all parts, and its merge reads every part") {
  Case c = case_of({2, 3, 3, 2, 1000, 64, 32, 4, 64});
  c.schedule.lanes = Lanes::positions;
  c.schedule.splits = 3;
  const Traffic t = c.count(plain_attention());
  const Count heads = c.all_heads(), rows = c.n.rows;
  CHECK(at(t, "k") == read(heads * c.n.keys * c.n.d * 4));
  CHECK(at(t, "part.o") == Bytes{heads * rows * 3 * c.n.dv * 4, heads * rows * 3 * c.n.dv * 4});
  CHECK(at(t, "o") == written(heads * rows * c.n.dv * 4));
}

TEST_CASE("causal: the tiles that a task reads end where its last row does") {
  const Algorithm a = causal_attention();
  const Count panel = 48;
  for (const Order order : {Order::queries_outer, Order::keys_outer})
    for (const Sizes& n : all_sizes) {
      const Case c = case_of(n, order);
      CAPTURE(to_string(order), n.rows, n.keys, n.tile_rows, n.tile_keys);
      const Traffic t = c.count(a);
      // Keys that rows up to `last` see, in whole tiles.
      const auto keys_read = [&](Count last) {
        const Count seen = last + n.keys - n.rows + 1;
        return seen <= 0 ? 0 : std::min(tiles(seen, n.tile_keys) * n.tile_keys, n.keys);
      };
      Count positions = 0, pairs = 0, rows_loaded = 0;
      for (Count row = 0; row < n.rows; row += n.tile_rows) {
        const Count end = std::min(row + n.tile_rows, n.rows);
        positions += keys_read(end - 1);
        rows_loaded += tiles(keys_read(end - 1), n.tile_keys) * (end - row);
        for (Count first = row; first < end; first += panel) {
          const Count count = std::min(panel, end - first);
          pairs += count * keys_read(first + count - 1);
        }
      }
      const Count heads = c.all_heads();
      CHECK(t.flops == 2 * heads * pairs * (n.d + n.dv));
      if (order == Order::queries_outer) {
        CHECK(at(t, "k") == read(heads * positions * n.d * 4));
        CHECK(at(t, "q") == read(heads * n.rows * n.d * 4));
      } else {
        CHECK(at(t, "k") == read(n.rows > 0 ? heads * keys_read(n.rows - 1) * n.d * 4 : 0));
        CHECK(at(t, "q") == read(heads * rows_loaded * n.d * 4));
      }
    }
}

TEST_CASE("a window's scalars decide what is counted and without them everything may be seen") {
  const Algorithm a = attention_with([](AttentionOptions& o) { o.window = true; });
  const Case c = case_of({1, 1, 1, 960, 960, 64, 64, 96, 32});
  const Problem p = c.problem(a);
  const Target t = target_from_name("x86-64-v4");
  TrafficSizes sizes{1, 1, 960, 960};
  const Count all = traffic(a, p, c.schedule, t, sizes).flops;
  CHECK(all == Count{2} * 960 * 960 * 128);
  sizes.scalars = {{"window_left", 0}, {"window_right", 0}};
  // A panel of 48 rows sees the tiles of 32 keys that its 48 positions touch.
  CHECK(traffic(a, p, c.schedule, t, sizes).flops == Count{2} * 960 * 64 * 128);
}

TEST_CASE("tiles between tile memory and panels: every panel reads the operands of its products") {
  const Case c = case_of({1, 1, 1, 192, 128, 64, 32, 96, 64});
  const Traffic t = c.count(plain_attention());
  const Count panels = 4;
  CHECK(t.tiles.read == 4 * (2 * c.n.rows * c.n.d + panels * c.n.keys * (c.n.d + c.n.dv)));
  CHECK(t.tiles.written == 4 * (c.n.rows * c.n.d + 2 * c.n.keys * (c.n.d + c.n.dv)));
}

}  // namespace attile::test
