// A call's outputs against `evaluate`, the untiled double computation of the same algorithm on the same inputs: every
// row where that is quick, else rows spread over the problem.
#pragma once

#include <string>
#include <vector>

#include "dsl/evaluate.h"
#include "runtime/attention.h"

namespace attile::cli {

struct OutputCheck {
  std::string output;
  double error = 0, tolerance = 0;  // of the worst element: the largest error in units of its tolerance
  double got = 0, want = 0;
  std::string place;  // "[0][3][17][5]"
  bool agrees = true;
};

struct ReferenceCheck {
  std::vector<OutputCheck> outputs;  // o, then lse where the call has it
  std::int64_t rows = 0;             // compared
  std::int64_t all_rows = 0;
  std::int64_t undecided = 0;  // top-k: the k-th and the next score are closer than rounding, so either may be taken
  bool agrees() const;
};

// Relative to the largest |v|: 1e-5 float32, 2e-3 float16 and TF32, 1e-2 bfloat16 (the coarser of input and output).
double output_tolerance(DType in, DType out, bool tf32 = false);
// Of lse, absolute and relative to it: scores that are sums of TF32 products are as coarse as the output.
double lse_tolerance(bool tf32);
// Rounding of scores of size |lse| ≈ |s| shifts every weight by about |s|·2^-24.
double score_tolerance(double largest_lse);

// `sequences` and heads as the call's. Throws Error(argument) where evaluate does.
ReferenceCheck check_against_reference(const AttentionCall& call);

// The rows a check of about `steps` steps compares: all, or the first and last of every (sequence, head) it can
// afford and others spread evenly.
std::vector<EvaluateInputs::Row> rows_to_check(const std::vector<std::int64_t>& rows_of_sequence, std::int64_t heads,
                                               double steps_of_row);

}  // namespace attile::cli
