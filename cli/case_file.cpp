#include "cli/case_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dsl/error.h"

namespace attile::cli {

namespace {

using Json = nlohmann::json;

// A place in the file, for errors: "case-01.json: more[0].options.window".
class Field {
 public:
  Field(std::string file, std::string path, const Json& json)
      : file_(std::move(file)), path_(std::move(path)), json_(json) {}

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy = {}) const {
    throw Error(ErrorKind::argument, path_.empty() ? file_ : fmt::format("{}: {}", file_, path_), what, remedy);
  }
  bool has(const std::string& name) const { return json_.is_object() && json_.contains(name); }
  Field operator[](const std::string& name) const {
    if (!json_.is_object()) refuse("this must be an object");
    if (!json_.contains(name)) refuse(fmt::format("the field \"{}\" is missing", name));
    return Field(file_, path_.empty() ? name : path_ + "." + name, json_.at(name));
  }
  Field operator[](std::size_t i) const { return Field(file_, fmt::format("{}[{}]", path_, i), json_.at(i)); }
  bool is_number() const { return json_.is_number() || json_.is_string(); }
  std::size_t size() const {
    if (!json_.is_array()) refuse("this must be a list");
    return json_.size();
  }
  std::vector<std::string> names() const {
    if (!json_.is_object()) refuse("this must be an object");
    std::vector<std::string> all;
    for (const auto& item : json_.items()) all.push_back(item.key());
    return all;
  }
  std::string text() const {
    if (!json_.is_string()) refuse("this must be a text");
    return json_.get<std::string>();
  }
  bool flag() const {
    if (json_.is_boolean()) return json_.get<bool>();
    if (json_.is_number() && (json_ == 0 || json_ == 1)) return json_ == 1;
    refuse("this must be true or false");
  }
  double number() const {
    if (json_.is_number()) return json_.get<double>();
    if (json_.is_boolean()) return json_.get<bool>() ? 1 : 0;
    if (json_ == "-inf") return -std::numeric_limits<double>::infinity();
    if (json_ == "inf") return std::numeric_limits<double>::infinity();
    if (json_ == "nan") return std::numeric_limits<double>::quiet_NaN();
    refuse("this must be a number, \"-inf\", \"inf\" or \"nan\"");
  }
  double integer() const {
    const double value = number();
    if (value != std::floor(value)) refuse("this must be an integer");
    return value;
  }
  CaseTensor tensor(std::size_t rank) const {
    CaseTensor t;
    t.shape.assign(rank, unknown);
    fill(t, 0);
    std::replace(t.shape.begin(), t.shape.end(), unknown, std::int64_t{0});
    return t;
  }

 private:
  static constexpr std::int64_t unknown = -1;

  // The first list met at a depth gives its extent; below an empty list the extents stay unknown.
  void fill(CaseTensor& t, std::size_t depth) const {
    if (depth == t.shape.size()) {
      t.values.push_back(number());
      return;
    }
    const auto extent = static_cast<std::int64_t>(size());
    if (t.shape[depth] == unknown) t.shape[depth] = extent;
    if (t.shape[depth] != extent)
      refuse(fmt::format("this list has {} entries, but its neighbours have {}", extent, t.shape[depth]));
    for (std::size_t i = 0; i < json_.size(); ++i) (*this)[i].fill(t, depth + 1);
  }

  std::string file_, path_;
  const Json& json_;
};

void read_scalars(const Field& options, CaseRun& run) {
  run.scalars["scale"] = options["scale"].number();
  if (options.has("softcap") && options["softcap"].number() != 0) {
    run.options.softcap = true;
    run.scalars["softcap"] = options["softcap"].number();
    if (!(run.scalars["softcap"] > 0)) options["softcap"].refuse("the cap must be positive", "0 turns it off");
  }
  if (options.has("window")) {
    const Field window = options["window"];
    if (window.size() != 2) window.refuse("a window is [left, right]");
    run.options.window = true;
    run.scalars["window_left"] = window[0].integer();
    run.scalars["window_right"] = window[1].integer();
  }
  if (options.has("dropout") && options["dropout"].number() != 0) {
    const double p = options["dropout"].number();
    if (!(p > 0 && p < 1)) options["dropout"].refuse("the share of dropped weights must lie in [0, 1)");
    run.options.dropout = true;
    run.scalars["dropout_threshold"] = std::nearbyint(p * 4294967296.0);
    run.scalars["dropout_scale"] = 1 / (1 - p);
    run.scalars["seed"] = options.has("seed") ? options["seed"].integer() : 0;
    run.scalars["offset"] = options.has("offset") ? options["offset"].integer() : 0;
  }
}

void read_flags(const Field& options, AttentionOptions& out) {
  if (options.has("causal")) out.causal = options["causal"].flag();
  if (options.has("rule")) out.rule = rule_from_string(options["rule"].text());
  if (options.has("top_k")) out.top_k = static_cast<int>(std::clamp(options["top_k"].integer(), -1.0, 1e6));
  if (options.has("top_k_renormalise")) out.top_k_renormalise = options["top_k_renormalise"].flag();
}

// Per head, or per batch and head: as [batch or 1, head].
CaseTensor read_slopes(const Field& slopes) {
  const bool by_batch = slopes.size() > 0 && !slopes[0].is_number();
  CaseTensor t = slopes.tensor(by_batch ? 2 : 1);
  if (!by_batch) t.shape.insert(t.shape.begin(), 1);
  return t;
}

void read_tensors(const Field& options, CaseRun& run) {
  AttentionOptions& o = run.options;
  const auto take = [&](const char* name, std::size_t rank, bool& flag) {
    flag = options.has(name);
    if (flag) run.tensors[name] = options[name].tensor(rank);
  };
  take("bias", 4, o.bias);
  take("mask", 4, o.mask);
  take("sink", 1, o.sink);
  take("prefix_len", 1, o.prefix);
  take("doc_ids", 2, o.documents);
  o.alibi = options.has("alibi_slopes");
  if (o.alibi) run.tensors["alibi_slopes"] = read_slopes(options["alibi_slopes"]);
  bool used = false, packed_q = false, packed_k = false;
  take("kv_lens", 1, used);
  take("cu_seqlens_q", 1, packed_q);
  take("cu_seqlens_k", 1, packed_k);
  if (packed_q != packed_k) options.refuse("cu_seqlens_q and cu_seqlens_k go together");
  if (used && packed_q) options.refuse("kv_lens and cu_seqlens exclude each other");
  o.lengths = used ? Lengths::used : packed_q ? Lengths::packed : Lengths::dense;
}

constexpr const char* known_options[] = {"scale",
                                         "causal",
                                         "window",
                                         "softcap",
                                         "alibi_slopes",
                                         "sink",
                                         "bias",
                                         "mask",
                                         "kv_lens",
                                         "cu_seqlens_q",
                                         "cu_seqlens_k",
                                         "top_k",
                                         "top_k_renormalise",
                                         "prefix_len",
                                         "doc_ids",
                                         "rule",
                                         "dropout",
                                         "seed",
                                         "offset",
                                         "block_k",
                                         "d_o"};

CaseRun read_run(const Field& run_field) {
  CaseRun run;
  if (run_field.has("about")) run.about = run_field["about"].text();
  const Field options = run_field["options"], expected = run_field["expected"];
  for (const std::string& name : options.names())
    if (std::find(std::begin(known_options), std::end(known_options), name) == std::end(known_options))
      options[name].refuse("this option is not known");
  read_flags(options, run.options);
  read_scalars(options, run);
  read_tensors(options, run);
  for (const std::string& name : expected.names()) {
    if (name == "o" || name == "lse")
      run.expected[name] = expected[name].tensor(name == "o" ? 4 : 3);
    else if (name != "steps")
      run.not_run.push_back(name);
  }
  run.options.lse = run.expected.count("lse") != 0;
  return run;
}

CaseFile read_json(const Json& json, const std::string& name) {
  const Field root(name, "", json);
  CaseFile file;
  file.path = name;
  file.id = root["id"].text();
  if (root.has("about")) file.about = root["about"].text();
  file.q = root["q"].tensor(4);
  file.k = root["k"].tensor(4);
  file.v = root["v"].tensor(4);
  // A list without rows cannot say how long they are.
  if (file.q.values.empty()) file.q.shape[3] = file.k.shape[3];
  if (file.k.values.empty()) file.k.shape[3] = file.q.shape[3];
  file.runs.push_back(read_run(root));
  if (root.has("more"))
    for (std::size_t i = 0; i < root["more"].size(); ++i) file.runs.push_back(read_run(root["more"][i]));
  return file;
}

DType type_of(const std::string& name) {
  if (name == "mask") return DType::boolean;
  const bool integers = name == "kv_lens" || name == "cu_seqlens_q" || name == "cu_seqlens_k" || name == "prefix_len" ||
                        name == "doc_ids";
  return integers ? DType::int32 : DType::float32;
}

std::string place_text(const std::vector<std::int64_t>& shape, std::size_t flat) {
  std::string text;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const auto extent = static_cast<std::size_t>(shape[d]);
    text = fmt::format("[{}]", flat % extent) + text;
    flat /= extent;
  }
  return text;
}

}  // namespace

CaseFile parse_case_file(const std::string& text, const std::string& name) {
  try {
    return read_json(Json::parse(text), name);
  } catch (const Json::exception& e) {
    throw Error(ErrorKind::argument, name, fmt::format("this is not a JSON case: {}", e.what()));
  }
}

CaseFile read_case_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorKind::environment, path, "the file cannot be opened", "is the path right?");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_case_file(text.str(), path);
}

CaseArguments::CaseArguments(const CaseFile& file, const CaseRun& run, DType type) {
  add("q", file.q, type);
  add("k", file.k, type);
  add("v", file.v, type);
  for (const auto& [name, tensor] : run.tensors) add(name, tensor, type_of(name));
  inputs_.scalars = run.scalars;
  inputs_.heads = file.q.shape[1];
  inputs_.batch = file.q.shape[0];
  if (run.options.lengths == Lengths::packed)
    inputs_.batch = std::max<std::int64_t>(0, run.tensors.at("cu_seqlens_q").shape[0] - 1);
}

void CaseArguments::add(const std::string& name, const CaseTensor& tensor, DType type) {
  std::vector<char>& bytes = bytes_[name];
  const std::size_t size = size_of(type);
  bytes.resize(std::max<std::size_t>(1, tensor.values.size()) * size);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) write_element(type, bytes.data() + i * size, tensor.values[i]);
  HostTensor view{type, bytes.data(), tensor.shape, std::vector<std::int64_t>(tensor.shape.size())};
  std::int64_t stride = 1;
  const bool captured = name != "q" && name != "k" && name != "v";
  for (std::size_t d = tensor.shape.size(); d-- > 0; stride *= tensor.shape[d])
    view.strides[d] = captured && tensor.shape[d] == 1 && d + 1 < tensor.shape.size() ? 0 : stride;
  inputs_.tensors[name] = std::move(view);
}

std::string case_mismatch(const std::string& name, const CaseTensor& expected, const std::vector<double>& actual,
                          double absolute, double relative) {
  if (actual.size() != expected.values.size())
    return fmt::format("{} has {} numbers where {} are expected", name, actual.size(), expected.values.size());
  double worst = 0;
  std::size_t at = actual.size();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double want = expected.values[i], got = actual[i];
    if (want == got || (std::isnan(want) && std::isnan(got))) continue;
    const double difference = std::fabs(want - got);
    const double excess = std::isfinite(difference) ? difference / (absolute + relative * std::fabs(want))
                                                    : std::numeric_limits<double>::infinity();
    if (excess <= 1 || excess < worst) continue;
    worst = excess;
    at = i;
  }
  if (at == actual.size()) return {};
  return fmt::format("{}{} is {:.9g}, but {:.9g} is expected", name, place_text(expected.shape, at), actual[at],
                     expected.values[at]);
}

}  // namespace attile::cli
