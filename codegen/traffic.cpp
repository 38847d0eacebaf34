#include "codegen/traffic.h"

#include <algorithm>
#include <functional>
#include <set>

#include "dsl/derive.h"
#include "dsl/error.h"
#include "schedules/footprint.h"

namespace attile {
inline namespace v1 {
namespace {

using namespace ir;

std::int64_t size_of_element(Element e) {
  switch (e) {
    case Element::bf16:
    case Element::f16: return 2;
    case Element::i64: return 8;
    case Element::boolean: return 1;
    default: return 4;
  }
}

bool has(const Dims& dims, const Dim& d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

// What one evaluation of an expression costs at each element.
struct ExprCost {
  std::int64_t exponentials = 0;
  std::vector<const Node*> elements;  // tensors read
};

// Runs a kernel's loops over the sizes of a call and counts instead of computing. Loops whose iterations all cost the
// same run once, with `times_` standing for the others.
class Counter {
 public:
  Counter(const LoweredKernel& k, const TrafficSizes& sizes, std::int64_t parts)
      : k_(k), kernel_(k.kernel), a_(k.algorithm), schedule_(k.schedule), sizes_(sizes), parts_(parts) {
    positions_ = a_.streamed == part ? parts : sizes.positions;
    lengths_ = {sizes.rows, positions_, sizes.scalars};
  }

  Traffic run() {
    const std::int64_t heads =
        group_in_rows() || k_.role == Role::packing ? sizes_.heads / k_.problem.group : sizes_.heads;
    times_ = sizes_.sequences * heads;
    row_ = 0;
    rows_ = sizes_.rows * (group_in_rows() ? k_.problem.group : 1);
    if (rows_ == 0) return {};
    from_ = 0;
    to_ = positions_;
    if (k_.role == Role::packing)
      each(0, positions_, schedule_.tile_keys, true,
           [&](auto first, auto count) { position_ = first, count_ = count, block(kernel_.body); });
    else if (schedule_.order == Order::keys_outer)
      block(kernel_.body);
    else
      each_part([&] { row_tiles(kernel_.body); });
    return std::move(out_);
  }

 private:
  bool group_in_rows() const { return schedule_.pack_group && k_.problem.group > 1; }
  bool masked() const { return !a_.visible.empty(); }

  // Iterations over [from, to) in steps of `tile`; `alike`: whole tiles cost the same.
  void each(std::int64_t from, std::int64_t to, std::int64_t tile, bool alike,
            const std::function<void(std::int64_t, std::int64_t)>& body) {
    if (to <= from) return;
    const std::int64_t whole = (to - from) / tile;
    if (alike && whole > 0) {
      times_ *= whole;
      body(from, tile);
      times_ /= whole;
    } else {
      for (std::int64_t i = 0; i < whole; ++i) body(from + i * tile, tile);
    }
    if (from + whole * tile < to) body(from + whole * tile, to - from - whole * tile);
  }

  // The stretch of the stream that each part sweeps, in whole tiles.
  void each_part(const std::function<void()>& body) {
    if (k_.role != Role::partial) return body();
    const std::int64_t tile = schedule_.tile_keys, tiles = (positions_ + tile - 1) / tile;
    const std::int64_t length = (tiles + parts_ - 1) / parts_ * tile;
    for (std::int64_t p = 0; p < parts_; ++p) {
      from_ = p * length;
      to_ = std::min(from_ + length, positions_);
      body();
    }
  }

  void row_tiles(const Block& body, const Expr& skip_unless = {}) {
    const std::int64_t row = row_, rows = rows_;
    each(row, row + rows, schedule_.tile_rows, !masked(), [&](auto first, auto count) {
      row_ = first, rows_ = count;
      if (skip_unless.empty() || seen(skip_unless).possible) block(body);
    });
    row_ = row, rows_ = rows;
  }

  void key_tiles(const Loop& loop) {
    each(from_, to_, schedule_.tile_keys, !masked(), [&](auto first, auto count) {
      position_ = first, count_ = count;
      if (loop.skip_unless.empty() || seen(loop.skip_unless).possible) block(loop.body);
    });
  }

  void panels(const Loop& loop) {
    const std::int64_t row = row_, rows = rows_, step = panel_rows(schedule_, k_.target);
    // A tile that is seen everywhere or nowhere has panels that all cost the same.
    const TileTruth whole = masked() && count_ > 0 ? seen(a_.visible) : TileTruth{true, true};
    times_outside_panels_ = times_;
    touched_.clear();
    each(row, row + rows, step, whole.certain || !whole.possible, [&](auto first, auto count) {
      row_ = first, rows_ = count;
      block(loop.body);
    });
    row_ = row, rows_ = rows;
  }

  TileTruth seen(const Expr& predicate) const {
    const std::int64_t group = group_in_rows() ? k_.problem.group : 1;
    return truth_in(predicate, a_, lengths_,
                    {row_ / group, (row_ + rows_ - 1) / group, position_, position_ + count_ - 1});
  }

  void block(const Block& body) {
    for (const Stmt& s : body)
      std::visit(overloaded{
                     [&](const Copy& op) { copy(op); },
                     [&](const ScoreMma& op) { score(op); },
                     [&](const SumMma& op) { sum(op); },
                     [&](const Map& op) { expression(op.expr, kernel_[op.dst]); },
                     [&](const Mask& op) { expression(a_.visible, kernel_[op.tile]); },
                     [&](const Store& op) {
                       memory(op.tensor).written += times_ * elements(kernel_[op.src]) * size_of_tensor(op.tensor);
                     },
                     [&](const Gather& op) { gather(op); },
                     [&](const Restore& op) {
                       memory("work." + name(op.state)).read += times_ * elements(kernel_[op.state]) * 4;
                     },
                     [&](const Save& op) {
                       memory("work." + name(op.state)).written += times_ * elements(kernel_[op.state]) * 4;
                     },
                     [&](const Loop& op) { loop(op); },
                     [&](const Sweep& op) { block(op.body); },
                     [&](const Visibility& op) { visibility(op); },
                     [](const auto&) {},
                 },
                 s.node);
  }
  void loop(const Loop& op) {
    if (op.kind == LoopKind::row_tiles) return row_tiles(op.body, op.skip_unless);
    if (op.kind == LoopKind::key_tiles) return key_tiles(op);
    panels(op);
  }
  void visibility(const Visibility& op) {
    const TileTruth truth = seen(op.predicate);
    block(!truth.possible ? op.hidden : truth.certain ? op.plain : op.masked);
  }

  // Sizes of what is at hand.
  Bytes& memory(const std::string& tensor) { return out_.memory[tensor]; }
  const std::string& name(Value v) const { return kernel_[v].name; }
  std::int64_t elements(const ValueDecl& v) const { return rows_ * (v.axis == Axis::stream ? count_ : v.cols); }
  std::int64_t size_of_tensor(const std::string& tensor) const {
    const auto found = k_.problem.dtypes.find(tensor);
    internal_check(found != k_.problem.dtypes.end(), "no dtype for tensor " + tensor);
    return static_cast<std::int64_t>(size_of(found->second));
  }
  // Elements of a tensor's tile: its rows, its positions or both, times its columns.
  std::int64_t tile_elements(const std::string& tensor, std::int64_t cols) const {
    const InputDecl* input = a_.find_input(tensor);
    internal_check(input != nullptr, "no tensor " + tensor);
    return cols * (has(input->dims, a_.parallel) ? rows_ : 1) * (has(input->dims, a_.streamed) ? count_ : 1);
  }

  void copy(const Copy& op) {
    const ValueDecl& dst = kernel_[op.dst];
    const std::int64_t count = times_ * tile_elements(op.tensor, dst.cols),
                       bytes = count * size_of_element(dst.element);
    memory(op.tensor).read += count * size_of_tensor(op.tensor);
    (dst.space == Space::workspace ? memory("work." + dst.name) : out_.tiles).written += bytes;
  }

  // An operand of a product, read for a panel; what lies in main memory comes from there once for all panels.
  void operand(Value v) {
    const ValueDecl& d = kernel_[v];
    const std::int64_t count = tile_elements(d.name, d.cols);
    out_.tiles.read += times_ * count * size_of_element(d.element);
    if (d.space == Space::tile || !touched_.insert(v.id).second) return;
    const bool packed = d.space == Space::workspace;
    memory(packed ? "work." + d.name : d.name).read +=
        times_outside_panels_ * count * (packed ? size_of_element(d.element) : size_of_tensor(d.name));
  }
  void score(const ScoreMma& op) {
    operand(op.a);
    operand(op.b);
    out_.flops += times_ * 2 * rows_ * count_ * kernel_[op.b].cols;
  }
  void sum(const SumMma& op) {
    operand(op.v);
    out_.flops += times_ * 2 * rows_ * count_ * kernel_[op.v].cols;
  }
  void gather(const Gather& op) {
    const std::int64_t slots = kernel_[op.indices].cols;
    expression(op.weight, kernel_[op.indices]);
    memory(op.tensor).read += times_ * rows_ * slots * kernel_[op.dst].cols * size_of_tensor(op.tensor);
    out_.flops += times_ * 2 * rows_ * slots * kernel_[op.dst].cols;
  }

  void expression(const Expr& e, const ValueDecl& over) {
    const ExprCost& cost = cost_of(e);
    out_.exponentials += times_ * cost.exponentials * elements(over);
    for (const Node* n : cost.elements) {
      std::int64_t count = has(n->dims, a_.parallel) || (group_in_rows() && has(n->dims, head)) ? rows_ : 1;
      for (const Dim& d : n->dims)
        if (d == a_.streamed)
          count *= count_;
        else if (!is_batch_like(d) && d != a_.parallel)
          count *= over.cols;
      memory(n->name).read += times_ * count * size_of_tensor(n->name);
    }
  }
  const ExprCost& cost_of(const Expr& e) {
    const auto [found, fresh] = costs_.try_emplace(e.get());
    if (fresh) {
      std::set<const Node*> nodes;
      add_cost(e, nodes, found->second);
    }
    return found->second;
  }
  static void add_cost(const Expr& e, std::set<const Node*>& nodes, ExprCost& cost) {
    if (!nodes.insert(e.get()).second) return;
    cost.exponentials += e->op == Op::exp || e->op == Op::sigmoid || e->op == Op::tanh;
    if (e->op == Op::element) cost.elements.push_back(e.get());
    for (const Expr& arg : e->args) add_cost(arg, nodes, cost);
  }

  const LoweredKernel& k_;
  const Kernel& kernel_;
  const Algorithm& a_;
  const Schedule& schedule_;
  const TrafficSizes& sizes_;
  std::int64_t parts_, positions_ = 0;
  CallLengths lengths_;

  std::int64_t times_ = 1, times_outside_panels_ = 1;
  std::int64_t row_ = 0, rows_ = 0;        // at hand: of the task, the row tile or the panel
  std::int64_t position_ = 0, count_ = 0;  // of the tile of the stream
  std::int64_t from_ = 0, to_ = 0;         // of the part
  std::set<int> touched_;                  // operands in main memory that some panel of this tile has read
  std::map<const Node*, ExprCost> costs_;
  Traffic out_;
};

}  // namespace

Bytes Traffic::total() const {
  Bytes sum;
  for (const auto& [tensor, bytes] : memory) {
    sum.read += bytes.read;
    sum.written += bytes.written;
  }
  return sum;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  for (const auto& [tensor, bytes] : other.memory) {
    memory[tensor].read += bytes.read;
    memory[tensor].written += bytes.written;
  }
  tiles.read += other.tiles.read;
  tiles.written += other.tiles.written;
  flops += other.flops;
  exponentials += other.exponentials;
  return *this;
}

Traffic traffic(const ir::LoweredKernel& k, const TrafficSizes& sizes, std::int64_t parts) {
  return Counter(k, sizes, parts).run();
}

Traffic traffic(const Algorithm& a, const Problem& p, const Schedule& s, const Target& t, const TrafficSizes& sizes) {
  Traffic sum;
  for (const ir::LoweredKernel& k : ir::lower_program(a, p, s, t)) sum += traffic(k, sizes, s.splits);
  return sum;
}

}  // namespace v1
}  // namespace attile
