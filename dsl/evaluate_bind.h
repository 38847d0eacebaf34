// The arguments of one `evaluate` call, checked and matched to the algorithm: extents of dims, lengths and
// places of sequences, addresses of elements. Internal to dsl/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dsl/evaluate.h"

namespace attile {
inline namespace v1 {

class Binding {
 public:
  Binding(const Algorithm& a, const EvaluateInputs& in);

  const Algorithm& algorithm() const { return algorithm_; }
  std::int64_t batches() const { return in_.batch; }
  std::int64_t heads() const { return in_.heads; }
  std::int64_t kv_heads() const { return kv_heads_; }
  std::int64_t kv_head_of(std::int64_t h) const { return kv_heads_ == 0 ? 0 : h / (in_.heads / kv_heads_); }
  // Along a packed dim: all sequences together. Throws when no tensor tells.
  std::int64_t extent(const Dim& d) const;
  bool is_packed(const Dim& d) const { return algorithm_.lengths == Lengths::packed && (d == query || d == key); }
  std::int64_t length(const Dim& d, std::int64_t sequence) const;
  // Where the sequence's first position along `d` lies in a tensor.
  std::int64_t start(const Dim& d, std::int64_t sequence) const;
  const HostTensor& tensor(const std::string& name) const { return in_.tensors.at(name); }
  double scalar(const std::string& name) const { return in_.scalars.at(name); }

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy = {}) const;

 private:
  void bind_scalars() const;
  void check_tensor(const InputDecl& decl) const;
  void bind_extents();
  void add_extent(const InputDecl& decl, std::size_t axis);
  void check_extents(const InputDecl& decl) const;
  void bind_lengths();
  std::vector<std::int64_t> read_bounds(const std::string& name, const Dim& d) const;
  std::vector<std::int64_t> read_integers(const std::string& name, std::int64_t count) const;
  bool is_bounds(const std::string& name) const;
  bool packs(const InputDecl& decl) const;

  const Algorithm& algorithm_;
  const EvaluateInputs& in_;
  std::map<std::string, std::int64_t> extents_;
  std::int64_t kv_heads_ = 0;
  std::vector<std::int64_t> used_;                       // kv_lens
  std::vector<std::int64_t> query_bounds_, key_bounds_;  // cu_seqlens
};

}  // namespace v1
}  // namespace attile
