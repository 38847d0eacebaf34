// What Kernel::run itself refuses, for callers with algorithms of their own.
#include <algorithm>

#include "dsl/error.h"
#include "runtime/attention.h"
#include "tests/runtime/small_call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

std::string refusal(const Kernel& kernel, const Arguments& arguments) {
  try {
    kernel.run(arguments);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::argument);
    return e.what();
  }
  return "it ran";
}

}  // namespace

TEST_CASE("a kernel takes its arguments in any order") {
  SmallCall c;
  c.with_lse();
  const Kernel kernel = attention_kernel(c.call);
  Arguments arguments = attention_arguments(c.call);
  kernel.run(arguments);
  const std::vector<float> o = c.o;
  std::reverse(arguments.tensors.begin(), arguments.tensors.end());
  c.fill_outputs();
  kernel.run(arguments);
  CHECK(c.o == o);
}

TEST_CASE("missing, unknown and repeated arguments are named") {
  SmallCall c;
  const Kernel kernel = attention_kernel(c.call);
  Arguments good = attention_arguments(c.call);
  Arguments missing = good, unknown = good, twice = good, no_number = good, extra_number = good, number_twice = good;
  missing.tensors.erase(missing.tensors.begin() + 1);
  unknown.tensor("extra", c.call.q);
  twice.tensor("q", c.call.q);
  no_number.numbers.clear();
  extra_number.real("softcap", 1);
  number_twice.real("scale", 1);
  CHECK_THAT(refusal(kernel, missing),
             ContainsSubstring("input tensor 'k' [batch, kv_head, key, head_dim] is missing"));
  CHECK_THAT(refusal(kernel, unknown), ContainsSubstring("there is no tensor 'extra' (known: q, k, v, o)"));
  CHECK_THAT(refusal(kernel, twice), ContainsSubstring("tensor 'q' is given twice"));
  CHECK_THAT(refusal(kernel, no_number), ContainsSubstring("number 'scale' is missing"));
  CHECK_THAT(refusal(kernel, extra_number), ContainsSubstring("there is no number 'softcap' (known: scale)"));
  CHECK_THAT(refusal(kernel, number_twice), ContainsSubstring("number 'scale' is given twice"));
  CHECK(c.outputs_untouched());
}

TEST_CASE("tensors that the kernel was not made for are refused") {
  SmallCall c;
  c.with_top_k(4);
  const Kernel kernel = attention_kernel(c.call);
  const Arguments good = attention_arguments(c.call);
  const auto changed = [&](const char* name, auto&& change) {
    Arguments out = good;
    for (auto& t : out.tensors)
      if (t.name == name) change(t.tensor);
    return out;
  };
  CHECK_THAT(refusal(kernel, changed("q", [](TensorRef& t) { t.dtype = DType::bfloat16; })),
             ContainsSubstring("'q' is bfloat16, but the kernel was made for float32"));
  CHECK_THAT(refusal(kernel, changed("k", [](TensorRef& t) { t.rank = 3; })),
             ContainsSubstring("'k' has shape [2, 2, 5], but its dims are"));
  CHECK_THAT(refusal(kernel, changed("values", [](TensorRef& t) { t.shape[3] = 2; })),
             ContainsSubstring("'values' has slot 2, but the kernel was made for 4"));
  CHECK_THAT(refusal(kernel, changed("v", [](TensorRef& t) { t.shape[2] = 4; })),
             ContainsSubstring("'v' has 4 along key, but 'k' has 5"));
  CHECK_THAT(refusal(kernel, changed("q", [](TensorRef& t) { t.shape[2] = std::int64_t{1} << 40; })),
             ContainsSubstring("at most 2^31-1"));
  CHECK(c.outputs_untouched());
}

TEST_CASE("an integer given as a real number is refused instead of read as 0") {
  SmallCall c;
  c.call.window_left = 2;
  const Kernel kernel = attention_kernel(c.call);
  Arguments arguments = attention_arguments(c.call);
  for (auto& n : arguments.numbers)
    if (n.name == "window_left") n.real = 2.5, n.integer = 0;
  CHECK_THAT(refusal(kernel, arguments), ContainsSubstring("'window_left' is an integer"));
}

TEST_CASE("lengths that are not int32 are refused when the kernel is made") {
  SmallCall c;
  c.with_lens();
  const Algorithm a = attention(attention_options(c.call));
  Problem p = problem_of(a, attention_arguments(c.call));
  p.dtypes["kv_lens"] = DType::int64;
  CHECK_THROWS_WITH(Kernel::get(a, p), ContainsSubstring("'kv_lens' is int64, but lengths are int32"));
}

TEST_CASE("a stream split into parts gives the same for every call of a thread, whatever their order") {
  SmallCall c;
  c.with_lse();
  run_attention(c.call);
  const std::vector<float> o = c.o, lse = c.lse;
  Schedule schedule = attention_kernel(c.call).program().schedule;
  schedule.splits = 3;
  for (int round = 0; round < 3; ++round) {
    SmallCall split;
    split.with_lse();
    split.call.schedule = schedule;
    run_attention(split.call);
    for (std::size_t i = 0; i < o.size(); ++i) CHECK_THAT(split.o[i], WithinAbs(o[i], 1e-5));
    for (std::size_t i = 0; i < lse.size(); ++i) CHECK_THAT(split.lse[i], WithinAbs(lse[i], 1e-5));
    SmallCall shorter;  // leaves other parts in the memory that the next round takes
    shorter.call.schedule = schedule;
    shorter.call.k.shape[2] = shorter.call.v.shape[2] = 1;
    run_attention(shorter.call);
  }
}
