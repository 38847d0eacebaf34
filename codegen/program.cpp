#include "codegen/program.h"

#include <fmt/format.h>

#include "codegen/emit_cuda.h"
#include "codegen/emit_llvm.h"
#include "codegen/lower_program.h"
#include "dsl/error.h"

namespace attile {
inline namespace v1 {
namespace {

void refuse_illegal(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) {
  const std::vector<std::string> reasons = legality(a, p, s, t);
  if (reasons.empty()) return;
  std::string list;
  for (const std::string& reason : reasons) list += "\n  " + reason;
  throw Error(ErrorKind::unsupported, a.name, fmt::format("the schedule \"{}\" is not legal here:{}", to_string(s), list));
}

}  // namespace

Program generate(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) {
  check_problem(a, p);
  refuse_illegal(a, p, s, t);
  Program program{a, p, s, t, {}, {}};
  for (const ir::LoweredKernel& k : ir::lower_program(a, p, s, t))
    program.kernels.push_back(t.family == TargetFamily::cuda ? emit_cuda(k) : k.role == ir::Role::packing ? emit_llvm_packing(k.kernel, k.context(), program.packed)
                                                          : emit_llvm(k.kernel, k.context(), k.role == ir::Role::partial));
  return program;
}

}  // namespace v1
}  // namespace attile
