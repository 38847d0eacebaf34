// Visibility of whole tiles as C++ text: a predicate evaluated over intervals of rows and positions instead of points.
// Sound, not sharp: what cannot be bounded counts as "may be either".
#pragma once

#include <map>
#include <set>
#include <string>

#include "codegen/cuda_frame.h"

namespace attile::cuda_text {

struct Truth {
  std::string possible;  // bool: may be true somewhere
  std::string certain;   // bool: is true everywhere
};
struct Interval {
  std::string low, high;  // i32 or i64, both included
};

// The rows and positions that a question is about, as text: first numbers and counts (≥ 1). Rows are row numbers of the
// task. `alike`: they are the same in all lanes of a warp, which then share the work of scanning a tensor.
struct Region {
  std::string row, rows, position, positions;
  bool alike = true;                // all lanes ask about the same one
  std::string early = "Yes{}";      // otherwise: are registers free for many looks at a time?
};

class IntervalText {
 public:
  IntervalText(Frame& frame, ExprText& expr) : frame_(frame), expr_(expr) {}
  // Names, in lines emitted here, what no position changes; `truth` for the same rows then uses the names.
  void hoist(const Expr& predicate, const Region& region);
  Truth truth(const Expr& predicate, const Region& region);
  // Does an answer need a tensor's elements, and so time?
  bool scans(const Expr& predicate) const;

 private:
  Truth truth_of(const Expr& e);
  Truth compute_truth(const Expr& e);
  Truth compare(const Node& n);
  bool is_uniform_here(const Expr& e) const;
  Interval interval(const Expr& e);
  Interval compute(const Expr& e);
  Interval arithmetic(const Node& n, const Interval& a, const Interval& b);
  Interval unknown(const Node& n) const;
  std::string negative(const Node& n, const std::string& x) const;
  Interval index_interval(const Dim& dim) const;
  Interval element_interval(const Node& n);
  void hoist_nodes(const Expr& e, std::set<const Node*>& visited);
  std::string shortened(const std::string& text);

  Frame& frame_;
  ExprText& expr_;
  Region region_;
  std::map<std::string, std::map<const Node*, Interval>> hoisted_;  // by first row
  // Of the question at hand: expressions share parts.
  std::map<const Node*, Interval> intervals_;
  std::map<const Node*, Truth> truths_;
};

// `a && b` and the like, with constants folded.
std::string both(const std::string& a, const std::string& b);
std::string either(const std::string& a, const std::string& b);
std::string negated(const std::string& a);

}  // namespace attile::cuda_text
