// Kept texts: for each thing that kernels can do, the smallest algorithm that shows it, its IR after the last pass and for
// some the LLVM or CUDA text. ATTILE_UPDATE_GOLDEN=1 writes the files anew; look at what git says of them before committing.
#include "tests/support/golden.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <locale>

#include "codegen/program.h"
#include "tests/schedules/problems.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

struct Golden {
  const char* name;
  const char* shows;
  void (*options)(AttentionOptions&);
  Schedule schedule;
  DType type = DType::float32;
  const char* target = "x86-64-v4-bf16";
  std::int64_t head_dim = 16;
  bool text = false;               // LLVM or CUDA
  const char* beside = nullptr;    // a second target, with
  Schedule schedule_beside = {};
};

Schedule with_schedule(const std::function<void(Schedule&)>& set) {
  Schedule s;
  s.tile_rows = 16, s.tile_keys = 32, s.panel_vectors = 1, s.block = 4;
  set(s);
  return s;
}
Schedule fragments(int rows, int keys, const std::function<void(Schedule&)>& set) {
  Schedule s;
  s.lanes = Lanes::fragments, s.tile_rows = rows, s.tile_keys = keys;
  set(s);
  return s;
}

std::vector<Golden> cpu_goldens() {
  const Schedule small = with_schedule([](Schedule&) {});
  return {
      {"plain_softmax", "the running update of a row's maximum, sum and output", [](AttentionOptions&) {},
       with_schedule([](Schedule& s) { s.tile_rows = 8, s.tile_keys = 16, s.block = 2; }), DType::float32, "x86-64-v3", 4, true},
      {"causal", "tiles that a mask hides, touches and leaves alone", [](AttentionOptions& o) { o.causal = true; }, small},
      {"window", "a mask whose size is a number of the call", [](AttentionOptions& o) { o.window = true; }, small},
      {"softcap", "a modifier of the score", [](AttentionOptions& o) { o.softcap = true; }, small},
      {"sink", "a logit that joins the sum at the end", [](AttentionOptions& o) { o.sink = o.lse = true; }, small},
      {"documents", "a mask that depends on data", [](AttentionOptions& o) { o.documents = true; }, small},
      {"top_k", "a selection and the gather of its rows", [](AttentionOptions& o) { o.top_k = 4, o.top_k_outputs = true; }, small},
      {"split_and_merge", "the stream in parts and their merge", [](AttentionOptions& o) { o.lse = true; }, with_schedule([](Schedule& s) { s.splits = 4; })},
      {"bf16_pairs", "operands in pairs for the dot instruction", [](AttentionOptions&) {}, with_schedule([](Schedule& s) { s.bf16_dot = true; }), DType::bfloat16},
      {"packed_ahead", "keys and values packed by a kernel of their own", [](AttentionOptions&) {}, with_schedule([](Schedule& s) { s.pack_ahead = true; })},
      {"decode_positions", "few rows: positions along the lanes, a group of heads in a task", [](AttentionOptions&) {},
       with_schedule([](Schedule& s) { s.lanes = Lanes::positions, s.tile_rows = 2, s.pack_group = true; })},
  };
}

std::vector<Golden> cuda_goldens() {
  const auto plain = [](AttentionOptions&) {};
  return {
      {"cuda_softmax", "copies ahead in a ring, matrix instructions, a reference that lags behind", plain,
       fragments(64, 16, [](Schedule& s) { s.lazy_rescale = s.late_copies = true; }), DType::bfloat16, "sm_90", 16, true},
      {"cuda_decode", "few rows: warps share the keys of a tile, a group of heads in a task, parts and their merge", plain,
       fragments(16, 32, [](Schedule& s) { s.warps = 2, s.partition = Partition::positions, s.pack_group = true, s.splits = 2; }),
       DType::bfloat16, "sm_90", 16, true},
      {"cuda_columns", "a wide head: two warps have the same rows, each a share of the keys and of V's columns",
       [](AttentionOptions& o) { o.causal = true; },
       fragments(32, 32, [](Schedule& s) { s.column_warps = 2, s.lazy_rescale = true; }), DType::bfloat16, "sm_90", 32, true},
      {"cuda_lanes", "what no matrix instruction does: a warp for each row", [](AttentionOptions& o) { o.top_k = 4; },
       with_schedule([](Schedule& s) { s.lanes = Lanes::positions, s.tile_rows = s.warps; }), DType::float32, "sm_90", 16, true},
      {"side_by_side", "one algorithm on a CPU and on a GPU", [](AttentionOptions& o) { o.causal = true; },
       with_schedule([](Schedule& s) { s.tile_rows = 8, s.tile_keys = 16, s.block = 2; }), DType::float32, "x86-64-v3", 8, true,
       "sm_90", fragments(64, 16, [](Schedule&) {})},
  };
}

std::vector<Golden> goldens() {
  std::vector<Golden> all = cpu_goldens();
  for (Golden& g : cuda_goldens()) all.push_back(std::move(g));
  return all;
}

// What is generated for one of its targets.
std::string text_on(const Golden& g, const Algorithm& a, const Problem& p, const Schedule& schedule, const char* target_name) {
  const Target target = target_from_name(target_name);
  std::string text = "schedule  " + to_string(schedule) + "\ntarget    " + to_string(target) + "\n";
  for (const EmittedKernel& k : generate(a, p, schedule, target).kernels) {
    text += "\n==== IR of " + k.name + "\n\n" + k.ir;
    if (g.text) text += std::string("\n==== ") + (k.threads > 0 ? "CUDA" : "LLVM") + " text of " + k.name + "\n\n" + k.text;
  }
  return text;
}

std::string text_of(const Golden& g) {
  const Algorithm a = attention_with(g.options);
  Problem p = problem_for(a, g.type, g.head_dim, g.head_dim);
  for (const OutputDecl& o : a.outputs)
    if (o.name != "o" && o.kind == Kind::real) p.dtypes[o.name] = DType::float32;
  if (g.schedule.pack_group) p.group = 2;
  std::string text = std::string(g.shows) + "\n\n" + to_string(a) + "\nproblem   " + to_string(p) + "\n" + text_on(g, a, p, g.schedule, g.target);
  if (g.beside) text.append("\n").append(text_on(g, a, p, g.schedule_beside, g.beside));
  return text;
}

// Writes 1234.5 as 1.234,5.
class Grouped : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

class GlobalLocale {
 public:
  explicit GlobalLocale(const std::locale& locale) : before_(std::locale::global(locale)) {}
  ~GlobalLocale() { std::locale::global(before_); }

 private:
  std::locale before_;
};

}  // namespace

TEST_CASE("generated texts are those that were kept") {
  for (const Golden& g : goldens()) {
    INFO(g.name);
    CHECK(golden_mismatch(g.name, text_of(g)) == "");
  }
}

TEST_CASE("every kept text belongs to a test") {
  std::vector<std::string> names;
  for (const Golden& g : goldens()) names.emplace_back(g.name);
  std::sort(names.begin(), names.end());
  CHECK(golden_names() == names);
}

TEST_CASE("a text that is missing or differs is told with the line") {
  if (std::getenv("ATTILE_UPDATE_GOLDEN") != nullptr) ATTILE_SKIP("the files are being written");
  CHECK_THAT(golden_mismatch("no_such_text", "x"), ContainsSubstring("no_such_text.txt is missing"));
  std::string text = text_of(goldens().front());
  text.insert(text.find('\n') + 1, "one more line\n");
  CHECK_THAT(golden_mismatch("plain_softmax", text), ContainsSubstring("line 2 is\n  one more line\nand was"));
}

TEST_CASE("generating twice, and under another locale, gives the same text") {
  for (const Golden& g : goldens()) {
    INFO(g.name);
    const std::string first = text_of(g);
    CHECK(text_of(g) == first);
    const GlobalLocale grouped(std::locale(std::locale::classic(), new Grouped));
    CHECK(std::use_facet<std::numpunct<char>>(std::locale()).decimal_point() == ',');
    CHECK(text_of(g) == first);
    CHECK(first.find(ATTILE_SOURCE_DIR) == std::string::npos);
  }
}
