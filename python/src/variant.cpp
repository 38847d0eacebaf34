#include "variant.h"

namespace attile::python {
namespace {

std::uint64_t key_of(const AttentionOptions& o) {
  const bool flags[] = {o.causal, o.window, o.softcap,   o.alibi,   o.bias,              o.mask,         o.sink,
                        o.prefix, o.lse,    o.documents, o.dropout, o.top_k_renormalise, o.top_k_outputs};
  std::uint64_t key = static_cast<std::uint64_t>(o.top_k) << 32 | static_cast<std::uint64_t>(o.rule) << 24 |
                      static_cast<std::uint64_t>(o.lengths) << 16;
  for (std::size_t i = 0; i < std::size(flags); ++i) key |= std::uint64_t{flags[i]} << i;
  return key;
}

}  // namespace

Kernel Variant::kernel(const Arguments& arguments, const std::optional<Schedule>& schedule, Device device, bool tf32) {
  Problem problem = problem_of(algorithm_, arguments);
  problem.tf32 = tf32;
  {
    const std::lock_guard lock(mutex_);
    for (const Made& m : made_)
      if (m.problem == problem && m.device == device && m.schedule == schedule) return m.kernel;
  }
  const Kernel kernel = Kernel::get(algorithm_, problem, schedule, device);
  const std::lock_guard lock(mutex_);
  made_.push_back({problem, schedule, device, kernel});
  return kernel;
}

Variant& Mods::variant(AttentionOptions options) {
  const std::uint64_t key = key_of(options);
  const std::lock_guard lock(mutex_);
  auto& variant = variants_[key];
  if (variant) return *variant;
  if (!score_.empty())
    options.score_mod = [this](const Expr& s) { return substitute(score_, {{score_name, s}}); };
  if (!mask_.empty()) options.mask_mod = [this] { return mask_; };
  variant = std::make_unique<Variant>(attention(options));
  return *variant;
}

}  // namespace attile::python
