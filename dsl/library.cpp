#include "dsl/library.h"

#include <fmt/format.h>

#include <array>

#include "dsl/error.h"

namespace attile {
inline namespace v1 {

namespace {

using Options = AttentionOptions;

bool softmax_like(const Options& o) { return o.rule == Rule::softmax || o.rule == Rule::softmax_plus_one; }
bool packed(const Options& o) { return o.lengths == Lengths::packed; }

struct Refusal {
  bool (*holds)(const Options&);
  std::string_view what, why;
};

// Every combination that is refused. docs/variants.md shows this table; a test compares the two.
constexpr std::array<Refusal, 12> refusals{{
    {[](const Options& o) { return o.lse && !softmax_like(o); }, "lse with rule sigmoid or linear",
     "these rules have no normaliser, so there is no log-sum-exp"},
    {[](const Options& o) { return o.sink && !softmax_like(o); }, "sink with rule sigmoid or linear",
     "a sink is a term of the normaliser, which these rules do not have"},
    {[](const Options& o) { return o.sink && o.rule == Rule::softmax_plus_one; }, "sink with rule softmax_plus_one",
     "softmax_plus_one is softmax with a sink of 0; give one of the two"},
    {[](const Options& o) { return o.top_k != 0 && !softmax_like(o); }, "top_k with rule sigmoid or linear",
     "a selection of weights is defined for softmax only"},
    {[](const Options& o) { return o.top_k != 0 && o.dropout; }, "top_k with dropout",
     "the dropout pattern belongs to key positions of the stream, and the selected keys are gathered after it"},
    {[](const Options& o) { return o.top_k_outputs && o.top_k == 0; }, "top_k_outputs without top_k",
     "there is no selection to output"},
    {[](const Options& o) { return o.prefix && !o.causal; }, "prefix without causal",
     "without causal every key is visible already"},
    {[](const Options& o) { return o.bias && packed(o); }, "bias with packed lengths",
     "sequences of different lengths have no common rectangle; write the bias as a score_mod"},
    {[](const Options& o) { return o.mask && packed(o); }, "mask with packed lengths",
     "sequences of different lengths have no common rectangle; write the mask as a mask_mod"},
    {[](const Options& o) { return o.documents && packed(o); }, "documents with packed lengths",
     "packed sequences are separate already; give cu_seqlens one entry per document"},
    {[](const Options& o) { return o.top_k < 0 || o.top_k > 128; }, "top_k outside 1..128",
     "the selection is kept in registers; 0 turns it off"},
    {[](const Options& o) { return !o.top_k_renormalise && o.top_k == 0; }, "top_k_renormalise = false without top_k",
     "there is no selection to renormalise"},
}};

void check_options(const Options& options) {
  for (const Refusal& r : refusals)
    if (r.holds(options))
      throw Error(ErrorKind::argument, "attention", fmt::format("{} is refused", r.what), std::string(r.why));
}

struct Inputs {
  Tensor q = input("q", {batch, head, query, head_dim});
  Tensor k = input("k", {batch, kv_head, key, head_dim});
  Tensor v = input("v", {batch, kv_head, key, value_dim});
};

// score = scale·q.k, then soft cap, ALiBi, bias, and the user's score_mod.
Expr score(const Options& options, const Inputs& in) {
  Expr s = dot(in.q, in.k) * scalar("scale");
  if (options.softcap) s = scalar("softcap") * tanh(s / scalar("softcap"));
  if (options.alibi) s = s - input("alibi_slopes", {batch, head}) * abs(query_position() - key);
  if (options.bias) s = s + input("bias", {batch, head, query, key});
  if (options.score_mod) s = options.score_mod(s);
  return s;
}

// A negative size is no limit on that side.
void hide_outside_window(Stream& t) {
  const Expr left = scalar("window_left", Kind::integer), right = scalar("window_right", Kind::integer);
  t.visible(left < 0 || query_position() - key <= left);
  t.visible(right < 0 || key - query_position() <= right);
}

// Each mask removes keys; they are and-ed.
void hide_keys(const Options& options, Stream& t) {
  if (options.causal && options.prefix)
    t.visible(key <= query_position() || key < input("prefix_len", {batch}, Kind::integer));
  else if (options.causal)
    t.visible(key <= query_position());
  if (options.window) hide_outside_window(t);
  if (options.documents) {
    const Tensor ids = input("doc_ids", {batch, key}, Kind::integer, -1);
    t.visible(ids(batch, key) == ids(batch, query_position()));
  }
  if (options.mask) t.visible(input("mask", {batch, head, query, key}, Kind::boolean));
  if (options.mask_mod) t.visible(options.mask_mod());
}

// 1 or 0 for a weight that is kept or dropped; scaled once at the end.
Expr kept(const Options& options, const Expr& weight) {
  if (!options.dropout) return weight;
  const Expr word = random_word(scalar("seed", Kind::integer), scalar("offset", Kind::integer));
  return weight * select(word >= scalar("dropout_threshold", Kind::integer), 1.0, 0.0);
}
Expr scaled(const Options& options, const Expr& o) { return options.dropout ? o * scalar("dropout_scale") : o; }

// The logit that joins the sum at the end, if any.
Expr sink_of(const Options& options) {
  if (options.rule == Rule::softmax_plus_one) return constant(0);
  return options.sink ? Expr(input("sink", {head})) : Expr();
}

Expr finite_or_zero(const Expr& reference) { return select(reference == -infinity(), 0.0, reference); }

void output_selection(const Options& options, Finish& f, const Selection& chosen) {
  if (!options.top_k_outputs) return;
  f.output("values", chosen.values);
  f.output("indices", chosen.indices);
}

// Σ over the selected keys of exp(score − reference)·v.
struct Gathered {
  Expr weights, o;
};
Gathered gather(const Selection& chosen, const Inputs& in, const Expr& reference) {
  const Expr weights =
      select(Expr(chosen.values) == -infinity(), 0.0, exp(Expr(chosen.values) - finite_or_zero(reference)));
  return {weights, dot(weights, in.v(batch, kv_head, chosen.indices, value_dim), slot)};
}

void softmax_body(const Options& options, const Inputs& in, Stream& t) {
  const Expr s = score(options, in);
  const State m = t.running_max("m", s);
  const Expr p = exp(s - m);
  const State l = t.sum("l", p);
  const State o = t.sum("o", dot(kept(options, p), in.v));
  t.rescale({l, o}, [](const Expr& from, const Expr& to) { return exp(from - to); });
  t.finish([&](Finish& f) {
    Expr top = m, sum = l, out = o;
    if (const Expr sink = sink_of(options); !sink.empty()) {
      top = max(m, sink);
      sum = f.rebased(l, top) + exp(sink - finite_or_zero(top));
      out = f.rebased(o, top);
    }
    f.output("o", scaled(options, normalise(out, sum)));
    if (options.lse) f.output("lse", top + log(sum));
  });
}

// Without renormalising, l is the sum over the whole row; with it, over the selected keys only.
void top_k_body(const Options& options, const Inputs& in, Stream& t) {
  const Expr s = score(options, in);
  const State m = t.running_max("m", s);
  const Selection chosen = t.top_k("top", s, options.top_k);
  State row_sum("l", {batch, head, query});
  if (!options.top_k_renormalise) {
    row_sum = t.sum("l", exp(s - m));
    t.rescale({row_sum}, [](const Expr& from, const Expr& to) { return exp(from - to); });
  }
  t.finish([&](Finish& f) {
    const Expr sink = sink_of(options);
    const Expr top = sink.empty() ? Expr(m) : max(m, sink);
    const Gathered gathered = gather(chosen, in, top);
    Expr sum = options.top_k_renormalise ? reduce_sum(gathered.weights, slot)
               : sink.empty()            ? Expr(row_sum)
                                         : f.rebased(row_sum, top);
    if (!sink.empty()) sum = sum + exp(sink - finite_or_zero(top));
    f.output("o", normalise(gathered.o, sum));
    if (options.lse) f.output("lse", top + log(sum));
    output_selection(options, f, chosen);
  });
}

void unnormalised_body(const Options& options, const Inputs& in, Stream& t) {
  const Expr s = score(options, in);
  const Expr p = options.rule == Rule::sigmoid ? sigmoid(s) : s;
  const State o = t.sum("o", dot(kept(options, p), in.v));
  t.finish([&](Finish& f) { f.output("o", scaled(options, o)); });
}

struct RuleName {
  Rule rule;
  std::string_view name;
};
constexpr std::array<RuleName, 4> rule_names{{{Rule::softmax, "softmax"},
                                              {Rule::softmax_plus_one, "softmax_plus_one"},
                                              {Rule::sigmoid, "sigmoid"},
                                              {Rule::linear, "linear"}}};

}  // namespace

std::string_view to_string(Rule rule) { return rule_names.at(static_cast<std::size_t>(rule)).name; }

Rule rule_from_string(std::string_view name) {
  std::string known;
  for (const RuleName& r : rule_names) {
    if (r.name == name) return r.rule;
    known += (known.empty() ? "" : ", ") + std::string(r.name);
  }
  throw Error(ErrorKind::argument, "rule", fmt::format("\"{}\" is not a known rule", name), "known are " + known);
}

Expr query_position() { return query + length(key) - length(query); }

Algorithm attention(const AttentionOptions& options) {
  check_options(options);
  const Inputs in;
  return for_tiles("attention", query).lengths(options.lengths).stream(key, [&](Stream& t) {
    hide_keys(options, t);
    if (!softmax_like(options)) return unnormalised_body(options, in, t);
    if (options.top_k != 0) return top_k_body(options, in, t);
    softmax_body(options, in, t);
  });
}

StandardAttention standard_attention(bool causal) {
  auto hide = [&](Stream& t) {
    if (causal) t.visible(key <= query_position());
  };
  const Inputs in;
  const Tensor s = input("s", {batch, head, query, key}), p = input("p", {batch, head, query, key});
  const Tensor m = input("m", {batch, head, query}), l = input("l", {batch, head, query});
  auto scores = [&](Stream& t) {
    hide(t);
    const Expr score = dot(in.q, in.k) * scalar("scale");
    const State top = t.running_max("top", score);
    const State sum = t.sum("sum", exp(score - top));
    t.rescale({sum}, [](const Expr& from, const Expr& to) { return exp(from - to); });
    t.emit("s", score);
    t.finish([&](Finish& f) {
      f.output("m", top);
      f.output("l", sum);
    });
  };
  auto probabilities = [&](Stream& t) {
    hide(t);
    t.emit("p", normalise(exp(s - Expr(m)), l));
  };
  auto output = [&](Stream& t) {
    hide(t);
    const State o = t.sum("sum", dot(p, in.v));
    t.finish([&](Finish& f) { f.output("o", o); });
  };
  return {for_tiles("scores", query).stream(key, scores), for_tiles("probabilities", query).stream(key, probabilities),
          for_tiles("output", query).stream(key, output)};
}

}  // namespace v1
}  // namespace attile
