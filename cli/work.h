// What a call has to do, in floating-point operations and bytes, and how long something takes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/attention.h"

namespace attile::cli {

struct Work {
  // 2·D for each visible (query, key) pair and 2·D_v for each weight applied. Pairs hidden by causal, window, prefix
  // and lengths are not counted; those hidden by mask, bias and documents are.
  double flops = 0;
  // Every input read once and every output written once.
  double bytes = 0;
};
Work work_of(const AttentionCall& call, std::int64_t sequences);

// One sequence of a call, and the keys [from, to) that one of its rows may see.
struct SequenceSizes {
  std::int64_t rows = 0, keys = 0, prefix = 0;
};
std::vector<SequenceSizes> sequences_of(const AttentionCall& call, std::int64_t count);
struct KeyRange {
  std::int64_t from = 0, to = 0;
};
KeyRange visible_keys(const AttentionCall& call, const SequenceSizes& sequence, std::int64_t row);

double bytes_of(const TensorRef& t);

// Seconds of repeated runs.
struct Times {
  std::vector<double> seconds;
  double median() const;
  double best() const;
  // Half the distance between the quartiles, relative to the median.
  double spread() const;
};
double seconds_of(const std::function<void()>& body);

// "1.23 ms", "45.6 us": three digits.
std::string time_text(double seconds);
std::string bytes_text(double bytes);

}  // namespace attile::cli
