#include "schedules/footprint.h"
#include "codegen/program.h"
#include "schedules/registry.h"
#include "tests/schedules/problems.h"
#include "tests/support/catch_compat.h"

namespace attile::test {

TEST_CASE("a worker needs no more memory than legality counted") {
  constexpr std::int64_t slack = 16 << 10;  // row values, tables of row addresses
  const Algorithm algorithms[] = {attention(AttentionOptions{}),
                                  attention_with([](auto& o) { o.causal = o.lse = o.dropout = true; }),
                                  attention_with([](auto& o) { o.top_k = 8, o.causal = true; })};
  for (const Algorithm& a : algorithms)
    for (const std::string& name : target_names())
      for (const std::int64_t d : {3, 128}) {
        const Target t = target_from_name(name);
        const Problem p = problem_for(a, DType::bfloat16, d, d);
        const std::vector<Schedule> all = legal_schedules(a, p, t);
        for (std::size_t i = 0; i < all.size(); i += 37) {
          CAPTURE(name, d, to_string(all[i]));
          const std::int64_t laid_out = generate(a, p, all[i], t).kernels.front().scratch_bytes;
          CHECK(laid_out <= footprint(a, p, all[i], t).total() + slack);
        }
      }
}

}  // namespace attile::test
