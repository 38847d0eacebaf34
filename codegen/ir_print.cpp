#include <fmt/format.h>

#include "codegen/ir.h"
#include "codegen/walk.h"

namespace attile::ir {

Value Kernel::find(const std::string& value_name) const {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i].name == value_name) return Value{static_cast<int>(i)};
  return Value{};
}

namespace {

const char* text(Element e) {
  switch (e) {
    case Element::f32: return "f32";
    case Element::bf16: return "bf16";
    case Element::f16: return "f16";
    case Element::i32: return "i32";
    case Element::i64: return "i64";
    case Element::boolean: return "bool";
  }
  return "?";
}
const char* text(Space s) {
  switch (s) {
    case Space::global: return "global";
    case Space::workspace: return "workspace";
    case Space::tile: return "tile";
    case Space::panel: return "panel";
  }
  return "?";
}
const char* text(Layout l) {
  switch (l) {
    case Layout::plain: return "plain";
    case Layout::row_panels: return "row_panels";
    case Layout::row_pairs: return "row_pairs";
    case Layout::position_blocks: return "position_blocks";
    case Layout::position_pairs: return "position_pairs";
    case Layout::column_blocks: return "column_blocks";
    case Layout::column_pairs: return "column_pairs";
    case Layout::fragments: return "fragments";
    case Layout::shared_rows: return "shared_rows";
    case Layout::lanes: return "lanes";
  }
  return "?";
}
const char* text(MmaKind k) {
  switch (k) {
    case MmaKind::unselected: return "unselected";
    case MmaKind::fma: return "fma";
    case MmaKind::pair_dot: return "pair_dot";
    case MmaKind::stream: return "stream";
    case MmaKind::tensor: return "tensor";
    case MmaKind::tf32: return "tf32";
    case MmaKind::tf32_exact: return "tf32_exact";
    case MmaKind::lanes: return "lanes";
  }
  return "?";
}
const char* text(Reduce r) { return r == Reduce::max ? "max" : "sum"; }
const char* text(LoopKind k) {
  switch (k) {
    case LoopKind::row_tiles: return "row_tiles";
    case LoopKind::key_tiles: return "key_tiles";
    case LoopKind::panels: return "panels";
  }
  return "?";
}

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel) {}

  std::string run() {
    line(fmt::format("kernel {} {{", kernel_.name));
    ++depth_;
    for (const ValueDecl& v : kernel_.values)
      line(fmt::format("{}: {}[{}x{}] {} {}{}", v.name, text(v.element), v.rows, v.cols, text(v.space), text(v.layout),
                       v.stages > 1 ? fmt::format(" stages {}", v.stages) : ""));
    for (const std::string& scalar : kernel_.positive) line(scalar + " > 0");
    block(kernel_.body);
    --depth_;
    line("}");
    return out_;
  }

 private:
  // One field of an op, by its type.
  std::string field(Value v) const { return v.id < 0 ? "-" : kernel_[v].name; }
  std::string field(const std::string& s) const { return s; }
  std::string field(double d) const { return fmt::format("{}", d); }
  std::string field(bool b) const { return b ? "true" : "false"; }
  std::string field(int i) const { return fmt::format("{}", i); }
  std::string field(const Expr& e) const { return e ? to_string(e) : "-"; }
  std::string field(const std::vector<Value>& list) const {
    std::string text_of = "(";
    for (const Value v : list) text_of += (text_of.size() > 1 ? ", " : "") + kernel_[v].name;
    return text_of + ")";
  }
  template <typename E>
    requires std::is_enum_v<E>
  std::string field(E e) const { return text(e); }

  template <typename OpType>
  std::string fields_of(const OpType& op) const {
    return std::apply([&](const auto&... f) {
      std::string joined;
      ((joined += (joined.empty() ? " " : ", ") + field(f)), ...);
      return joined;
    }, op.fields());
  }

  void block(const Block& body) {
    for (const Stmt& s : body) std::visit([&](const auto& op) { statement(op); }, s.node);
  }
  void nested(const std::string& head, const Block& body) {
    line(head + " {");
    ++depth_;
    block(body);
    --depth_;
    line("}");
  }
  template <typename OpType>
  void statement(const OpType& op) { line(OpType::name + fields_of(op)); }
  void statement(const Loop& op) {
    std::string head = fmt::format("loop {} carry {}", text(op.kind), field(op.carry));
    if (op.skip_unless) head += " unless " + field(op.skip_unless);
    nested(head, op.body);
  }
  void statement(const Advance& op) { nested("advance" + fields_of(op), op.body); }
  void statement(const Sweep& op) { nested("sweep", op.body); }
  void statement(const Visibility& op) {
    line(fmt::format("visibility {} watching {}", field(op.predicate), field(op.watched)));
    nested("plain", op.plain);
    nested("masked", op.masked);
    if (!op.guarded.empty()) nested("guarded", op.guarded);
    if (!op.hidden.empty()) nested("hidden", op.hidden);
  }
  void line(const std::string& text_of_line) { out_ += std::string(static_cast<std::size_t>(depth_) * 2, ' ') + text_of_line + "\n"; }

  const Kernel& kernel_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string print(const Kernel& kernel) { return Printer(kernel).run(); }

}  // namespace attile::ir
