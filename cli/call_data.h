// What the flags ask for as an attention call with the memory behind it: files read and converted, everything else
// generated the same way every time.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "cli/array.h"
#include "cli/attention_flags.h"
#include "runtime/attention.h"

namespace attile::cli {

// shapes: q, k, v and outputs have no memory; enough to generate a kernel.
enum class Contents { values, shapes };

class CallData {
 public:
  // `with_lse`: the call has an lse output. The output's type is --out-dtype, else `out_dtype`. Throws Error.
  CallData(const AttentionFlags& flags, Contents contents, bool with_lse, DType out_dtype = DType::float32);

  const AttentionCall& call() const { return call_; }
  AttentionCall& call() { return call_; }
  Array& output(const std::string& name) { return arrays_.at(name); }
  bool has(const std::string& name) const { return arrays_.contains(name); }
  // Number of sequences, which for packed ones is not the batch extent.
  std::int64_t sequences() const;
  // "B1 H12/12 Nq372 Nk372 D32 Dv32 float32 -> float32".
  std::string problem_text() const;

 private:
  void take_operands(const AttentionFlags& flags);
  void make_operands(const AttentionFlags& flags);
  void take_options(const AttentionFlags& flags);
  void take_captured(const AttentionFlags& flags);
  void take_lengths(const AttentionFlags& flags);
  void make_outputs(const AttentionFlags& flags, bool with_lse, DType out_dtype);
  TensorRef keep(const std::string& name, Array array);
  TensorRef operand(const std::string& name, DType dtype, std::vector<std::int64_t> shape);

  Contents contents_;
  AttentionCall call_;
  std::map<std::string, Array> arrays_;
};

}  // namespace attile::cli
