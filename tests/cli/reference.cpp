// What stands behind `run --check` and the figures of reports: a wrong element is found, work is counted as defined.
#include "cli/reference.h"

#include <cmath>
#include <limits>
#include <set>

#include "cli/call_data.h"
#include "cli/work.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::cli;

namespace {

AttentionFlags small_flags() {
  AttentionFlags flags;
  flags.batch = 2, flags.heads = 4, flags.kv_heads = 2, flags.seqlen_q = 9, flags.seqlen_k = 30, flags.head_dim = 8,
  flags.value_dim = 6;
  return flags;
}

// The output as the reference has it, element by element.
void fill_with_reference(CallData& data) {
  run_attention(data.call());
  REQUIRE(check_against_reference(data.call()).agrees());
}

}  // namespace

TEST_CASE("one wrong element, a NaN and a missing infinity are found at their place") {
  AttentionFlags flags = small_flags();
  flags.causal = true;
  flags.kv_lens = "5,30";  // the first rows of the first sequence see nothing: lse is minus infinity
  CallData data(flags, Contents::values, true);
  fill_with_reference(data);

  Array& o = data.output("o");
  const std::int64_t at = ((1 * 4 + 3) * 9 + 7) * 6 + 5;
  for (const double wrong :
       {o.get(at) + 1e-3, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const double right = o.get(at);
    o.set(at, wrong);
    const ReferenceCheck check = check_against_reference(data.call());
    CHECK(!check.agrees());
    CHECK(!check.outputs[0].agrees);
    CHECK(check.outputs[1].agrees);
    CHECK(check.outputs[0].place == "[1][3][7][5]");
    o.set(at, right);
  }
  Array& lse = data.output("lse");
  REQUIRE(std::isinf(lse.get(0)));
  lse.set(0, -1e30);
  const ReferenceCheck check = check_against_reference(data.call());
  CHECK(!check.outputs[1].agrees);
  CHECK(check.outputs[1].place == "[0][0][0]");
}

TEST_CASE("packed outputs are compared where they lie") {
  AttentionFlags flags = small_flags();
  flags.batch.reset(), flags.seqlen_q.reset(), flags.seqlen_k.reset();
  flags.cu_seqlens_q = "0,3,3,12";
  flags.cu_seqlens_k = "0,7,9,30";
  CallData data(flags, Contents::values, false);
  fill_with_reference(data);
  Array& o = data.output("o");
  o.set((2 * 12 + 11) * 6 + 1, 100);
  const ReferenceCheck check = check_against_reference(data.call());
  CHECK(!check.agrees());
  CHECK(check.outputs[0].place == "[0][2][11][1]");
  CHECK(check.all_rows == 4 * 12);
}

TEST_CASE("rows of a large problem are spread over all sequences and positions of a tile") {
  const auto rows = rows_to_check({1000, 0, 3000}, 16, 1e6);
  CHECK(rows.size() == 400);
  std::set<std::int64_t> sequences, heads, within_tile;
  for (const auto& row : rows) {
    CHECK(row.row < (row.sequence == 0 ? 1000 : 3000));
    sequences.insert(row.sequence), heads.insert(row.head), within_tile.insert(row.row % 16);
  }
  CHECK(sequences == std::set<std::int64_t>{0, 2});
  CHECK(heads.size() == 16);
  CHECK(within_tile.size() == 16);
  CHECK(rows.front().row == 0);
  CHECK(rows.back().row == 2999);
  CHECK(rows_to_check({10, 20}, 2, 1).size() == 60);
  CHECK(rows_to_check({}, 2, 1).empty());
}

TEST_CASE("scores that tie within rounding are left out of a top-k check") {
  AttentionFlags flags = small_flags();
  flags.top_k = 3;
  CallData data(flags, Contents::values, false);
  Array& k = data.output("k");
  for (std::int64_t j = 1; j < 30; ++j)  // every key of the first kv head the same, but for the last bit of one number
    for (std::int64_t d = 0; d < 8; ++d) k.set(j * 8 + d, k.get(d));
  for (std::int64_t j = 0; j < 30; j += 2) k.set(j * 8, k.get(j * 8) * (1 + 1e-7));
  run_attention(data.call());
  const ReferenceCheck check = check_against_reference(data.call());
  CHECK(check.agrees());
  CHECK(check.rows + check.undecided == check.all_rows);
}

TEST_CASE("work counts the pairs that masks of positions leave") {
  for (const auto& [causal, window] :
       {std::pair{false, ""}, std::pair{true, ""}, std::pair{true, "4,-1"}, std::pair{false, "2,3"}}) {
    AttentionFlags flags = small_flags();
    flags.causal = causal;
    flags.window = window;
    CallData data(flags, Contents::values, false);
    double pairs = 0;
    for (int i = 0; i < 9; ++i)
      for (int j = 0; j < 30; ++j) {
        const int position = i + 30 - 9;
        const std::int64_t left = data.call().window_left, right = data.call().window_right;
        pairs +=
            (!causal || j <= position) && (left < 0 || j >= position - left) && (right < 0 || j <= position + right);
      }
    const Work work = work_of(data.call(), 2);
    CHECK(work.flops == 2 * 4 * 2 * pairs * (8 + 6));
    CHECK(work.bytes == 4.0 * 2 * (4 * 9 * 8 + 2 * 30 * 8 + 2 * 30 * 6 + 4 * 9 * 6));
  }
}

TEST_CASE("generated numbers are about standard normal and always the same") {
  Array a(DType::float32, {100000});
  fill_random(a, "q");
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < a.count(); ++i) sum += a.get(i), squares += a.get(i) * a.get(i);
  CHECK(std::fabs(sum / 1e5) < 0.02);
  CHECK(std::fabs(squares / 1e5 - 1) < 0.02);
  Array b(DType::float32, {10});
  fill_random(b, "q");
  for (std::int64_t i = 0; i < 10; ++i) CHECK(a.get(i) == b.get(i));
  fill_random(b, "k");
  CHECK(a.get(0) != b.get(0));
}
