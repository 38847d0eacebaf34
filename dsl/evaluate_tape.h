// Expressions flattened for `evaluate`: one step per distinct node, each over a block of stream positions at a
// time. What does not vary along the stream is computed once a row. Internal to dsl/.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "dsl/evaluate_bind.h"

namespace attile {
inline namespace v1 {

// Which sequence, query head and row (within the sequence) is at hand.
struct Site {
  std::int64_t sequence = 0, head = 0, row = 0;
};

// Values over the positions of a block and, innermost, over the inner dims (all but batch-like and parallel).
struct View {
  const double* data = nullptr;
  std::int64_t stride = 0;             // per position; 0: the same at every position
  const std::int64_t* rows = nullptr;  // the position's row of `data`; null: rows 0, 1, 2…
  const double* at(std::int64_t j) const { return data + (rows != nullptr ? rows[j] : j) * stride; }
};

// The stream positions of one block; `first` is its place in the row's list of visible positions.
struct Block {
  const std::int64_t* positions = nullptr;
  std::int64_t count = 0, first = 0;
};

// Takes an index over the points of a step to one over an operand that has only some of its dims.
class IndexMap {
 public:
  IndexMap() = default;
  IndexMap(const Dims& from, const std::vector<std::int64_t>& extents, const Dims& to);
  std::int64_t operator()(std::int64_t i) const {
    return identity_ ? i : scalar_ ? 0 : table_[static_cast<std::size_t>(i)];
  }
  bool identity() const { return identity_; }

 private:
  bool identity_ = false, scalar_ = true;
  std::vector<std::int64_t> table_;
};

class ElementReader;

class Tape {
 public:
  using Variables = std::map<std::string, const double*>;  // values of states, at addresses that stay
  // `kept`: nodes whose values over all visible positions of the row are known already.
  using Kept = std::unordered_map<const Node*, const std::vector<double>*>;

  Tape(const Binding& binding, const std::vector<Expr>& roots, Variables variables, Kept kept = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  void enter_row(const Site& site);
  void run(const Block& block);
  View root(std::size_t i) const { return steps_[roots_[i]].view; }
  const Dims& inner(std::size_t i) const { return steps_[roots_[i]].inner; }
  std::int64_t size(std::size_t i) const { return steps_[roots_[i]].size; }

 private:
  struct Step {
    const Node* node = nullptr;
    std::vector<std::size_t> args;
    std::vector<IndexMap> maps;
    bool streamed = false;
    Dims inner;
    std::int64_t size = 1, terms = 1;  // points over the inner dims; terms of a contraction
    std::vector<double> buffer;
    View view;
    std::unique_ptr<ElementReader> reader;
    const std::vector<double>* kept = nullptr;
  };

  std::size_t add(const Expr& e);
  void shape(Step& step);
  void compute(Step& step, const Block& block);
  void compute_leaf(Step& step, const Block& block);
  void compute_random(Step& step, const Block& block);
  void compute_element(Step& step, const Block& block);
  void compute_unary(Step& step, std::int64_t count);
  void compute_binary(Step& step, std::int64_t count);
  void compute_select(Step& step, std::int64_t count);
  void compute_contraction(Step& step, std::int64_t count);
  double leaf_value(const Node& node) const;

  const Binding& binding_;
  Variables variables_;
  Kept kept_;
  Site site_;
  std::vector<Step> steps_;
  std::unordered_map<const Node*, std::size_t> known_;
  std::vector<std::size_t> roots_;
};

// Reads one tensor at the indices of an element node.
class ElementReader {
 public:
  ElementReader(const Binding& binding, const Node& node, const Dims& inner, const std::vector<std::int64_t>& extents);
  // Its values for a row or a block; `args` and `maps` are those of the index expressions.
  View read(const Site& site, const Block& block, const std::vector<View>& args, const std::vector<IndexMap>& maps,
            std::vector<double>& buffer);

 private:
  struct Axis {
    Dim dim;
    std::int64_t stride = 0;  // bytes; 0 where broadcast
  };
  bool has(const Dim& d) const;
  std::int64_t axis_start(const Axis& axis, std::int64_t sequence) const;
  std::int64_t direct_base(const Site& site) const;
  View read_direct(const Site& site, const Block& block, std::vector<double>& buffer);
  View read_whole_stream(const Site& site, const Block& block, std::vector<double>& buffer);
  View read_indexed(const Site& site, const Block& block, const std::vector<View>& args,
                    const std::vector<IndexMap>& maps, std::vector<double>& buffer);
  double read_at(const Site& site, const std::vector<std::int64_t>& at) const;
  bool inside(const Axis& axis, std::int64_t index, std::int64_t sequence) const;
  double value(std::int64_t byte_offset) const;

  const Binding& binding_;
  const Node& node_;
  const HostTensor& tensor_;
  std::vector<Axis> axes_;
  bool direct_, streamed_, by_row_;
  std::int64_t stream_stride_ = 0, size_ = 1;
  std::vector<std::int64_t> inner_offsets_;  // bytes, for direct reads
  std::int64_t cached_base_ = -1;            // which slice `buffer` holds
};

}  // namespace v1
}  // namespace attile
