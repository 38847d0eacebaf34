// Visibility of whole tiles: a predicate evaluated over intervals of rows and positions instead of points.
// Sound, not sharp: what cannot be bounded counts as "may be either".
#pragma once

#include <map>
#include <set>

#include "codegen/cpu_frame.h"

namespace attile::llvm_text {

struct Truth {
  Val possible;  // i1: may be true somewhere
  Val certain;   // i1: is true everywhere
};
struct Interval {
  Val low, high;  // i64, both included
};

// The rows and positions that a question is about; first numbers and counts (≥ 1), i64. Rows are row numbers of
// the task: with the group in rows, group × query rows.
struct Region {
  Val row, rows, position, positions;
};

class IntervalEmitter {
 public:
  IntervalEmitter(Frame& frame, ExprEmitter& expr, const Region& region) : frame_(frame), f_(frame.f), expr_(expr), region_(region) {}
  Truth truth(const Expr& predicate);

  // For a loop over stretches of positions with the same rows: emits what the positions do not change, once…
  void hoist(const Expr& predicate);
  // …and moves the region along.
  void set_positions(const Val& first, const Val& count) { region_.position = first, region_.positions = count; }

 private:
  Truth truth_of(const Expr& e);
  Truth compute_truth(const Expr& e);
  void hoist(const Expr& e, std::set<const Node*>& seen);
  bool is_uniform_here(const Expr& e) const;
  Interval interval(const Expr& e);
  Interval index_interval(const Dim& dim);
  Interval element_interval(const Node& n);
  Interval arithmetic(const Node& n, const Interval& a, const Interval& b);
  Interval unknown(const Node& n) const;
  Truth compare(const Node& n);
  Val low_of(const Val& a, const Val& b) { return f_.min(a, b); }
  Val high_of(const Val& a, const Val& b) { return f_.max(a, b); }

  Interval compute_interval(const Expr& e);

  Frame& frame_;
  Function& f_;
  ExprEmitter& expr_;
  Region region_;
  std::map<const Node*, Interval> hoisted_, intervals_;  // the latter of one question, as trees share branches
  std::map<const Node*, Truth> truths_;
};

}  // namespace attile::llvm_text
