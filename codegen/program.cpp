#include "codegen/program.h"

#include <fmt/format.h>

#include "codegen/emit_llvm.h"
#include "codegen/packing.h"
#include "dsl/derive.h"
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

EmittedKernel emit(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t, bool split) {
  const ir::Context context{a, p, s, t};
  return emit_llvm(ir::lower(context), context, split);
}

// What a merge is generated for: the parts are float32, each row has tensors of its own, so rows come one by one.
Problem merge_problem(const Algorithm& merge, const Problem& p) {
  Problem out = p;
  for (const InputDecl& input : merge.inputs)
    if (input.name.starts_with("part.")) out.dtypes[input.name] = DType::float32;
  return out;
}
Schedule merge_schedule() {
  Schedule s;
  s.lanes = Lanes::positions;
  s.tile_rows = 1;
  s.tile_keys = 64;
  return s;
}

}  // namespace

Program generate(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t) {
  check_problem(a, p);
  refuse_illegal(a, p, s, t);
  Program program{a, p, s, t, {}, {}};
  if (s.splits == 1) {
    const ir::Context context{a, p, s, t};
    const ir::Kernel main = ir::lower(context);
    if (s.pack_ahead) program.kernels.push_back(emit_llvm_packing(ir::packing_kernel(main), context, program.packed));
    program.kernels.push_back(emit_llvm(main, context, false));
    return program;
  }
  const SplitAlgorithm parts = split(a);
  Problem partial = p;
  for (const OutputDecl& o : parts.partial.outputs) partial.dtypes[o.name] = DType::float32;
  program.kernels.push_back(emit(parts.partial, partial, s, t, true));
  program.kernels.push_back(emit(parts.merge, merge_problem(parts.merge, p), merge_schedule(), t, false));
  return program;
}

}  // namespace v1
}  // namespace attile
