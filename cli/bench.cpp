// attile bench: a table over shapes. Rounds run every row once, so that drift of the machine meets all alike, and
// measure the machine's limits in between.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/bench_table.h"
#include "cli/command.h"
#include "dsl/error.h"

namespace attile::cli {
namespace {

struct BenchFlags {
  AttentionFlags variant;  // what all rows share
  MachineFlags machine;
  std::string batch = "1", heads = "8", kv_heads, seqlen_q = "1024", seqlen_k, head_dim = "64", value_dim,
              dtype = "float32", causal = "false", threads = "0";
  std::string json, csv;
  bool tuned = false;
  int repeat = 9;
};

std::vector<std::int64_t> sizes_of(const std::string& text, const char* flag) {
  const std::vector<std::int64_t> sizes = parse_integers(text, flag);
  for (const std::int64_t size : sizes)
    if (size < 0) throw Error(ErrorKind::argument, flag, fmt::format("{} is negative", size));
  if (sizes.empty()) throw Error(ErrorKind::argument, flag, "the list is empty");
  return sizes;
}

std::vector<std::string> words_between_commas(std::string text) {
  for (char& letter : text)
    if (letter == ',') letter = ' ';
  return words_of(text);
}

// The product of all lists, the last one varying fastest.
class Product {
 public:
  Product(const AttentionFlags& base, Device device) : cases_{{base, 0, device}} {}

  template <typename T, typename Set>
  void by(const std::vector<T>& values, const Set& set) {
    std::vector<BenchCase> next;
    for (const BenchCase& c : cases_)
      for (const T& value : values) {
        next.push_back(c);
        set(next.back(), value);
      }
    cases_ = std::move(next);
  }
  void by_size(const std::string& text, const char* flag, std::optional<std::int64_t> AttentionFlags::*size) {
    if (!text.empty()) by(sizes_of(text, flag), [&](BenchCase& c, std::int64_t value) { c.flags.*size = value; });
  }
  std::vector<BenchCase> cases() && { return std::move(cases_); }

 private:
  std::vector<BenchCase> cases_;
};

std::vector<BenchCase> cases_of(const BenchFlags& f, Device device) {
  Product product(f.variant, device);
  product.by_size(f.batch, "--batch", &AttentionFlags::batch);
  product.by_size(f.heads, "--heads", &AttentionFlags::heads);
  product.by_size(f.kv_heads, "--kv-heads", &AttentionFlags::kv_heads);
  product.by_size(f.head_dim, "--head-dim", &AttentionFlags::head_dim);
  product.by_size(f.value_dim, "--value-dim", &AttentionFlags::value_dim);
  product.by_size(f.seqlen_q, "--seqlen-q", &AttentionFlags::seqlen_q);
  product.by_size(f.seqlen_k, "--seqlen-k", &AttentionFlags::seqlen_k);
  product.by(words_between_commas(f.causal),
             [](BenchCase& c, const std::string& value) { c.flags.causal = parse_boolean(value, "--causal"); });
  product.by(words_between_commas(f.dtype), [](BenchCase& c, const std::string& value) {
    c.flags.dtype = to_string(parse_float_dtype(value, "--dtype"));
  });
  if (device.kind == Device::Kind::cpu)
    product.by(sizes_of(f.threads, "--threads"), [](BenchCase& c, std::int64_t value) {
      c.threads = static_cast<int>(std::min<std::int64_t>(value, 1 << 20));
    });
  if (f.tuned)  // innermost, so that pairs stand together
    product.by(std::vector<Tuning>{Tuning::never, Tuning::cached}, [](BenchCase& c, Tuning tuning) { c.tuning = tuning; });
  return std::move(product).cases();
}

int run(const BenchFlags& f) {
  const Device device = use_machine(f.machine);
  std::optional<OutputFile> json, csv;
  if (!f.json.empty() && f.json != "-") json.emplace(f.json);
  if (!f.csv.empty() && f.csv != "-") csv.emplace(f.csv);
  const std::vector<BenchRow> rows =
      run_bench(cases_of(f, device), chosen_schedule(f.machine, target_of(device)), f.repeat);
  const std::string json_text = f.json.empty() ? "" : bench_json(rows), csv_text = f.csv.empty() ? "" : bench_csv(rows);
  for (auto* output : {&json, &csv})
    if (*output) {
      (*output)->write(output == &json ? json_text : csv_text);
      (*output)->finish();
    }
  if (f.json == "-")
    fmt::print("{}", json_text);
  else
    fmt::print("{}", f.csv == "-" ? csv_text : bench_table(rows));
  return good;
}

}  // namespace

Action add_bench(CLI::App& verb) {
  auto flags = std::make_shared<BenchFlags>();
  BenchFlags& f = *flags;
  verb.footer("Sizes, dtype, causal and threads take lists with commas; the table is their product.");
  const auto list = [&](const char* flag, std::string& value, const char* doc) {
    verb.add_option(flag, value, doc)->type_name("LIST")->group("Lists");
  };
  list("--batch", f.batch, "Sequences (1)");
  list("--heads", f.heads, "Query heads (8)");
  list("--kv-heads", f.kv_heads, "Key and value heads (as heads)");
  list("--seqlen-q", f.seqlen_q, "Queries of a sequence (1024)");
  list("--seqlen-k", f.seqlen_k, "Keys of a sequence (as seqlen-q)");
  list("--head-dim", f.head_dim, "Numbers of a query and a key (64)");
  list("--value-dim", f.value_dim, "Numbers of a value (as head-dim)");
  list("--threads", f.threads, "Threads of a call on the CPU; 0 is every core (0)");
  verb.add_option("--causal", f.causal, "Without a value: on; a list such as false,true")
      ->type_name("LIST")
      ->group("Lists")
      ->expected(0, 1)
      ->default_str("true");
  add_variant_flags(verb, f.variant, false);
  verb.remove_option(verb.get_option("--dtype"));
  list("--dtype", f.dtype, "float32, bfloat16, float16 (float32)");
  verb.add_option("--repeat", f.repeat, "Rounds (9)")->check(CLI::Range(1, 100000).description(""));
  verb.add_flag("--tuned", f.tuned, "Every shape twice, in turn: with the shipped schedule and with what tuning found");
  verb.add_option("--json", f.json, "The table as JSON; - is standard output")->type_name("FILE");
  verb.add_option("--csv", f.csv, "The table as CSV; - is standard output")->type_name("FILE");
  add_device_flag(verb, f.machine);
  add_schedule_flag(verb, f.machine);
  return [flags] { return run(*flags); };
}

}  // namespace attile::cli
