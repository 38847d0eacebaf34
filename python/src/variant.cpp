#include "variant.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "runtime/few_rows.h"
#include "runtime/fork_mutex.h"
#include "runtime/may_build.h"
#include "runtime/options.h"
#include "schedules/operands.h"

namespace attile::python {
namespace {

std::uint64_t key_of(const AttentionOptions& o) {
  const bool flags[] = {o.causal,       o.window, o.softcap, o.alibi,     o.bias,    o.mask,
                        o.sink,         o.prefix, o.lse,     o.documents, o.dropout, o.top_k_renormalise,
                        o.top_k_outputs};
  std::uint64_t key = static_cast<std::uint64_t>(o.top_k) << 32 | static_cast<std::uint64_t>(o.rule) << 24 |
                      static_cast<std::uint64_t>(o.lengths) << 16;
  for (std::size_t i = 0; i < std::size(flags); ++i) key |= std::uint64_t{flags[i]} << i;
  return key;
}

// A score that reads none of the products still belongs to a q and a k: it stands beside them, where they never matter.
Expr with_score(const Expr& mod, const Expr& score) {
  if (depends_on_variable(mod, score_name)) return substitute(mod, {{score_name, score}});
  return select(index(key) < Expr(0), score, mod);
}

}  // namespace

Variant::Variant(Algorithm algorithm) : algorithm_(std::move(algorithm)) {
  const Dims compiled = compiled_dims(algorithm_);
  const auto add = [&](const std::string& name, const Dims& dims) {
    Tensor t{name, {}};
    for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
      const Dim& d = dims[static_cast<std::size_t>(i)];
      if (std::find(compiled.begin(), compiled.end(), d) != compiled.end()) t.compiled.push_back(i);
      if (d == head) t.heads = i;
      if (d == kv_head) t.kv_heads = i;
      if (d == algorithm_.parallel) t.rows = i;
    }
    tensors_.push_back(std::move(t));
  };
  for (const InputDecl& input : algorithm_.inputs) add(input.name, input.dims);
  for (const OutputDecl& output : algorithm_.outputs) add(output.name, output_dims(algorithm_, output));
}

Variant::Signature Variant::signature(const Arguments& arguments, Device device, bool tf32) const {
  Signature s{device.kind == Device::Kind::cpu ? -1 : device.index, tf32};
  s.reserve(64);
  std::int64_t heads = 0, kv_heads = 0, rows = 0;
  for (const Tensor& t : tensors_)
    for (std::size_t i = 0; i < arguments.tensors.size(); ++i) {
      if (arguments.tensors[i].name != t.name) continue;
      const TensorRef& given = arguments.tensors[i].tensor;
      s.push_back(static_cast<std::int64_t>(i) << 8 | static_cast<std::int64_t>(given.dtype));
      const auto extent = [&](int axis) {
        return axis >= 0 && axis < given.rank ? given.shape[static_cast<std::size_t>(axis)] : 0;
      };
      for (const int axis : t.compiled) s.push_back(extent(axis));
      heads = std::max(heads, extent(t.heads)), kv_heads = std::max(kv_heads, extent(t.kv_heads));
      rows = std::max(rows, extent(t.rows));
    }
  const std::int64_t group = kv_heads > 0 ? heads / kv_heads : 1;
  s.push_back(group), s.push_back(kv_heads > 0 ? heads % kv_heads : 0);
  s.push_back(are_few_rows(algorithm_.lengths, rows, std::max<std::int64_t>(group, 1)));
  return s;
}

Kernel Variant::kernel(const Arguments& arguments, const CallOptions& options) {
  Signature wanted = signature(arguments, options.device, options.tf32);
  {
    const std::lock_guard lock(mutex_of(Guarded::kernels_of_variants));
    for (const Made& m : made_)
      if (m.signature == wanted && m.schedule == options.schedule) return m.kernel;
  }
  Problem problem = problem_of(algorithm_, arguments);
  problem.tf32 = options.tf32;
  try {
    const BuildingRight right(options.building == Building::on_demand);
    const Kernel kernel = Kernel::get(algorithm_, problem, options.schedule, options.device);
    const std::lock_guard lock(mutex_of(Guarded::kernels_of_variants));
    made_.push_back({std::move(wanted), options.schedule, kernel});
    return kernel;
  } catch (const Error& error) {
    if (options.building == Building::background && error.kind() == ErrorKind::environment)
      build_behind(problem, options);
    throw;
  }
}

void Variant::build_behind(const Problem& problem, const CallOptions& options) {
  const pid_t process = ::getpid();
  if (building_->exchange(process) == process) return;
  std::thread([=, algorithm = algorithm_, building = building_] {
    try {
      Kernel::get(algorithm, problem, options.schedule, options.device);
    } catch (const std::exception& error) {
      warn(std::string("a kernel could not be built in the background: ") + error.what());
    }
    *building = 0;
  }).detach();
}

void Variant::run(const Arguments& arguments, const CallOptions& options) {
  const Kernel found = kernel(arguments, options);
  const BuildingRight right(options.building == Building::on_demand);
  found.run(arguments, options.run);
}

Variant& Mods::variant(AttentionOptions options) {
  const std::uint64_t key = key_of(options);
  const std::lock_guard lock(mutex_of(Guarded::modified_attention));
  auto& variant = variants_[key];
  if (variant) return *variant;
  if (!score_.empty()) options.score_mod = [this](const Expr& s) { return with_score(score_, s); };
  if (!mask_.empty()) options.mask_mod = [this] { return mask_; };
  variant = std::make_unique<Variant>(attention(options));
  return *variant;
}

}  // namespace attile::python
