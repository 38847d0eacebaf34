// Random attention problems: options, their tensors, and the same problem for the plain loops.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "dsl/evaluate.h"
#include "dsl/library.h"
#include "tests/dsl/plain_attention.h"

namespace attile::test {

// Owns typed copies of tensors and shows them to `evaluate`.
class Arguments {
 public:
  EvaluateInputs inputs;
  void add(const std::string& name, std::vector<std::int64_t> shape, const std::vector<double>& values,
           DType type = DType::float32);
  void scalar(const std::string& name, double value) { inputs.scalars[name] = value; }
  void remove(const std::string& name) { inputs.tensors.erase(name); }

 private:
  std::map<std::string, std::vector<char>> bytes_;
};

struct Problem {
  AttentionOptions options;
  PlainAttention plain;
  Arguments arguments;
};

// Small multiples of 1/8, exact in every type.
std::vector<double> random_values(std::mt19937& random, std::int64_t count, int largest = 16);

Problem random_problem(std::mt19937& random);
// q, k, v and the scale of `plain` as arguments.
void add_qkv(Arguments& arguments, const PlainAttention& plain);

// Largest |a − b|, infinity where one is NaN or infinite and the other is not the same.
double worst_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace attile::test
