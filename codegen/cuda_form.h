// How tile ops become CUDA text, for one choice of where a tile's elements are. emit_cuda walks the IR and calls these.
#pragma once

#include <memory>
#include <set>

#include "codegen/cuda_frame.h"
#include "codegen/cuda_interval.h"

namespace attile::cuda_text {

class Form : public FrameEnvironment {
 public:
  explicit Form(Frame& frame);

  // Lines at the head of the kernel, after the task is known.
  virtual void begin_task() = 0;
  virtual std::int64_t shared_bytes() const { return 0; }
  virtual int threads() const { return 32 * frame_.schedule().warps; }

  virtual void copy(const ir::Copy& op) = 0;
  virtual void prefetch(const ir::Prefetch& op) = 0;
  virtual void await(const ir::Await& op) = 0;
  virtual void fill(const ir::Fill& op) = 0;
  virtual void score(const ir::ScoreMma& op) = 0;
  virtual void sum(const ir::SumMma& op) = 0;
  virtual void map(const ir::Map& op) = 0;
  virtual void mask(const ir::Mask& op) = 0;
  virtual void row_reduce(const ir::RowReduce& op) = 0;
  virtual void rescale(const ir::Rescale& op) = 0;
  // The condition of an Advance, as a bool that is the same in all lanes.
  virtual std::string must_advance(const ir::Advance& op) = 0;
  virtual void join(const ir::Join& op) = 0;
  virtual void insert(const ir::Insert& op) = 0;
  virtual void gather(const ir::Gather& op) = 0;
  virtual void store(const ir::Store& op) = 0;

  // Lines between the loop over the stream and the finish.
  virtual void end_stream(const ir::Loop& op) = 0;
  // Lines before the loop over the stream, after its first copies are begun.
  virtual void begin_stream() {}
  // Lines where `position` is known.
  virtual void begin_positions() {}
  // What a warp asks the visibility of: its rows and positions of the tile at hand.
  virtual Region panel_region() const = 0;
  // What the whole task asks; positions `tile_keys` from `position` on.
  virtual Region task_region() const = 0;
  // bool text: does a thread's part of the sum `v` hold NaN?
  virtual std::string has_nan(ir::Value v) const { return "has_nan(" + name(v) + ")"; }
  // A line that declares `v`, if there is none yet.
  virtual void declare(ir::Value v) = 0;
  // Around the finish: which warps take part.
  virtual std::string finishing() const { return {}; }

  void set_predicate(const Expr& predicate) { predicate_ = predicate; }
  // Names declared from here on are forgotten at leave().
  void enter() { scopes_.emplace_back(); }
  void leave() { scopes_.pop_back(); }

  bool varies(const Expr& e) const override;

 protected:
  const ir::ValueDecl& decl(ir::Value v) const { return frame_.kernel[v]; }
  const std::string& name(ir::Value v) const { return names_[static_cast<std::size_t>(v.id)]; }
  // True if `v` has no name in the text yet; it has one afterwards.
  bool is_new(ir::Value v);
  std::string stored(const std::string& tensor, const std::string& value) const;
  std::vector<std::string> output_indices(const std::string& tensor);

  Expr predicate_;

 private:
  bool varies(const Expr& e, std::set<const Node*>& visited) const;
  std::vector<std::string> names_;
  std::vector<std::set<int>> scopes_{1};
};

std::unique_ptr<Form> make_fragments(Frame& frame);
std::unique_ptr<Form> make_lanes(Frame& frame);

}  // namespace attile::cuda_text
