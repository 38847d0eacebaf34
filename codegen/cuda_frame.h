// What the forms of a CUDA kernel share: its argument struct, the names of where a task is, and offsets of tensor
// elements. All names below are variables of the emitted text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/cuda_expr.h"
#include "codegen/cuda_writer.h"
#include "codegen/lower.h"
#include "codegen/program.h"

namespace attile::cuda_text {

// The members of the argument struct `a`, 8 bytes each, in order of first use.
class Arguments {
 public:
  std::string data(const std::string& tensor) { return slot({Parameter::Kind::data, tensor}); }
  std::string stride(const std::string& tensor, int dim) { return slot({Parameter::Kind::stride, tensor, dim}); }
  std::string extent(const std::string& tensor, int dim) { return slot({Parameter::Kind::extent, tensor, dim}); }
  std::string real(const std::string& scalar) { return slot({Parameter::Kind::real, scalar}); }
  std::string integer(const std::string& scalar) { return slot({Parameter::Kind::integer, scalar}); }
  std::string size(const std::string& what) { return slot({Parameter::Kind::size, what}); }
  // Are all rows of the tensor aligned to `bytes`?
  std::string aligned(const std::string& tensor, int bytes) { return slot({Parameter::Kind::aligned, tensor, bytes}); }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::string& name(std::size_t i) const { return names_[i]; }

 private:
  std::string slot(const Parameter& p);
  std::vector<Parameter> parameters_;
  std::vector<std::string> names_;
};

struct Frame {
  Frame(const ir::Kernel& k, const ir::Context& c, bool split_stream);

  const ir::Kernel& kernel;
  const ir::Context& context;
  bool split;  // outputs carry a `part` dim, tasks cover parts of the stream
  CodeWriter out;
  Arguments args;
  std::vector<NearRows> near_rows;  // what the text takes for granted

  const Algorithm& algorithm() const { return context.algorithm; }
  const Schedule& schedule() const { return context.schedule; }
  bool group_in_rows() const { return context.schedule.pack_group && context.problem.group > 1; }
  std::int64_t rows_per_query() const { return group_in_rows() ? context.problem.group : 1; }
  std::int64_t panel_rows() const;
  DType dtype(const std::string& tensor) const;
  std::string type(const std::string& tensor) const;  // "bf16", "float", …
  const Dims& dims_of(const std::string& tensor) const;
  bool is_output(const std::string& tensor) const { return context.algorithm.find_input(tensor) == nullptr; }

  // The query index and the head of row number `row`.
  std::string query_of(const std::string& row) const;
  std::string head_of(const std::string& row) const;
  // Offset in elements of the element at `indices`, one text per dim; an empty one is left out (0).
  std::string offset(const std::string& tensor, const std::vector<std::string>& indices);
  // Offset of the first column of row `row` (position `position`, if not empty) of a tensor.
  std::string row_offset(const std::string& tensor, const std::string& row, const std::string& position = {});
  // Number of indices along dim number `dim` of the tensor, as the sequence at hand sees it.
  std::string visible_extent(const std::string& tensor, int dim);
  // A tensor's element at an offset, as its own kind: float, integer or bool.
  std::string loaded(const std::string& tensor, const std::string& offset);

  std::string parameters_text() const;  // the struct

 private:
  std::map<std::string, Dims> output_dims_;
};

const char* type_name(DType type);

// Leaves that mean the same in every form. `row_` and `position_` are set by the form for the element at hand.
class FrameEnvironment : public Environment {
 public:
  explicit FrameEnvironment(Frame& frame) : frame_(frame), expr_(*this, frame.out) {}
  std::string index(const Dim& dim) override;
  std::string length(const Dim& dim) override;
  std::string scalar(const Node& node) override;
  std::string element(const Node& node, const std::vector<std::string>& at) override;
  std::string random(const std::string& seed, const std::string& offset) override;
  DType dtype(const std::string& tensor) const override { return frame_.dtype(tensor); }
  bool coarse() const override;
  ExprText& expr() { return expr_; }

 protected:
  Frame& frame_;
  ExprText expr_;
  std::string row_, position_, column_, slot_;  // of the element at hand; empty where there is none
};

}  // namespace attile::cuda_text
