// What both CPU lane forms share: the argument block, the scratch layout, where the kernel is (sequence,
// head, rows, positions), and addresses of tensor elements.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/llvm_builder.h"
#include "codegen/llvm_expr.h"
#include "codegen/lower.h"
#include "codegen/program.h"

namespace attile::llvm_text {

// The 8-byte slots of a kernel's argument block, handed out in order of first use and loaded at entry.
class Arguments {
 public:
  explicit Arguments(Function& f) : f_(f) {}
  Val data(const std::string& tensor) { return slot({Parameter::Kind::data, tensor}); }
  Val stride(const std::string& tensor, int dim) { return slot({Parameter::Kind::stride, tensor, dim}); }
  Val extent(const std::string& tensor, int dim) { return slot({Parameter::Kind::extent, tensor, dim}); }
  Val real(const std::string& scalar) { return slot({Parameter::Kind::real, scalar}); }
  Val integer(const std::string& scalar) { return slot({Parameter::Kind::integer, scalar}); }
  Val size(const std::string& what) { return slot({Parameter::Kind::size, what}); }
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  Val slot(const Parameter& p);
  Function& f_;
  std::vector<Parameter> parameters_;
  std::vector<Val> values_;
};

// Where the emitted code is. All i64 scalars.
struct Place {
  Val sequence;                           // batch index
  Val head;                               // query head, or kv head where the group's heads are rows
  Val row_length, position_length;        // of this sequence: rows, and positions of the stream
  Val key_length;                         // keys of this sequence; the same where the stream is over keys
  Val row_start, position_start;          // of this sequence in packed tensors, else 0
  Val tile_row, tile_rows;                // first row of the task's tile, number of valid rows
  Val panel, row, rows;                   // current panel: number, first row, valid rows
  Val position, positions;                // current tile of the stream: first position, valid positions
  Val tile_offset;                        // of `position` in the packed tile: not 0 where a panel sees only part of it
  Val part;                               // part of the stream, if it is split
  Val state_tile;                         // keys_outer: number of the current row tile among all saved ones
  Val first_packed_tile, packed_tile;     // pack_ahead: number of the sequence's first and of the current tile
};

struct Frame {
  Frame(const ir::Kernel& k, const ir::Context& c, bool split_stream);

  const ir::Kernel& kernel;
  const ir::Context& context;
  Module module;
  Function f;
  Arguments args;
  Place at;
  bool split;                     // outputs carry a `part` dim, tasks cover parts of the stream
  Val scratch{"%scratch", "ptr"};
  std::int64_t scratch_bytes = 0;

  bool group_in_rows() const { return context.schedule.pack_group && context.problem.group > 1; }
  std::int64_t rows_per_query() const { return group_in_rows() ? context.problem.group : 1; }
  std::int64_t panel_rows() const;
  DType dtype(const std::string& tensor) const;
  // Reserves scratch, 64-byte aligned, and gives its address.
  Val reserve(std::int64_t bytes);

  // Dims of an input or output tensor, in declared order.
  const Dims& dims_of(const std::string& tensor) const;
  // Address of the element at `indices` (one i64 per dim, within the sequence for query and key).
  Val address(const std::string& tensor, const std::vector<Val>& indices);
  // Row `row` of the task (may name a head of the group) of a tensor whose remaining dims are at 0; for tensors
  // with a streamed dim `position` says where.
  Val row_address(const std::string& tensor, const Val& row, const Val& position = {});
  // Bytes from one position of the stream to the next.
  Val stream_stride(const std::string& tensor);
  // The query index and head of row number `row`.
  Val row_index(const Val& row);
  Val row_head(const Val& row);
  Val kv_head_of(const Val& head);
  Val kv_head_at() { return group_in_rows() ? at.head : kv_head_of(at.head); }
  // Number of indices along dim number `dim` of the tensor, as the sequence at hand sees it.
  Val visible_extent(const std::string& tensor, int dim);

 private:
  std::map<std::string, Dims> output_dims_;
};

// The leaves that mean the same in both lane forms.
class FrameEnvironment : public Environment {
 public:
  explicit FrameEnvironment(Frame& frame) : frame_(frame), f_(frame.f), expr_(frame.f, *this) {}
  Values length(const Dim& dim) override;
  Values scalar(const Node& node) override;
  Values element(const Node& node, const std::vector<Values>& at) override;
  Values random(const Values& seed, const Values& offset) override;
  DType dtype(const std::string& tensor) const override { return frame_.dtype(tensor); }
  ExprEmitter& expr() { return expr_; }

 protected:
  // Vector width and registers of a value that varies along the lanes.
  virtual int width() const = 0;
  // The index of `dim` in the first lane, if it counts up by one from lane to lane and no lane is made up; else empty.
  virtual Val first_lane(const Dim&) { return {}; }

  Frame& frame_;
  Function& f_;
  ExprEmitter expr_;

 private:
  // Where an element lies at every lane, counted in elements of its tensor.
  struct ElementPlace {
    Values offset{i64(0)};
    Val run, run_lanes, run_stride;   // lanes that are neighbours along one dim, left out of `offset`
    Values inside;                    // i1: is it within the tensor? Empty where it must be.
  };
  ElementPlace place_of(const Node& node, const std::vector<Values>& at);
  Values clamped(const Values& index, const Val& extent, Values& inside);
  Values combined(Values a, Values b, const char* op);   // add, mul or and
  Values compared(const char* predicate, Values a, Values b);
  Values loaded(const std::string& tensor, const ElementPlace& place);
  Val load_lanes(DType type, const Val& base, const Val& offsets);
  Val gathered(DType type, const Val& base, const Val& offsets);
  Val load_run(const std::string& tensor, const Val& rest, const Val& first, const Val& lanes, const Val& stride);
};

}  // namespace attile::llvm_text
