// Lanes of positions: where values lie, which rows and lanes the code is at, and the ops that only move tiles.
// What computes with them is position_lanes.cpp.
#pragma once

#include <map>
#include <vector>

#include "codegen/lane_form.h"
#include "codegen/llvm_stream.h"

namespace attile::llvm_text {

class PositionTiles : public LaneForm {
 public:
  explicit PositionTiles(Frame& frame);

  void copy(const ir::Copy& op) override;
  void fill(const ir::Fill& op) override;
  void gather(const ir::Gather& op) override;
  void store(const ir::Store& op) override;
  void restore(const ir::Restore&) override;
  void save(const ir::Save&) override;
  std::int64_t state_bytes() const override { return 0; }             // states stay with their task
  std::int64_t packed_bytes(ir::Value) const override { return 0; }   // nothing is packed

 protected:
  int width() const override { return shape_.width; }
  std::string floats() const { return vector_of(shape_.width, "float"); }

  // Row values lie side by side, so that a vector holds those of many rows; other tiles row by row.
  Val state_address(ir::Value v, const Val& r) { return f_.gep("float", memory_.at(v.id), r); }
  Val element_address(ir::Value v, const Val& r, const Val& c);
  Val stream_address(ir::Value v, const Val& r, const Val& j);
  // Vector `r` of table `number`: what the lanes of a row have reduced.
  Val reduced_row(std::size_t number, const Val& r);
  // bf16 weights take half the room of the words that their tile has.
  bool is_bf16(ir::Value v) const { return frame_.kernel[v].element == ir::Element::bf16; }
  bool in_memory(int v) const { return buffers_.buffer_of.contains(v); }
  Val load_tile(ir::Value v);
  void store_tile(ir::Value v, const Val& value);

  // First position of the current stream tile of a tensor; with rows of its own, those of the (only) row.
  Val source(const std::string& tensor) { return frame_.row_address(tensor, frame_.at.row, frame_.at.position); }
  // While a tile of one tensor is worked on, that of the next product's is fetched: the same tile of the next
  // tensor, after the last tensor the next tile of the first.
  struct Ahead {
    Val first, stride;
    DType type;
    std::int64_t cols;
  };
  Ahead ahead_of(ir::Value v);
  // Once is enough: later rows ask for what is there already.
  Val ahead_stride(const Ahead& ahead, const Val& r) { return f_.select(f_.compare("icmp eq", r, i64(0)), ahead.stride, i64(0)); }

  // Blocks of `most` rows, then of the smaller powers of two that are left.
  void row_blocks(int most, const std::function<void(Val, int)>& body);
  void each_row(const std::function<void()>& body) { rows_by(1, body); }
  // The rows in the lanes; lanes past the end repeat the last row.
  void each_row_vector(const std::function<void()>& body);
  void each_slot(std::int64_t slots, const std::function<void()>& body);
  Val row_number() { return f_.add(frame_.at.row, row_); }
  // The rows of a vector's lanes, as indices or heads.
  Val row_lanes(bool heads);
  Val lane_numbers(const Val& first);

  StreamShape shape_;
  std::int64_t tile_rows_ = 0, pitch_ = 0;         // words from row to row of a stream tile
  Val folded_;                                     // room of a score
  Val row_{"0", "i64"}, offset_, column_, slot_;   // i64: where the code is
  bool rows_in_lanes_ = false;                     // lanes are rows, from row_ on

 private:
  std::int64_t words_of(const ir::ValueDecl& decl) const;
  void copy_row(const Val& from, const Val& to, std::int64_t cols, DType type);
  void store_slots(const ir::Store& op, const Val& to);
  void rows_by(std::int64_t step, const std::function<void()>& body);

  ir::StreamBuffers buffers_;
  std::vector<ir::Value> streamed_;   // tensors that products read, in the order of use
  std::vector<Val> stream_memory_, reduced_;
  std::map<int, Val> memory_;
};

}  // namespace attile::llvm_text
