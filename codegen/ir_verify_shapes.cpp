#include <fmt/format.h>

#include "codegen/ir_verify_rules.h"
#include "codegen/walk.h"

namespace attile::ir::rules {
namespace {

// Every op of type `OpType`, wherever it stands.
template <typename OpType>
void each(Findings& f, const std::function<void(const Stmt&, const OpType&)>& visit) {
  walk(f.kernel.body, [&](const Stmt& s) {
    if (const auto* op = std::get_if<OpType>(&s.node)) visit(s, *op);
  });
}

// A value of the whole row tile meets values of one panel: the panels cut it evenly.
bool rows_fit(const ValueDecl& tile, const ValueDecl& panel) { return panel.rows > 0 && tile.rows % panel.rows == 0; }

std::string shape(const ValueDecl& v) { return fmt::format("'{}' is {}x{}", v.name, v.rows, v.cols); }

void expect_axis(Findings& f, const Stmt& s, Value v, Axis axis, const char* words) {
  if (f.kernel[v].axis != axis) f.add(s, fmt::format("'{}' is not {}", f.kernel[v].name, words));
}
constexpr const char *a_row = "one element a row", *a_stream = "a tile of the stream",
                     *a_feature = "a tile over a head dim", *a_slot = "a tile of slots";

void check_extents(Findings& f) {
  walk(f.kernel.body, [&](const Stmt& s) {
    const Access a = access_of(f.kernel, s);
    for (const auto* list : {&a.reads, &a.writes, &a.updates})
      for (const Value v : *list) {
        const ValueDecl& d = f.kernel[v];
        if (d.rows < 1 || d.cols < 1) f.add(s, shape(d) + ", which has no elements");
        if (d.axis == Axis::row && d.cols != 1) f.add(s, shape(d) + ", but a row value has one column");
      }
  });
}

void check_score_products(Findings& f) {
  each<ScoreMma>(f, [&](const Stmt& s, const ScoreMma& op) {
    const ValueDecl &dst = f.kernel[op.dst], &a = f.kernel[op.a], &b = f.kernel[op.b];
    expect_axis(f, s, op.dst, Axis::stream, a_stream);
    expect_axis(f, s, op.a, Axis::feature, a_feature);
    expect_axis(f, s, op.b, Axis::feature, a_feature);
    if (a.cols != b.cols) f.add(s, fmt::format("{} and {}: they contract over different extents", shape(a), shape(b)));
    if (dst.cols != b.rows) f.add(s, fmt::format("{} but {}: one column for each position", shape(dst), shape(b)));
    if (!rows_fit(a, dst)) f.add(s, fmt::format("{} but {}: no whole number of panels", shape(dst), shape(a)));
    if (dst.element != Element::f32) f.add(s, fmt::format("'{}' does not accumulate in f32", dst.name));
  });
}

void check_sum_products(Findings& f) {
  each<SumMma>(f, [&](const Stmt& s, const SumMma& op) {
    const ValueDecl &acc = f.kernel[op.acc], &p = f.kernel[op.p], &v = f.kernel[op.v];
    expect_axis(f, s, op.acc, Axis::feature, a_feature);
    expect_axis(f, s, op.p, Axis::stream, a_stream);
    expect_axis(f, s, op.v, Axis::feature, a_feature);
    if (acc.cols != v.cols) f.add(s, fmt::format("{} but {}: their columns differ", shape(acc), shape(v)));
    if (p.cols != v.rows) f.add(s, fmt::format("{} but {}: one weight for each position", shape(p), shape(v)));
    if (!rows_fit(acc, p)) f.add(s, fmt::format("{} but {}: no whole number of panels", shape(acc), shape(p)));
    if (acc.element != Element::f32) f.add(s, fmt::format("'{}' does not accumulate in f32", acc.name));
  });
}

void check_row_ops(Findings& f) {
  each<RowReduce>(f, [&](const Stmt& s, const RowReduce& op) {
    expect_axis(f, s, op.acc, Axis::row, a_row);
    expect_axis(f, s, op.src, Axis::stream, a_stream);
    if (!rows_fit(f.kernel[op.acc], f.kernel[op.src]))
      f.add(s, fmt::format("{} but {}", shape(f.kernel[op.acc]), shape(f.kernel[op.src])));
  });
  each<Rescale>(f, [&](const Stmt& s, const Rescale& op) {
    expect_axis(f, s, op.factor, Axis::row, a_row);
    if (f.kernel[op.acc].axis == Axis::stream) f.add(s, fmt::format("'{}' is no state", f.kernel[op.acc].name));
    if (!rows_fit(f.kernel[op.acc], f.kernel[op.factor]))
      f.add(s, fmt::format("{} but {}", shape(f.kernel[op.acc]), shape(f.kernel[op.factor])));
  });
  each<Mask>(f, [&](const Stmt& s, const Mask& op) { expect_axis(f, s, op.tile, Axis::stream, a_stream); });
}

void check_selections(Findings& f) {
  each<Insert>(f, [&](const Stmt& s, const Insert& op) {
    expect_axis(f, s, op.values, Axis::slot, a_slot);
    expect_axis(f, s, op.indices, Axis::slot, a_slot);
    expect_axis(f, s, op.src, Axis::stream, a_stream);
    if (f.kernel[op.values].cols != f.kernel[op.indices].cols)
      f.add(s, fmt::format("{} but {}", shape(f.kernel[op.values]), shape(f.kernel[op.indices])));
    if (f.kernel[op.indices].element != Element::i32) f.add(s, "indices are i32");
  });
  each<Gather>(f, [&](const Stmt& s, const Gather& op) {
    expect_axis(f, s, op.dst, Axis::feature, a_feature);
    expect_axis(f, s, op.indices, Axis::slot, a_slot);
  });
}

void check_maps(Findings& f) {
  each<Map>(f, [&](const Stmt& s, const Map& op) {
    const ValueDecl& dst = f.kernel[op.dst];
    if (has_free_dim(op.expr, slot) && (dst.axis == Axis::row || dst.axis == Axis::stream))
      f.add(s, fmt::format("'{}' has no slots to run over", dst.name));
    for (const Value v : access_of(f.kernel, s).reads) {
      const ValueDecl& read = f.kernel[v];
      if (read.axis == Axis::stream && dst.axis != Axis::stream)
        f.add(s, fmt::format("'{}' is a tile of the stream and '{}' is not", read.name, dst.name));
      if (read.axis == dst.axis && read.cols != dst.cols) f.add(s, fmt::format("{} but {}", shape(dst), shape(read)));
      if (!rows_fit(dst, read) && !rows_fit(read, dst)) f.add(s, fmt::format("{} but {}", shape(dst), shape(read)));
    }
  });
}

// Layouts of the operands of a product, and the instruction family that reads them.
struct Family {
  MmaKind kind;
  Layout score_rows, positions;  // ScoreMma: a, b
  Layout weights, columns;       // SumMma: p, v
  Layout result;                 // dst or acc
  Element operand;
};
constexpr Family families[] = {
    {MmaKind::fma, Layout::row_panels, Layout::position_blocks, Layout::row_panels, Layout::column_blocks,
     Layout::row_panels, Element::f32},
    {MmaKind::pair_dot, Layout::row_pairs, Layout::position_pairs, Layout::row_pairs, Layout::column_pairs,
     Layout::row_panels, Element::bf16},
    {MmaKind::stream, Layout::plain, Layout::plain, Layout::plain, Layout::plain, Layout::plain, Element::f32},
    {MmaKind::tensor, Layout::shared_rows, Layout::shared_rows, Layout::fragments, Layout::shared_rows, Layout::fragments,
     Element::bf16},
    {MmaKind::lanes, Layout::lanes, Layout::lanes, Layout::lanes, Layout::lanes, Layout::lanes, Element::f32},
};

// The matrix instructions of a GPU differ in the type of their operands.
bool is_tensor(MmaKind kind) { return kind == MmaKind::tensor || kind == MmaKind::tf32 || kind == MmaKind::tf32_exact; }

const Family* family_of(Layout streamed) {
  for (const Family& family : families)
    if (family.positions == streamed || family.columns == streamed) return &family;
  return nullptr;
}

void expect_layout(Findings& f, const Stmt& s, Value v, Layout layout) {
  if (f.kernel[v].layout != layout)
    f.add(s, fmt::format("the layout of '{}' does not go with that of the streamed operand", f.kernel[v].name));
}
void expect_element(Findings& f, const Stmt& s, Value v, Element element) {
  if (f.kernel[v].element != element)
    f.add(s, fmt::format("the element type of '{}' does not go with its layout", f.kernel[v].name));
}

// A product that reads the stream where it lies multiplies floats, or pairs of bf16 as they are.
Element operand_element(const Findings& f, const Family& family, Value streamed) {
  if (is_tensor(family.kind)) return f.kernel[streamed].element;
  const bool bf16 = family.kind == MmaKind::stream && f.kernel[streamed].element == Element::bf16;
  return bf16 ? Element::bf16 : family.operand;
}

void check_layouts(Findings& f) {
  each<ScoreMma>(f, [&](const Stmt& s, const ScoreMma& op) {
    const Family* family = family_of(f.kernel[op.b].layout);
    if (!family || family->positions != f.kernel[op.b].layout)
      return f.add(s, fmt::format("no product of scores reads '{}' in its layout", f.kernel[op.b].name));
    expect_layout(f, s, op.a, family->score_rows);
    expect_layout(f, s, op.dst, family->result);
    for (const Value v : {op.a, op.b}) expect_element(f, s, v, operand_element(f, *family, op.b));
  });
  each<SumMma>(f, [&](const Stmt& s, const SumMma& op) {
    const Family* family = family_of(f.kernel[op.v].layout);
    if (!family || family->columns != f.kernel[op.v].layout)
      return f.add(s, fmt::format("no sum of weighted rows reads '{}' in its layout", f.kernel[op.v].name));
    expect_layout(f, s, op.p, family->weights);
    expect_layout(f, s, op.acc, family->result);
    const Element weights = is_tensor(family->kind) ? Element::f32 : operand_element(f, *family, op.v);  // rounded on the way
    expect_element(f, s, op.p, weights);
    expect_element(f, s, op.v, operand_element(f, *family, op.v));
  });
}

// The workspace holds whole row tiles.
void check_saved_shapes(Findings& f) {
  const auto check = [&](const Stmt& s, Value v) {
    if (f.kernel[v].axis == Axis::stream) f.add(s, fmt::format("'{}' is no state", f.kernel[v].name));
  };
  each<Save>(f, [&](const Stmt& s, const Save& op) { check(s, op.state); });
  each<Restore>(f, [&](const Stmt& s, const Restore& op) { check(s, op.state); });
}

void check_spaces(Findings& f) {
  walk(f.kernel.body, [&](const Stmt& s) {
    const Access a = access_of(f.kernel, s);
    for (const auto* list : {&a.writes, &a.updates})
      for (const Value v : *list)
        if (f.kernel[v].space == Space::global)
          f.add(s, fmt::format("'{}' lies in global memory, which only store writes", f.kernel[v].name));
  });
  const auto operand = [&](const Stmt& s, Value v) {
    if (f.kernel[v].space == Space::panel)
      f.add(s, fmt::format("'{}' is an operand of all panels and lies in one", f.kernel[v].name));
  };
  each<ScoreMma>(f, [&](const Stmt& s, const ScoreMma& op) { operand(s, op.a), operand(s, op.b); });
  each<SumMma>(f, [&](const Stmt& s, const SumMma& op) { operand(s, op.v); });
}

void check_kinds(Findings& f) {
  const auto check = [&](const Stmt& s, MmaKind kind, Value streamed) {
    const Family* family = family_of(f.kernel[streamed].layout);
    if (kind == MmaKind::unselected)
      f.add(s, "no instruction is selected");
    else if (!family || (is_tensor(kind) ? !is_tensor(family->kind) : family->kind != kind))
      f.add(s, fmt::format("the selected instruction does not read '{}' in its layout", f.kernel[streamed].name));
  };
  each<ScoreMma>(f, [&](const Stmt& s, const ScoreMma& op) { check(s, op.kind, op.b); });
  each<SumMma>(f, [&](const Stmt& s, const SumMma& op) { check(s, op.kind, op.v); });
}

}  // namespace

std::vector<Rule> shape_rules() {
  return {
      {"values have elements", Stage::tile_loops, check_extents},
      {"score products have fitting shapes", Stage::tile_loops, check_score_products},
      {"sum products have fitting shapes", Stage::tile_loops, check_sum_products},
      {"row ops have fitting shapes", Stage::tile_loops, check_row_ops},
      {"selections have fitting shapes", Stage::tile_loops, check_selections},
      {"maps have fitting shapes", Stage::tile_loops, check_maps},
      {"only states are saved", Stage::tile_loops, check_saved_shapes},
      {"layouts fit the product", Stage::place, check_layouts},
      {"spaces fit the op", Stage::place, check_spaces},
      {"every product has its instruction", Stage::select, check_kinds},
  };
}

}  // namespace attile::ir::rules
