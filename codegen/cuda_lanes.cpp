// lanes: positions on a GPU: a warp for each row, column c of a tile in lane c % 32. Takes every algorithm, type and head
// dim; hidden positions are passed over one by one. Element loops run over j: 32 columns.
#include <fmt/format.h>

#include "codegen/cuda_form.h"
#include "dsl/error.h"

namespace attile::cuda_text {
namespace {

using ir::Axis;

class Lanes : public Form {
 public:
  explicit Lanes(Frame& frame) : Form(frame) {}

  void begin_task() override {
    frame_.out.line("const i32 row = tile_row + warp();");
    frame_.out.line("if (row >= all_rows) return;");
  }
  void copy(const ir::Copy&) override { internal_check(false, "a copy where operands stay in global memory"); }
  void prefetch(const ir::Prefetch&) override { internal_check(false, "a prefetch where operands stay in global memory"); }
  void await(const ir::Await&) override { internal_check(false, "nothing to await"); }
  std::string must_advance(const ir::Advance&) override {
    internal_check(false, "a reference that lags, one row at a time");
    return {};
  }
  void join(const ir::Join&) override { internal_check(false, "warps have rows of their own"); }
  void end_stream(const ir::Loop&) override {}
  Region panel_region() const override { return {"row", "1", "position", number(frame_.schedule().tile_keys)}; }
  Region task_region() const override { return panel_region(); }

  void fill(const ir::Fill& op) override {
    const bool integer = decl(op.dst).element == ir::Element::i32;
    define(op.dst, constant_text(op.constant, integer ? Kind::integer : Kind::real));
  }

  void score(const ir::ScoreMma& op) override {
    const std::string &q = decl(op.a).name, &k = decl(op.b).name;
    elements(op.dst, [&] {
      const bool own_rows = has(frame_.dims_of(k), frame_.algorithm().parallel);
      const std::string at = frame_.row_offset(k, own_rows ? "row" : "", "min_(" + position_ + ", position_length - 1)");
      frame_.out.line("$s = dot<$d>($q + $row, $k + $at);",
                      {{"s", element_of(op.dst)}, {"d", number(decl(op.a).cols)}, {"q", frame_.args.data(q)}, {"row", frame_.row_offset(q, "row")},
                       {"k", frame_.args.data(k)}, {"at", at}});
    });
  }

  // Position by position; −0 is a hidden one.
  void sum(const ir::SumMma& op) override {
    CodeWriter& out = frame_.out;
    const std::string& v = decl(op.v).name;
    positions_of(decl(op.p).cols);
    out.line("const float w = __shfl_sync(~0u, $p[j], n);", {{"p", name(op.p)}});
    out.line("if (__float_as_uint(w) == 0x80000000u || position + 32 * j + n >= position_length) continue;");
    const bool own_rows = has(frame_.dims_of(v), frame_.algorithm().parallel);
    out.line("const i64 at = $offset;", {{"offset", frame_.row_offset(v, own_rows ? "row" : "", "(position + 32 * j + n)")}});
    columns_of(op.acc, [&](const std::string& c) {
      out.line("$o[c] = fmaf(w, $v, $o[c]);", {{"o", name(op.acc)}, {"v", frame_.loaded(v, "at + " + c)}});
    });
    out.line("}");
    out.line("}");
  }

  void map(const ir::Map& op) override {
    elements(op.dst, [&] {
      const std::string value = expr_.real(op.expr);
      frame_.out.line("$x = $value;", {{"x", element_of(op.dst)}, {"value", value}});
    });
  }
  void mask(const ir::Mask& op) override {
    elements(op.tile, [&] {
      const std::string visible = expr_.text(predicate_);
      frame_.out.line("if (!$visible) $x = $hidden;",
                      {{"visible", visible}, {"x", element_of(op.tile)}, {"hidden", constant_text(op.hidden, Kind::real)}});
    });
  }
  void row_reduce(const ir::RowReduce& op) override {
    const bool max = op.op == ir::Reduce::max;
    frame_.out.line("$acc = $combine;",
                    {{"acc", name(op.acc)}, {"combine", filled(max ? "max_($acc, warp_max($src))" : "$acc + warp_sum($src)", {{"acc", name(op.acc)}, {"src", name(op.src)}})}});
  }
  void rescale(const ir::Rescale& op) override {
    elements(op.acc, [&] { frame_.out.line("$x *= $factor;", {{"x", element_of(op.acc)}, {"factor", name(op.factor)}}); });
  }

  void insert(const ir::Insert& op) override {
    frame_.out.line("insert<$k>($values, $indices, $src, position);",
                    {{"k", number(decl(op.values).cols)}, {"values", name(op.values)}, {"indices", name(op.indices)}, {"src", name(op.src)}});
  }

  void gather(const ir::Gather& op) override {
    CodeWriter& out = frame_.out;
    const std::string weights = name(op.dst) + "_weights";
    out.line("float $w[$n];", {{"w", weights}, {"n", number(registers(decl(op.indices)))}});
    elements(op.indices, [&] {
      const std::string value = expr_.real(op.weight);
      out.line("$w[j] = $value;", {{"w", weights}, {"value", value}});
    });
    define(op.dst, "0.0f");
    positions_of(decl(op.indices).cols);
    out.line("const float w = __shfl_sync(~0u, $w[j], n);", {{"w", weights}});
    out.line("const i32 index = __shfl_sync(~0u, $indices[j], n);", {{"indices", name(op.indices)}});
    out.line("if (32 * j + n >= $k || index < 0) continue;", {{"k", number(decl(op.indices).cols)}});
    out.line("const i64 at = $offset;", {{"offset", frame_.row_offset(op.tensor, {}, "index")}});
    columns_of(op.dst, [&](const std::string& c) {
      out.line("$o[c] = fmaf(w, $v, $o[c]);", {{"o", name(op.dst)}, {"v", frame_.loaded(op.tensor, "at + " + c)}});
    });
    out.line("}");
    out.line("}");
  }

  void store(const ir::Store& op) override {
    const ir::ValueDecl& d = decl(op.src);
    elements(op.src, [&] {
      const std::string inside = d.axis == Axis::row      ? "lane() == 0"
                                 : d.axis == Axis::stream ? position_ + " < position_length"
                                 : d.axis == Axis::slot   ? fmt::format("{} < {}", slot_, d.cols)
                                                          : fmt::format("{} < {}", column_, d.cols);
      const std::string offset = frame_.offset(op.tensor, output_indices(op.tensor));
      frame_.out.line("if ($inside) $data[$offset] = $value;",
                      {{"inside", inside}, {"data", frame_.args.data(op.tensor)}, {"offset", offset}, {"value", stored(op.tensor, element_of(op.src))}});
    });
  }

  std::string variable(const Node& node) override {
    const ir::Value v = frame_.kernel.find(node.name);
    internal_check(v.id >= 0, "unknown value " + node.name);
    return element_of(v);
  }
  // Σ over the slots of a selection.
  std::string reduce_sum(const Node& node) override {
    internal_check(node.dim == attile::slot && slots_of(node.args[0]) > 0, "a sum over " + node.dim.name + " outside products");
    const std::int64_t slots = slots_of(node.args[0]);
    const std::string sum = fmt::format("sum{}", next_sum_++);
    CodeWriter& out = frame_.out;
    out.line("float $sum = 0.0f;", {{"sum", sum}});
    out.line("#pragma unroll");
    out.line("for (int j = 0; j < $n; ++j) {", {{"n", number((slots + 31) / 32)}});
    const std::string before = slot_;
    slot_ = "(32 * j + lane())";
    ExprText inner(*this, out, "s");
    const std::string value = inner.real(node.args[0]);
    out.line("if ($slot < $n) $sum += $value;", {{"slot", slot_}, {"n", number(slots)}, {"sum", sum}, {"value", value}});
    slot_ = before;
    out.line("}");
    out.line("$sum = warp_sum($sum);", {{"sum", sum}});
    return sum;
  }

 private:
  static std::string number(std::int64_t n) { return fmt::format("{}", n); }
  static bool has(const Dims& dims, const Dim& d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }
  static std::int64_t registers(const ir::ValueDecl& d) { return d.axis == Axis::row ? 1 : (d.cols + 31) / 32; }

  std::int64_t slots_of(const Expr& e) const {
    if (e->op == Op::variable)
      if (const ir::Value v = frame_.kernel.find(e->name); v.id >= 0 && decl(v).axis == Axis::slot) return decl(v).cols;
    for (const Expr& arg : e->args)
      if (const std::int64_t n = slots_of(arg)) return n;
    return 0;
  }

  std::string element_of(ir::Value v) const { return decl(v).axis == Axis::row ? name(v) : name(v) + "[j]"; }

  void declare(ir::Value v) override {
    if (!is_new(v)) return;
    const ir::ValueDecl& d = decl(v);
    frame_.out.line("$type $name$array;", {{"type", d.element == ir::Element::i32 ? "i32" : "float"}, {"name", name(v)},
                                           {"array", d.axis == Axis::row ? "" : fmt::format("[{}]", registers(d))}});
  }
  void define(ir::Value v, const std::string& value) {
    elements(v, [&] { frame_.out.line("$x = $value;", {{"x", element_of(v)}, {"value", value}}); });
  }

  void elements(ir::Value v, const std::function<void()>& body) {
    declare(v);
    const Axis axis = decl(v).axis;
    row_ = "row";
    if (axis == Axis::row) {
      body();
      return;
    }
    frame_.out.line("#pragma unroll");
    frame_.out.line("for (int j = 0; j < $n; ++j) {", {{"n", number(registers(decl(v)))}});
    (axis == Axis::stream ? position_ : axis == Axis::slot ? slot_ : column_) = axis == Axis::stream ? "(position + 32 * j + lane())" : "(32 * j + lane())";
    body();
    position_ = slot_ = column_ = "";
    frame_.out.line("}");
  }

  // Opens loops over the columns of a tile one by one: n of the 32 in register j.
  void positions_of(std::int64_t columns) {
    frame_.out.line("#pragma unroll");
    frame_.out.line("for (int j = 0; j < $n; ++j) {", {{"n", number((columns + 31) / 32)}});
    frame_.out.line("#pragma unroll 8");
    frame_.out.line("for (int n = 0; n < 32; ++n) {");
  }
  void columns_of(ir::Value v, const std::function<void(const std::string& column)>& body) {
    frame_.out.line("#pragma unroll");
    frame_.out.line("for (int c = 0; c < $n; ++c)", {{"n", number(registers(decl(v)))}});
    frame_.out.line("  if (32 * c + lane() < $cols) {", {{"cols", number(decl(v).cols)}});
    body("(32 * c + lane())");
    frame_.out.line("}");
  }

  int next_sum_ = 0;
};

}  // namespace

std::unique_ptr<Form> make_lanes(Frame& frame) { return std::make_unique<Lanes>(frame); }

}  // namespace attile::cuda_text
