#include "cli/io_model.h"

#include <algorithm>
#include <map>

namespace attile::cli {
namespace {

// Sequences of a call with equal lengths count together.
std::vector<TrafficSizes> sizes_of(const CallData& data) {
  const AttentionCall& call = data.call();
  const auto number = [](const TensorRef& t, std::int64_t i) {
    return std::int64_t{static_cast<const std::int32_t*>(t.data)[t.shape[0] == 1 ? 0 : i * t.strides[0]]};
  };
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> sequences;  // rows and keys → how many
  for (std::int64_t b = 0; b < data.sequences(); ++b) {
    std::int64_t rows = call.q.shape[2], keys = call.k.shape[2];
    if (call.kv_lens) keys = number(*call.kv_lens, b);
    if (call.cu_seqlens_q) {
      rows = number(*call.cu_seqlens_q, b + 1) - number(*call.cu_seqlens_q, b);
      keys = number(*call.cu_seqlens_k, b + 1) - number(*call.cu_seqlens_k, b);
    }
    ++sequences[{rows, keys}];
  }
  TrafficSizes common;
  common.heads = call.q.shape[1];
  for (const auto& n : attention_arguments(call).numbers) common.scalars[n.name] = n.real;
  std::vector<TrafficSizes> out;
  for (const auto& [lengths, count] : sequences) {
    out.push_back(common);
    out.back().sequences = count;
    out.back().rows = lengths.first;
    out.back().positions = lengths.second;
  }
  return out;
}

Traffic counted(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t, const CallData& data) {
  Traffic sum;
  for (const TrafficSizes& sizes : sizes_of(data)) sum += traffic(a, p, s, t, sizes);
  return sum;
}

// The three steps have the types of the call where they share its tensors, and float32 between them.
Traffic standard_traffic(const KernelSource& source, const Schedule& tiles, const CallData& data) {
  const StandardAttention steps = standard_attention(data.call().causal);
  Traffic sum;
  for (const Algorithm& a : {steps.scores, steps.probabilities, steps.output}) {
    Problem p = source.problem;
    p.dtypes.clear();
    const auto type_of = [&](const std::string& name) {
      const auto found = source.problem.dtypes.find(name);
      return found == source.problem.dtypes.end() ? DType::float32 : found->second;
    };
    for (const InputDecl& i : a.inputs) p.dtypes[i.name] = type_of(i.name);
    for (const OutputDecl& o : a.outputs) p.dtypes[o.name] = type_of(o.name);
    sum += counted(a, p, made_legal(a, p, tiles, source.chip.target), source.chip.target, data);
  }
  return sum;
}

bool is_plain(const Algorithm& a, const AttentionCall& call) {
  for (const bool lse : {false, true}) {
    AttentionOptions options;
    options.causal = call.causal;
    options.lse = lse;
    if (a == attention(options)) return true;
  }
  return false;
}

}  // namespace

double OrderTraffic::intensity() const {
  return static_cast<double>(traffic.flops) / static_cast<double>(std::max<std::int64_t>(traffic.total().total(), 1));
}

std::vector<OrderTraffic> traffic_by_order(const KernelSource& source, const CallData& data) {
  const Target& target = source.chip.target;
  Schedule tiles = source.schedule.lanes == Lanes::rows ? source.schedule : Schedule{};
  tiles.pack_ahead = tiles.pack_group = false;
  tiles.splits = 1;
  std::vector<OrderTraffic> out;
  const auto add = [&](const char* order, const Schedule& s) {
    out.push_back({order, to_string(s), counted(source.algorithm, source.problem, s, target, data)});
  };
  if (is_plain(source.algorithm, data.call()))
    out.push_back({"standard", to_string(tiles), standard_traffic(source, tiles, data)});
  for (const Order order : {Order::keys_outer, Order::queries_outer}) {
    tiles.order = order;
    add(order == Order::keys_outer ? "FA-1" : "FA-2", made_legal(source.algorithm, source.problem, tiles, target));
  }
  add("chosen", source.schedule);
  return out;
}

}  // namespace attile::cli
