// The tiles of the stream that a task visits, as lines of CUDA text: the range it owns, without the tiles of which it sees
// nothing, and the names of the tile at hand and of those whose copies are on their way.
#pragma once

#include <string>

#include "codegen/cuda_form.h"

namespace attile::cuda_text {

// Does the predicate only say that a position is one?
bool is_bound_only(const Expr& predicate, const Algorithm& algorithm);

class TileSequence {
 public:
  TileSequence(Frame& frame, Form& form, IntervalText& intervals) : frame_(frame), form_(form), intervals_(intervals), out_(frame.out) {}

  // Lines before the loop. Afterwards `tile` is not yet the first tile, if there are copies ahead, but `coming` is.
  void start(const ir::Loop& loop);
  // Lines that move every name one tile on; `tile` is `end_tile` after the last.
  void next();

  // How many tiles ahead of the one at hand copies are begun.
  int ahead() const { return fragments() ? frame_.schedule().stages - 1 : 0; }
  // Does it take a look at a tensor to know what is seen? Then the task knows it as a whole.
  bool scans() const { return scans_; }
  // bool text: is all of the tile at hand seen, if scans()?
  std::string seen_whole() const { return ahead() > 0 ? "tile_all" : "walk.all"; }

 private:
  bool fragments() const { return frame_.schedule().lanes == Lanes::fragments; }
  // With lanes each warp has rows of its own, and goes its own way.
  bool walks_together() const { return scans_ && fragments(); }
  std::string name(int n) const;
  void range();
  void leave_hidden_out(const Expr& predicate);

  Frame& frame_;
  Form& form_;
  IntervalText& intervals_;
  CodeWriter& out_;
  bool skips_ = false, scans_ = false;
};

}  // namespace attile::cuda_text
