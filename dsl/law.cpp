#include "dsl/law.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "dsl/algorithm_check.h"
#include "dsl/derive.h"
#include "dsl/error.h"
#include "dsl/expr_ops.h"
#include "dsl/expr_walk.h"

namespace attile {
inline namespace v1 {

namespace {

constexpr int point_count = 400;
constexpr double tolerance = 1e-9;
// The first is where a counter-example reads best.
constexpr std::array<double, 4> magnitudes{1, 0.1, 10, 100};

class Random {
 public:
  double uniform() {  // splitmix64, in [-1, 1)
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
  }

 private:
  std::uint64_t state_ = 20260101;
};

// One expression as a function of a few named variables and of free values: each largest part that reads none
// of the variables is one free value, known by its text so that rule and summand agree on it.
class Function {
 public:
  Function(const Expr& e, std::vector<std::string> variables) : root_(e), variables_(std::move(variables)) {}

  double at(const std::map<std::string, double>& values, std::map<std::string, double>& free, Random& random,
            double magnitude) {
    memo_.clear();
    return value(root_, values, free, random, magnitude);
  }

 private:
  bool varies(const Expr& e) {
    auto known = varies_.find(e.get());
    if (known != varies_.end()) return known->second;
    bool any = false;
    for (const std::string& name : variables_) any = any || depends_on_variable(e, name);
    varies_.emplace(e.get(), any);
    return any;
  }

  double free_value(const Expr& e, std::map<std::string, double>& free, Random& random, double magnitude) {
    if (e->op == Op::constant) return e->value;
    auto [text, unknown] = texts_.try_emplace(e.get());
    if (unknown) text->second = to_string(e);
    auto [at, fresh] = free.emplace(text->second, 0);
    if (!fresh) return at->second;
    const double drawn = random.uniform();
    if (e->kind == Kind::boolean)
      at->second = drawn < 0 ? 0 : 1;
    else if (e->kind == Kind::integer)
      at->second = std::nearbyint(drawn * 100);
    // A number that a rule reads is a temperature or a base: positive.
    else
      at->second = (e->op == Op::scalar ? std::fabs(drawn) : drawn) * magnitude;
    return at->second;
  }

  double value(const Expr& e, const std::map<std::string, double>& values, std::map<std::string, double>& free,
               Random& random, double magnitude) {
    if (!varies(e)) return free_value(e, free, random, magnitude);
    if (e->op == Op::variable) return values.at(e->name);
    if (auto known = memo_.find(e.get()); known != memo_.end()) return known->second;
    std::array<double, 3> arg{};
    for (std::size_t i = 0; i < e->args.size(); ++i) arg[i] = value(e->args[i], values, free, random, magnitude);
    double result = 0;
    switch (e->args.size()) {
      // One term of a sum stands for all of them: the law is linear.
      case 1: result = e->op == Op::reduce_sum ? arg[0] : unary_value(e->op, arg[0]); break;
      case 2: result = e->op == Op::dot ? arg[0] * arg[1] : binary_value(e->op, arg[0], arg[1]); break;
      default: result = arg[0] != 0 ? arg[1] : arg[2]; break;
    }
    memo_.emplace(e.get(), result);
    return result;
  }

  Expr root_;
  std::vector<std::string> variables_;
  std::map<const Node*, double> memo_;
  std::map<const Node*, bool> varies_;
  std::map<const Node*, std::string> texts_;
};

bool agree(double a, double b) { return std::fabs(a - b) <= tolerance * std::max(std::fabs(a), std::fabs(b)); }
bool in_range(double a) { return std::isfinite(a) && std::fabs(a) > 1e-290 && std::fabs(a) < 1e290; }

std::string free_text(const std::map<std::string, double>& free) {
  std::string text;
  for (const auto& [name, value] : free) text += fmt::format("{} = {:.6g}, ", name, value);
  return text;
}

class LawCheck {
 public:
  explicit LawCheck(const Algorithm& a) : a_(a), rule_(*a.rule()), factor_(rule_.factor, {"from", "to"}) {}

  void run() {
    check_factor_reads();
    check_identity_and_composition();
    for (const std::string& name : rule_.sums) check_sum(*a_.find_state(name));
    check_empty();
  }

 private:
  [[noreturn]] void refuse(const std::string& what) {
    refuse_algorithm(a_, fmt::format("the rescale factor {} breaks its law: {}", to_string(rule_.factor), what),
                     "a factor must satisfy x(to) = x(from)·factor(from, to) for every listed sum x, and factor(a, c) "
                     "= factor(a, b)·factor(b, c)");
  }

  double factor(double from, double to, std::map<std::string, double>& free) {
    return factor_.at({{"from", from}, {"to", to}}, free, random_, 1);
  }

  void check_factor_reads() {
    for (const Dim& d : rule_.factor->dims)
      refuse(fmt::format("it varies along {}, but one factor holds for a whole row", d.name));
    for_each_node({rule_.factor}, [&](const Node& node) {
      if (node.op == Op::variable && node.name != "from" && node.name != "to")
        refuse(fmt::format("it reads the state \"{}\"", node.name));
    });
  }

  void check_identity_and_composition() {
    int counted = 0;
    for (int i = 0; i < point_count; ++i) {
      const double magnitude = magnitudes[static_cast<std::size_t>(i) * magnitudes.size() / point_count];
      std::map<std::string, double> free;
      const double a = random_.uniform() * magnitude, b = random_.uniform() * magnitude,
                   c = random_.uniform() * magnitude;
      if (const double one = factor(a, a, free); !agree(one, 1))
        refuse(fmt::format("{}factor({:.6g}, {:.6g}) is {:.6g} and not 1", free_text(free), a, a, one));
      const double direct = factor(a, c, free), first = factor(a, b, free), second = factor(b, c, free);
      if (!in_range(direct) || !in_range(first) || !in_range(second) || !in_range(first * second)) continue;
      ++counted;
      if (!agree(direct, first * second))
        refuse(fmt::format("{}factor({:.6g}, {:.6g}) is {:.6g}, but by way of {:.6g} it is {:.6g}", free_text(free), a,
                           c, direct, b, first * second));
    }
    if (counted < point_count / 4) refuse("it over- or underflows at nearly every point");
  }

  void check_empty() {
    for (double to : {0.0, 1.0, -1.0, 30.0, -30.0, 1e4, -1e4}) {
      std::map<std::string, double> free;
      const double empty = factor(-std::numeric_limits<double>::infinity(), to, free);
      if (!std::isfinite(empty))
        refuse(fmt::format("{}factor(-inf, {}) is {}: an empty sum would be lost", free_text(free), to, empty));
    }
  }

  void check_sum(const StateDecl& sum) {
    Function summand(sum.update, {rule_.reference});
    int counted = 0;
    for (int i = 0; i < point_count; ++i) {
      const double magnitude = magnitudes[static_cast<std::size_t>(i) * magnitudes.size() / point_count];
      std::map<std::string, double> free;
      const double from = random_.uniform() * magnitude, to = random_.uniform() * magnitude;
      const double at_to = summand.at({{rule_.reference, to}}, free, random_, magnitude);
      const double at_from = summand.at({{rule_.reference, from}}, free, random_, magnitude);
      const double f = factor(from, to, free);
      if (!std::isfinite(at_to) || !std::isfinite(at_from * f)) continue;
      if (agree(at_to, at_from * f) || (!in_range(at_to) && !in_range(at_from * f))) {
        if (in_range(at_to)) ++counted;
        continue;
      }
      if ((at_to != 0 && !in_range(at_to)) || (at_from != 0 && !in_range(at_from)) || !in_range(f)) continue;
      refuse(
          fmt::format("with {}from = {:.6g}, to = {:.6g} a term of \"{}\" is {:.6g} relative to `to`, but its value "
                      "{:.6g} relative "
                      "to `from` times the factor {:.6g} is {:.6g}",
                      free_text(free), from, to, sum.name, at_to, at_from, f, at_from * f));
    }
    if (counted < point_count / 4)
      refuse(fmt::format(
          "the terms of \"{}\" vanish, overflow or are no numbers at nearly every point, so nothing could be checked",
          sum.name));
  }

  const Algorithm& a_;
  const RescaleRule& rule_;
  Function factor_;
  Random random_;
};

bool takes_lag(const Algorithm& a, double slack, double most) {
  const RescaleRule& rule = *a.rule();
  Function factor(rule.factor, {"from", "to"});
  std::vector<std::string> names{rule.reference};
  for (const StateDecl& s : a.states)
    if (s.kind == StateKind::sum) names.push_back(s.name);
  std::vector<Function> outputs;
  for (const OutputDecl& o : a.outputs) {
    if (o.per_position) return false;
    outputs.emplace_back(o.value, names);
  }
  Random random;
  int counted = 0;
  for (int i = 0; i < point_count; ++i) {
    std::map<std::string, double> free, at_maximum, lagging;
    const double maximum = random.uniform() * 20, reference = maximum - slack * std::fabs(random.uniform());
    const double growth = factor.at({{"from", maximum}, {"to", reference}}, free, random, 1);
    if (!(std::fabs(growth) <= most * (1 + tolerance))) return false;
    at_maximum[rule.reference] = maximum, lagging[rule.reference] = reference;
    for (const StateDecl& s : a.states)
      if (s.kind == StateKind::sum) {
        const double sum = 0.1 + std::fabs(random.uniform());
        const bool listed = std::find(rule.sums.begin(), rule.sums.end(), s.name) != rule.sums.end();
        at_maximum[s.name] = sum, lagging[s.name] = listed ? sum * growth : sum;
      }
    for (Function& output : outputs) {
      const double want = output.at(at_maximum, free, random, 1), got = output.at(lagging, free, random, 1);
      if (!std::isfinite(want)) continue;
      ++counted;
      if (!agree(want, got)) return false;
    }
  }
  return counted > 0;
}

}  // namespace

bool takes_lagging_reference(const Algorithm& a, double slack, double most) {
  const auto selects = [](const StateDecl& s) { return s.kind == StateKind::selection; };
  return a.rule() && std::none_of(a.states.begin(), a.states.end(), selects) && takes_lag(a, slack, most);
}

void check_law(const Algorithm& a) { LawCheck(a).run(); }

}  // namespace v1
}  // namespace attile
