// Kernels for CPUs other than the one at hand: run where this machine can, compiled to an object where it cannot.
#include <algorithm>
#include <iostream>

#include "dsl/error.h"
#include "runtime/host_cpu.h"
#include "runtime/orc_compiler.h"
#include "tests/numeric/call.h"
#include "tests/support/catch_compat.h"
#include "tests/support/self.h"

using namespace attile;
using namespace attile::test;

namespace {

struct Variant {
  const char* name;
  void (*options)(AttentionOptions&);
};
constexpr Variant variants[] = {{"plain", [](AttentionOptions&) {}},
                                {"causal window", [](AttentionOptions& o) { o.causal = o.window = o.lse = true; }},
                                {"soft cap, ALiBi, sink", [](AttentionOptions& o) { o.softcap = o.alibi = o.sink = o.lse = true; }},
                                {"mask, bias", [](AttentionOptions& o) { o.mask = o.bias = true; }},
                                {"packed", [](AttentionOptions& o) { o.lengths = Lengths::packed, o.causal = true; }},
                                {"top-k", [](AttentionOptions& o) { o.top_k = 8, o.top_k_outputs = true; }},
                                {"dropout", [](AttentionOptions& o) { o.dropout = true; }},
                                {"sigmoid", [](AttentionOptions& o) { o.rule = Rule::sigmoid; }}};

Problem problem_for(const Algorithm& a, DType type) {
  Problem p;
  for (const InputDecl& i : a.inputs)
    p.dtypes[i.name] = i.kind == Kind::integer ? DType::int32 : i.kind == Kind::boolean ? DType::boolean : i.name.size() == 1 ? type : DType::float32;
  for (const OutputDecl& o : a.outputs) p.dtypes[o.name] = o.kind == Kind::integer ? DType::int32 : o.name == "o" ? type : DType::float32;
  p.extents = {{"head_dim", 40}, {"value_dim", 24}};
  p.group = 2;
  return p;
}

// Lane forms and instructions that a target has.
std::vector<Schedule> schedules_for(const Algorithm& a, const Problem& p, const Target& t) {
  Schedule rows, positions, parts, ahead, dots;
  rows.panel_vectors = 1, rows.block = 4, rows.tile_rows = t.vector_bytes / 4, rows.tile_keys = 32;
  positions = rows, positions.lanes = Lanes::positions, positions.tile_rows = 4, positions.pack_group = true;
  parts = positions, parts.splits = 3;
  ahead = rows, ahead.pack_ahead = true;
  dots = ahead, dots.bf16_dot = true;
  std::vector<Schedule> out{default_schedule(a, p, t)};
  for (const Schedule& wish : {rows, positions, parts, ahead, dots})
    if (const Schedule s = made_legal(a, p, wish, t); std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
  return out;
}

bool host_runs(const Target& t) {
  const HostCpu host = detect_host_cpu();
  return host.vector_bytes >= t.vector_bytes && (!t.bf16_dot || host.has("avx512bf16"));
}

}  // namespace

TEST_CASE("the text of every target is accepted by the compiler and becomes an object") {
  CHECK(target_names().size() >= 3);
  for (const std::string& name : target_names()) {
    const Target target = target_from_name(name);
    if (target.family != TargetFamily::cpu) continue;
    HostCpu cpu = named_cpu(target.llvm_cpu);
    cpu.features = target.llvm_features;
    std::size_t objects = 0, dots = 0;
    for (const Variant& variant : variants)
      for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
        const Algorithm a = attention(with(variant.options));
        const Problem p = problem_for(a, type);
        for (const Schedule& s : schedules_for(a, p, target)) {
          INFO(name << " " << variant.name << " " << to_string(type) << " " << to_string(s));
          for (const EmittedKernel& kernel : generate(a, p, s, target).kernels) {
            CHECK(OrcCompiler::instance().compile(kernel.text, cpu).size() > 500);
            ++objects;
          }
          dots += s.bf16_dot;
        }
      }
    CHECK((dots > 0) == target.bf16_dot);
    WARN(objects << " kernels of " << name << " compiled" << (host_runs(target) ? "" : "; this machine lacks it, so none of them was run"));
  }
}

// The host's own target is what every other test runs on.
TEST_CASE("kernels for AVX2 agree with the reference on a wider machine") {
  if (in_self_run()) ATTILE_SKIP("it runs in the parent");
  const SelfRun run = run_self("random attention calls*", {{"ATTILE_CPU", "x86-64-v3"}, {"ATTILE_DIFFERENTIAL", "1:300"}}, 280);
  INFO(run.output);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("All tests passed"));
}

TEST_CASE("kernels for AVX-512 agree with the reference on a wider machine") {
  if (in_self_run()) ATTILE_SKIP("it runs in the parent");
  if (!host_runs(target_from_name("x86-64-v4"))) ATTILE_SKIP("this CPU has no AVX-512");
  const SelfRun run = run_self("random attention calls*", {{"ATTILE_CPU", "x86-64-v4"}, {"ATTILE_DIFFERENTIAL", "1:100"}}, 280);
  INFO(run.output);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("All tests passed"));
}

TEST_CASE("reported faults of masks, merges and layouts do not come back with AVX2") {
  if (in_self_run()) ATTILE_SKIP("it runs in the parent");
  for (const char* tests : {"[C01],[C14]", "[C16]", "[C29]", "[C24]", "NaN and infinities*"}) {
    const SelfRun run = run_self(tests, {{"ATTILE_CPU", "x86-64-v3"}}, 280);
    INFO(tests << "\n" << run.output);
    CHECK(run.exit_code == 0);
    CHECK_THAT(run.output, ContainsSubstring("All tests passed"));
  }
}
