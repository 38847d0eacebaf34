// Reference cases in JSON: inputs, attention options and expected outputs in one file, with further option sets
// under `more`. Read here once for `attile check` and for the tests. Every error is an attile::Error(argument)
// that names the file and the field.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dsl/evaluate.h"
#include "dsl/library.h"

namespace attile::cli {

// A rectangle of numbers, row-major.
struct CaseTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

// One option set with what it should give.
struct CaseRun {
  std::string about;
  AttentionOptions options;
  std::map<std::string, double> scalars;       // by the algorithm's names
  std::map<std::string, CaseTensor> tensors;   // those beside q, k, v, with the algorithm's dims; extent 1 = broadcast
  std::map<std::string, CaseTensor> expected;  // "o", "lse"
  std::vector<std::string> not_run;            // what the file asks for and no forward pass gives, such as "dq"
};

struct CaseFile {
  std::string path, id, about;
  CaseTensor q, k, v;
  std::vector<CaseRun> runs;  // the file's own options first, then `more`
};

CaseFile read_case_file(const std::string& path);
// The same from text; `name` stands for the file in errors.
CaseFile parse_case_file(const std::string& text, const std::string& name);

// Storage for one run's arguments with q, k, v in `type`; captured real tensors are float32, integers int32.
class CaseArguments {
 public:
  CaseArguments(const CaseFile& file, const CaseRun& run, DType type);
  const EvaluateInputs& inputs() const { return inputs_; }

 private:
  void add(const std::string& name, const CaseTensor& tensor, DType type);
  std::map<std::string, std::vector<char>> bytes_;
  EvaluateInputs inputs_;
};

// "" if `actual` agrees with `expected`, else a sentence with the worst place. A difference up to
// absolute + relative·|expected| is allowed; infinities agree exactly and NaN with NaN.
std::string case_mismatch(const std::string& name, const CaseTensor& expected, const std::vector<double>& actual,
                          double absolute, double relative);

}  // namespace attile::cli
