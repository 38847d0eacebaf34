#include <set>

#include "dsl/error.h"
#include "schedules/operands.h"
#include "tests/schedules/problems.h"
#include "tests/support/catch_compat.h"

namespace attile::test {
namespace {

const Algorithm plain = attention(AttentionOptions{});

void refused(const Algorithm& a, const Problem& p, const std::string& text) {
  try {
    check_problem(a, p);
    FAIL("accepted: " << to_string(p));
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::argument);
    CHECK_THAT(e.what(), ContainsSubstring(text));
  }
}

}  // namespace

TEST_CASE("a problem prints on one line with its tensors in the order of their names") {
  Problem p = problem_for(plain, DType::bfloat16, 64, 32);
  CHECK(to_string(p) == "D64 Dv32 group 1 k:bfloat16 o:bfloat16 q:bfloat16 v:bfloat16");
  p.few_rows = true;
  p.group = 4;
  CHECK(to_string(p) == "D64 Dv32 group 4 k:bfloat16 o:bfloat16 q:bfloat16 v:bfloat16 few rows");
}

TEST_CASE("different problems have different hashes") {
  Problem p = problem_for(plain);
  const std::uint64_t before = hash_of(p);
  CHECK(hash_of(problem_for(plain)) == before);
  p.group = 2;
  CHECK(hash_of(p) != before);
}

TEST_CASE("a complete problem is accepted") {
  CHECK_NOTHROW(check_problem(plain, problem_for(plain)));
  const Algorithm everything = attention_with([](auto& o) { o.mask = o.documents = o.bias = o.sink = o.lse = true; });
  CHECK_NOTHROW(check_problem(everything, problem_for(everything)));
  const Algorithm top = attention_with([](auto& o) { o.top_k = 8, o.top_k_outputs = true; });
  Problem p = problem_for(top);
  CHECK_NOTHROW(check_problem(top, p));
  p.extents["slot"] = 8;
  CHECK_NOTHROW(check_problem(top, p));
  p.extents["slot"] = 9;
  refused(top, p, "the selection keeps 8");
}

TEST_CASE("a problem that misses or misstates something is refused by name") {
  Problem p = problem_for(plain);
  p.dtypes.erase("k");
  refused(plain, p, "the tensor 'k' has no element type");

  p = problem_for(plain);
  p.dtypes["q"] = DType::int32;
  refused(plain, p, "the tensor 'q' is int32, but float32, bfloat16 or float16 is needed");

  p = problem_for(plain);
  p.dtypes["bias"] = DType::float32;
  refused(plain, p, "no tensor 'bias'");

  p = problem_for(plain);
  p.extents.erase("value_dim");
  refused(plain, p, "the dim 'value_dim' has no extent");

  p = problem_for(plain);
  p.extents["head_dim"] = 0;
  refused(plain, p, "the dim 'head_dim' has extent 0");

  p = problem_for(plain);
  p.extents["query"] = 5;
  refused(plain, p, "the extent of 'query' is not compiled in");

  p = problem_for(plain);
  p.group = 0;
  refused(plain, p, "the group has 0 query heads");
}

TEST_CASE("the operands of attention are its rows and its two streams") {
  const std::vector<Operand> operands = product_operands(plain);
  REQUIRE(operands.size() == 3);
  CHECK((operands[0].tensor == "q" && !operands[0].streamed && operands[0].feature == head_dim));
  CHECK((operands[1].tensor == "k" && operands[1].streamed && !operands[1].own_rows));
  CHECK((operands[2].tensor == "v" && operands[2].streamed && operands[2].feature == value_dim));
  CHECK(compiled_dims(plain) == Dims{head_dim, value_dim});
}

TEST_CASE("a named target has its instructions and an unknown one is refused with the known names") {
  CHECK(target_names() == std::vector<std::string>{"x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"});
  CHECK(target_from_name("sm_90").shared_bytes == 227 * 1024);
  CHECK(target_from_name("x86-64-v3").vector_bytes == 32);
  CHECK(target_from_name("x86-64-v4").vector_registers == 32);
  CHECK(target_from_name("x86-64-v4-bf16").llvm_features == "+avx512bf16");
  CHECK_THROWS_WITH(target_from_name("z80"), ContainsSubstring("x86-64-v3, x86-64-v4, x86-64-v4-bf16"));
  std::set<std::uint64_t> hashes;
  for (const std::string& name : target_names()) hashes.insert(hash_of(target_from_name(name)));
  CHECK(hashes.size() == target_names().size());
}

}  // namespace attile::test
