// lanes: fragments: operands of products in shared memory, everything else in a warp's registers as the accumulators of
// mma.m16n8 have them (device/tile.cuh: Fragment, RowState). Element loops run over i (16 rows), j (8 columns) and e.
#include <fmt/format.h>

#include "codegen/cuda_form.h"
#include "dsl/error.h"
#include "schedules/cuda_footprint.h"

namespace attile::cuda_text {
namespace {

using ir::Axis;

class Fragments : public Form {
 public:
  explicit Fragments(Frame& frame)
      : Form(frame), by_rows_(frame.schedule().partition == Partition::rows), sharers_(frame.schedule().column_warps),
        M_(frame.panel_rows() / 16), N_(warp_positions(frame.schedule()) / 8),
        footprint_(cuda_footprint(frame.algorithm(), frame.context.problem, frame.schedule())) {
    lay_out();
  }

  std::int64_t shared_bytes() const override { return footprint_.shared(); }

  void begin_task() override {
    CodeWriter& out = frame_.out;
    out.line("extern __shared__ __align__(128) char shared[];");
    out.line("const u32 memory = shared_address(shared);");
    if (sharers_ > 1)
      begin_group();
    else if (by_rows_)
      out.line("const i32 panel = warp() * $rows, share = 0;", {{"rows", number(frame_.panel_rows())}});
    else
      out.line("const i32 panel = 0, share = warp() * $positions;", {{"positions", number(8 * N_)}});
    out.line("const i32 first_row = tile_row + panel + lane() / 4, first_column = lane() % 4 * 2;");
    out.line("const i32 rows = min_(all_rows - tile_row, $tile);", {{"tile", number(frame_.schedule().tile_rows)}});
    for (const Operand& o : operands_) o.streamed ? stream_loader(o) : void();
  }

  void copy(const ir::Copy& op) override {
    const Operand& o = operand(op.dst);
    CodeWriter& out = frame_.out;
    out.line("const $tile $name{memory + $offset};", {{"tile", tile_type(o)}, {"name", o.tile()}, {"offset", number(o.offset)}});
    out.line("clear_padding<threads>($name);", {{"name", o.tile()}});
    const std::string address = row_address(op.tensor);
    out.line("copy_rows_async<threads>($name, rows, [&](i32 r) { return $address; }, $aligned != 0);",
             {{"name", o.tile()}, {"address", address}, {"aligned", aligned(op.tensor)}});
    out.line("cp_async_commit();");
    if (frame_.schedule().rows_in_registers)
      out.line("RowOperand<$type, $m, $d> $name;", {{"type", o.type}, {"m", number(M_)}, {"d", number(o.columns)}, {"name", o.name + "_rows"}});
  }

  void prefetch(const ir::Prefetch& op) override {
    frame_.out.line("load_$name(coming, place);", {{"name", operand(op.dst).name}});
  }

  // Row operands come from shared memory once, when their copy is known to be there.
  void begin_stream() override {
    if (!frame_.schedule().rows_in_registers) return;
    frame_.out.line("cp_async_wait<$n>();", {{"n", number(frame_.schedule().stages - 1)}});
    frame_.out.line("__syncthreads();");
    for (const Operand& o : operands_)
      if (!o.streamed) frame_.out.line("load_rows($name, $tile, panel);", {{"name", o.name + "_rows"}, {"tile", o.tile()}});
  }

  void await(const ir::Await& op) override {
    frame_.out.line("cp_async_wait<$pending>();", {{"pending", number(op.pending)}});
    frame_.out.line("__syncthreads();");
  }

  void begin_positions() override { frame_.out.line("const i32 first_position = position + share + first_column;"); }

  Region panel_region() const override {
    return by_rows_ ? Region{"(tile_row + panel)", number(frame_.panel_rows()), "position", number(frame_.schedule().tile_keys)}
                    : Region{"tile_row", number(frame_.schedule().tile_rows), "(position + share)", number(8 * N_)};
  }
  Region task_region() const override {
    return {"tile_row", number(frame_.schedule().tile_rows), "position", number(frame_.schedule().tile_keys)};
  }

  void fill(const ir::Fill& op) override {
    declare(op.dst);
    frame_.out.line("fill($name, $value);", {{"name", name(op.dst)}, {"value", constant_text(op.constant, Kind::real)}});
  }

  void score(const ir::ScoreMma& op) override {
    const Operand &rows = operand(op.a), &k = operand(op.b);
    declare(op.dst);
    frame_.out.line("fill($s, 0.0f);", {{"s", name(op.dst)}});
    frame_.out.line("score_mma$exact($s, $q, panel, $k, share);",
                    {{"exact", template_arguments(op.kind, k.type, false)}, {"s", name(op.dst)},
                     {"q", frame_.schedule().rows_in_registers ? rows.name + "_rows" : rows.tile()}, {"k", current(k)}});
  }

  void sum(const ir::SumMma& op) override {
    const Operand& v = operand(op.v);
    if (sharers_ > 1) return shared_sum(op, v);
    frame_.out.line("$call$exact($o, $p, $v, share);",
                    {{"call", op.guarded ? "sum_mma_guarded" : "sum_mma"}, {"exact", template_arguments(op.kind, v.type, true)},
                     {"o", name(op.acc)}, {"p", name(op.p)}, {"v", current(v)}});
  }

  void map(const ir::Map& op) override {
    const Axis axis = decl(op.dst).axis;
    const ir::Value whole = op.expr->op == Op::variable ? frame_.kernel.find(op.expr->name) : ir::Value{};
    if (whole.id >= 0 && decl(whole).axis == axis) {
      declare(op.dst);
      frame_.out.line("$dst = $src;", {{"dst", name(op.dst)}, {"src", name(whole)}});
      return;
    }
    declare(op.dst);
    if (axis != Axis::stream || !weights(op)) assign(op.dst, op.expr);
  }

  void mask(const ir::Mask& op) override {
    elements(Axis::stream, op.tile, [&] {
      const std::string visible = expr_.text(predicate_);
      frame_.out.line("if (!$visible) $x = $hidden;",
                      {{"visible", visible}, {"x", element_of(op.tile)}, {"hidden", constant_text(op.hidden, Kind::real)}});
    });
  }

  void row_reduce(const ir::RowReduce& op) override {
    CodeWriter& out = frame_.out;
    if (op.op == ir::Reduce::sum) return out.line("row_sum($acc, $src);", {{"acc", name(op.acc)}, {"src", name(op.src)}});
    out.line("row_max($acc, $src);", {{"acc", name(op.acc)}, {"src", name(op.src)}});
    if (sharers_ > 1) out.line("group_max($acc, group);", {{"acc", name(op.acc)}});
  }

  void rescale(const ir::Rescale& op) override {
    const bool always = decl(op.acc).axis == Axis::row || frame_.schedule().lazy_rescale;
    const char* text = always ? "rescale($acc, $factor);" : "if (any_differs_from_one($factor)) rescale($acc, $factor);";
    frame_.out.line(text, {{"acc", name(op.acc)}, {"factor", name(op.factor)}});
  }

  std::string must_advance(const ir::Advance& op) override {
    frame_.out.line("bool grown = false;");
    elements(Axis::row, op.reference, [&] {
      const std::string scale = op.scale.empty() ? "" : " * " + expr_.real(op.scale);
      frame_.out.line("grown |= !(($maximum - $reference)$scale <= $slack);",
                      {{"maximum", element_of(op.maximum)}, {"reference", element_of(op.reference)}, {"scale", scale}, {"slack", constant_text(op.slack, Kind::real)}});
    });
    return "__any_sync(~0u, grown)";
  }

  void end_stream(const ir::Loop& op) override {
    for (const ir::Value v : op.carry)
      if (decl(v).axis == Axis::row && is_sum(v)) {
        frame_.out.line("quad_sum($l);", {{"l", name(v)}});
        if (sharers_ > 1) frame_.out.line("group_sum($l, group);", {{"l", name(v)}});
      }
    frame_.out.line("cp_async_wait<0>();");   // of the row operands, where there was no tile to await
    frame_.out.line("__syncthreads();");
  }

  void join(const ir::Join& op) override {
    CodeWriter& out = frame_.out;
    const std::string warps = number(frame_.schedule().warps);
    const auto add_up = [&](ir::Value v) { out.line("all_reduce_sum<$warps>($v, memory);", {{"warps", warps}, {"v", name(v)}}); };
    if (op.reference.id < 0) {
      for (const ir::Value v : op.sums) add_up(v);
      return leave_scratch();
    }
    const std::string joined = name(op.joined), factor = joined + "_factor";
    is_new(op.joined);
    out.line("$type $joined = $reference;", {{"type", row_type()}, {"joined", joined}, {"reference", name(op.reference)}});
    out.line("all_reduce_max<$warps>($joined, memory);", {{"warps", warps}, {"joined", joined}});
    if (!op.factor.empty()) out.line("$type $factor;", {{"type", row_type()}, {"factor", factor}});
    guarded_ = op.joined;
    if (!op.factor.empty()) elements(Axis::row, op.reference, [&] {
      const std::string value = expr_.real(op.factor);
      out.line("$factor.x[i][h] = $value;", {{"factor", factor}, {"value", value}});
    });
    guarded_ = {};
    for (const ir::Value v : op.sums) {
      if (!op.factor.empty()) out.line("rescale($v, $factor);", {{"v", name(v)}, {"factor", factor}});
      add_up(v);
    }
    out.line("$reference = $joined;", {{"reference", name(op.reference)}, {"joined", joined}});
    leave_scratch();
  }
  // Results pass through the memory that other warps may still read.
  void leave_scratch() { frame_.out.line("__syncthreads();"); }
  std::string finishing() const override { return by_rows_ ? "" : "warp() == 0"; }

  void insert(const ir::Insert&) override { internal_check(false, "a selection among fragments"); }
  void gather(const ir::Gather&) override { internal_check(false, "a gather into fragments"); }

  void store(const ir::Store& op) override {
    if (decl(op.src).axis == Axis::feature) return store_rows(op);
    const bool row = decl(op.src).axis == Axis::row;
    const std::string inside = row ? std::string(sharers_ > 1 ? "group.share == 0 && " : "") + "lane() % 4 == 0 && $row < all_rows" : "$row < all_rows && $position < position_length";
    elements(decl(op.src).axis, op.src, [&] {
      const std::string offset = frame_.offset(op.tensor, output_indices(op.tensor));
      const std::string where = row ? filled(inside, {{"row", row_}}) : filled(inside, {{"row", row_}, {"position", position_}});
      frame_.out.line("if ($inside) $data[$offset] = $value;",
                      {{"inside", where}, {"data", frame_.args.data(op.tensor)}, {"offset", offset}, {"value", stored(op.tensor, element_of(op.src))}});
    });
  }

  // Leaves of expressions
  std::string variable(const Node& node) override {
    const ir::Value v = frame_.kernel.find(node.name);
    internal_check(v.id >= 0, "unknown value " + node.name);
    if (v == guarded_) return fmt::format("({0} == -infinity() ? 0.0f : {0})", element_of(v));
    return element_of(v);
  }
  std::string reduce_sum(const Node&) override {
    internal_check(false, "a sum over slots among fragments");
    return {};
  }
  const Counted* counted() const override { return position_.empty() ? nullptr : &counted_; }
  std::string random(const std::string& seed, const std::string& offset) override {
    const std::string stream = fmt::format("static_cast<u32>(sequence * {} + {})", frame_.args.size("heads"), index(head));
    return fmt::format("static_cast<i64>(philox_pair(static_cast<u32>({}), {}, static_cast<u32>({}), static_cast<u32>(first_position + 8 * j), static_cast<u64>({}), e % 2))",
                       offset, stream, index(query), seed);
  }

 private:
  // A tensor that a product reads: where its tiles lie in shared memory.
  struct Operand {
    ir::Value value;
    std::string name, type;
    std::int64_t rows, columns, offset, bytes;
    bool streamed;
    std::string tile() const { return name + "_tile"; }
  };

  // Eights of columns that a warp has of a value.
  std::int64_t own_columns(ir::Value v) const {
    const std::int64_t eights = (decl(v).cols + 7) / 8;
    internal_check(eights % sharers_ == 0, "each warp has whole eights of columns");
    return eights / sharers_;
  }

  // Behind the operands: weights on their way, then maxima.
  std::int64_t weights_offset() const { return footprint_.row_operands + footprint_.stream_operands; }

  void begin_group() {
    frame_.out.line("const ColumnGroup<$warps> group{warp() / $warps, warp() % $warps, memory + $maxima + warp() / $warps * $bytes};",
                    {{"warps", number(sharers_)}, {"maxima", number(weights_offset() + footprint_.weights)}, {"bytes", number(sharers_ * 64 * M_)}});
    frame_.out.line("const i32 panel = group.panel * $rows, share = group.share * $positions;", {{"rows", number(frame_.panel_rows())}, {"positions", number(8 * N_)}});
  }
  // The first of a warp's columns of a value that is shared.
  std::string first_feature(ir::Value v) const { return fmt::format("group.share * {}", 8 * own_columns(v)); }

  void shared_sum(const ir::SumMma& op, const Operand& v) {
    CodeWriter& out = frame_.out;
    const std::string weights = name(op.p) + "_tile";
    out.line("const SharedTile<$type, $rows, $keys> $weights{memory + $offset};",
             {{"type", v.type}, {"rows", number(frame_.schedule().tile_rows)}, {"keys", number(frame_.schedule().tile_keys)}, {"weights", weights},
              {"offset", number(weights_offset())}});
    out.line("share_weights($p, $weights, panel, share, group);", {{"p", name(op.p)}, {"weights", weights}});
    out.line("$call$exact($o, $weights, panel, $v, $first);",
             {{"call", op.guarded ? "sum_mma_shared_guarded" : "sum_mma_shared"}, {"exact", template_arguments(op.kind, v.type, true)}, {"o", name(op.acc)},
              {"weights", weights}, {"v", current(v)}, {"first", first_feature(op.acc)}});
  }

  static std::string number(std::int64_t n) { return fmt::format("{}", n); }

  // exp((scores − reference of the row) · scale) of 16-bit operands, whose products are no more exact than one fused
  // operation; false: something else.
  bool weights(const ir::Map& op) {
    if (op.expr->op != Op::exp || operands_.front().type == "float") return false;
    Expr distance = op.expr->args[0];
    std::string factor = "log2e";
    if (distance->op == Op::mul && distance->args[1]->op == Op::scalar) {
      factor = expr_.real(distance->args[1]) + " * log2e";
      distance = distance->args[0];
    }
    if (distance->op != Op::sub) return false;
    const auto is = [&](const Expr& e, Axis axis) { return e->op == Op::variable && decl(frame_.kernel.find(e->name)).axis == axis; };
    const Expr &score = distance->args[0], &reference = distance->args[1];
    if (!is(score, Axis::stream) || !is(reference, Axis::row)) return false;
    frame_.out.line("exp2_distance($p, $s, $reference, $factor);",
                    {{"p", name(op.dst)}, {"s", name(frame_.kernel.find(score->name))}, {"reference", name(frame_.kernel.find(reference->name))}, {"factor", factor}});
    return true;
  }

  void lay_out() {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < frame_.kernel.values.size(); ++i) {
      const ir::Value v{static_cast<int>(i)};
      const ir::ValueDecl& d = decl(v);
      if (d.space != ir::Space::tile) continue;
      const bool streamed = d.stages > 1 || is_streamed(d.name);
      const std::int64_t pitch = shared_pitch(d.cols, frame_.dtype(d.name));
      operands_.push_back({v, name(v), frame_.type(d.name), d.rows, d.cols, at, pitch * d.rows, streamed});
      at += pitch * d.rows * d.stages;
    }
  }
  bool is_streamed(const std::string& tensor) const {
    const Dims& dims = frame_.dims_of(tensor);
    return std::find(dims.begin(), dims.end(), frame_.algorithm().streamed) != dims.end();
  }
  const Operand& operand(ir::Value v) const {
    for (const Operand& o : operands_)
      if (o.value == v) return o;
    internal_check(false, "no operand " + name(v));
    return operands_.front();
  }

  std::string tile_type(const Operand& o) const { return fmt::format("SharedTile<{}, {}, {}>", o.type, o.rows, o.columns); }
  // The tile of a streamed operand that this iteration works on.
  std::string current(const Operand& o) const {
    const bool ring = frame_.schedule().stages > 1;
    return fmt::format("{}{{memory + {}{}}}", tile_type(o), o.offset, ring ? fmt::format(" + slot * {}", o.bytes) : "");
  }
  // The unit that copies of the tensor's rows move.
  int unit_of(const std::string& tensor) const {
    const std::int64_t row = static_cast<std::int64_t>(size_of(frame_.dtype(tensor))) * frame_.context.problem.extents.at(frame_.dims_of(tensor).back().name);
    return row % 16 == 0 ? 16 : row % 8 == 0 ? 8 : 4;
  }
  std::string aligned(const std::string& tensor) { return frame_.args.aligned(tensor, unit_of(tensor)); }
  // Where row number `tile_row + r` of a tensor is, as the body of a function of r. Where rows follow each other, 64-bit
  // offsets end at the tile.
  std::string row_address(const std::string& tensor) {
    if (frame_.group_in_rows()) return fmt::format("{} + {}", frame_.args.data(tensor), frame_.row_offset(tensor, "(tile_row + r)"));
    const std::string start = identifier(tensor) + "_rows_start";
    frame_.out.line("const auto $start = $data + $offset;", {{"start", start}, {"data", frame_.args.data(tensor)}, {"offset", frame_.row_offset(tensor, "tile_row")}});
    const Dims& dims = frame_.dims_of(tensor);
    const auto dim = static_cast<int>(std::find(dims.begin(), dims.end(), frame_.algorithm().parallel) - dims.begin());
    return fmt::format("{} + r * {}", start, frame_.args.stride(tensor, dim));
  }

  // What copies a tile of the stream to a place in its ring.
  void stream_loader(const Operand& o) {
    CodeWriter& out = frame_.out;
    const std::string& tensor = decl(o.value).name;
    const Dims& dims = frame_.dims_of(tensor);
    int dim = 0;
    while (dims[static_cast<std::size_t>(dim)] != frame_.algorithm().streamed) ++dim;
    out.line("const $type* const $name_start = $data + $offset;",
             {{"type", o.type}, {"name_start", o.name + "_start"}, {"data", frame_.args.data(tensor)}, {"offset", frame_.row_offset(tensor, {}, "0")}});
    const bool scattered = frame_.context.problem.scattered;
    if (!scattered)
      frame_.near_rows.push_back({tensor, dim, unit_of(tensor), (std::int64_t{1} << 31) / (o.rows * static_cast<std::int64_t>(size_of(frame_.dtype(tensor))))});
    out.line("const auto load_$name = [&](i32 t, i32 place) {", {{"name", o.name}});
    out.line("copy_rows_async<threads>($tile{memory + $offset + place * $bytes}, position_length - t * $keys,",
             {{"tile", tile_type(o)}, {"offset", number(o.offset)}, {"bytes", number(o.bytes)}, {"keys", number(o.rows)}});
    out.line("                          rows_at($start + t * $keys * $stride, $stride), $near);",
             {{"start", o.name + "_start"}, {"keys", number(o.rows)}, {"stride", frame_.args.stride(tensor, dim)}, {"near", scattered ? "false" : "true"}});
    out.line("};");
    if (shared_columns(o.columns) == o.columns) return;
    out.line("for (i32 place = 0; place < $stages; ++place) clear_padding<threads>($tile{memory + $offset + place * $bytes});",
             {{"stages", number(frame_.schedule().stages)}, {"tile", tile_type(o)}, {"offset", number(o.offset)}, {"bytes", number(o.bytes)}});
  }

  static std::string template_arguments(ir::MmaKind kind, const std::string& type, bool sum) {
    if (kind == ir::MmaKind::tf32) return "<float, false>";
    return sum ? fmt::format("<{}>", type) : "";
  }

  std::string row_type() const { return fmt::format("RowState<{}>", M_); }
  std::string type_of(ir::Value v) const {
    const ir::ValueDecl& d = decl(v);
    if (d.axis == Axis::row) return row_type();
    return fmt::format("Fragment<{}, {}>", M_, d.axis == Axis::stream ? N_ : own_columns(v));
  }
  void declare(ir::Value v) override {
    if (is_new(v)) frame_.out.line("$type $name;", {{"type", type_of(v)}, {"name", name(v)}});
  }
  std::string element_of(ir::Value v) const {
    if (decl(v).axis == Axis::row) return fmt::format("{}.x[i][{}]", name(v), in_rows_ ? "h" : "e / 2");
    return fmt::format("{}.x[i][j][e]", name(v));
  }
  void assign(ir::Value dst, const Expr& e) {
    elements(decl(dst).axis, dst, [&] {
      const std::string value = expr_.real(e);
      frame_.out.line("$dst = $value;", {{"dst", element_of(dst)}, {"value", value}});
    });
  }

  bool is_sum(ir::Value v) const {
    for (const StateDecl& s : frame_.algorithm().states)
      if (s.name == decl(v).name) return s.kind == StateKind::sum;
    return false;
  }

  // The loops over a thread's elements of a value, with the element's place known to expressions inside.
  void elements(Axis axis, ir::Value v, const std::function<void()>& body) {
    CodeWriter& out = frame_.out;
    const std::int64_t columns = axis == Axis::stream ? N_ : axis == Axis::feature ? own_columns(v) : 1;
    const auto each = [&](const char* variable, std::int64_t n) {
      out.line("#pragma unroll");
      out.line("for (int $x = 0; $x < $n; ++$x) {", {{"x", variable}, {"n", number(n)}});
    };
    in_rows_ = axis == Axis::row;
    each("i", M_);
    if (!in_rows_) each("j", columns);
    in_rows_ ? each("h", 2) : each("e", 4);
    row_ = in_rows_ ? "(first_row + 16 * i + 8 * h)" : "(first_row + 16 * i + 8 * (e / 2))";
    if (axis == Axis::stream) position_ = "(first_position + 8 * j + e % 2)";
    if (axis == Axis::feature)
      column_ = sharers_ > 1 ? fmt::format("({} + first_column + 8 * j + e % 2)", first_feature(v)) : "(first_column + 8 * j + e % 2)";
    body();
    row_ = position_ = column_ = "";
    for (int closing = in_rows_ ? 2 : 3; closing > 0; --closing) out.line("}");
    in_rows_ = false;
  }

  // Warps that share rows store their columns through memory of their own.
  void store_rows(const ir::Store& op) {
    const std::int64_t own = sharers_ > 1 ? 8 * own_columns(op.src) : decl(op.src).cols;
    const std::string type = frame_.type(op.tensor), columns = number(own), rows = number(frame_.schedule().tile_rows);
    const std::string place = sharers_ > 1 ? fmt::format("memory + group.share * {}", frame_.schedule().tile_rows * 2 * own) : "memory";
    std::string address = row_address(op.tensor);
    if (sharers_ > 1) address += " + " + first_feature(op.src);
    address = fmt::format("[&](i32 r) {{ return {}; }}", address);
    if (type == "float")
      return frame_.out.line("store_rows<$columns>($src, panel, rows, $address, $aligned != 0);",
                             {{"columns", columns}, {"src", name(op.src)}, {"address", address}, {"aligned", frame_.args.aligned(op.tensor, 8)}});
    frame_.out.line("store_rows($src, SharedTile<$type, $rows, $columns>{$place}, panel, rows, $address, $aligned != 0);",
                    {{"src", name(op.src)}, {"type", type}, {"rows", rows}, {"columns", columns}, {"place", place},
                     {"address", address}, {"aligned", aligned(op.tensor)}});
  }

  const bool by_rows_;
  const std::int64_t sharers_;  // warps that have the same rows
  const std::int64_t M_, N_;
  const CudaFootprint footprint_;
  std::vector<Operand> operands_;
  bool in_rows_ = false;
  ir::Value guarded_;
  const Counted counted_{frame_.algorithm().streamed, "first_position", "(8 * j + e % 2)"};
};

}  // namespace

std::unique_ptr<Form> make_fragments(Frame& frame) { return std::make_unique<Fragments>(frame); }

}  // namespace attile::cuda_text
