#include "codegen/emit_cuda.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda_tiles.h"
#include "codegen/walk.h"
#include "dsl/error.h"

namespace attile {
namespace {

using namespace cuda_text;

std::string number(std::int64_t n) { return fmt::format("{}", n); }

class Emitter {
 public:
  Emitter(const ir::LoweredKernel& lowered, const ir::Context& context)
      : role_(lowered.role), frame_(lowered.kernel, context, lowered.role == ir::Role::partial), out_(frame_.out),
        form_(context.schedule.lanes == Lanes::fragments ? make_fragments(frame_) : make_lanes(frame_)),
        intervals_(frame_, form_->expr()), tiles_(frame_, *form_, intervals_) {
    form_->set_predicate(context.algorithm.visible);
  }

  EmittedKernel run() {
    EmittedKernel result;
    result.name = identifier(frame_.kernel.name);
    meet_other_kernel(result);
    locate_task();
    form_->begin_task();
    block(frame_.kernel.body);
    result.text = head() + frame_.parameters_text() + signature(result.name) + body() + "}\n";
    result.ir = ir::print(frame_.kernel);
    result.parameters = frame_.args.parameters();
    result.tile_rows = frame_.schedule().tile_rows;
    result.group_in_rows = frame_.group_in_rows();
    result.per_part = frame_.split;
    result.threads = form_->threads();
    result.shared_bytes = form_->shared_bytes();
    result.positive = frame_.kernel.positive;
    result.near_rows = frame_.near_rows;
    return result;
  }

 private:
  // The merge reads what the partial kernel wrote, and should be there when that ends.
  void meet_other_kernel(EmittedKernel& result) {
    if (!frame_.context.target.dependent_launch) return;
    if (role_ == ir::Role::partial) out_.line("griddepcontrol_launch_dependents();");
    if (role_ != ir::Role::merge) return;
    out_.line("griddepcontrol_wait();");
    result.follows_early = true;
  }
  std::string head() const {
    const bool fragments = frame_.schedule().lanes == Lanes::fragments;
    const char* products = frame_.schedule().column_warps > 1 ? "#include \"sm80/columns.cuh\"\n" : "#include \"sm80/guarded.cuh\"\n";
    return fmt::format("// {} | {}\n// {}\n", frame_.kernel.name, to_string(frame_.context.problem), to_string(frame_.schedule())) +
           (fragments ? std::string("#include \"rowwise.cuh\"\n") + products : "#include \"lanes.cuh\"\n") +
           "#include \"visibility.cuh\"\n\nusing namespace attile;\n\n";
  }
  std::string signature(const std::string& name) const {
    return fmt::format("\nconstexpr int threads = {};\n\nextern \"C\" __global__ void __launch_bounds__(threads, {}) {}(const __grid_constant__ Arguments a) {{\n",
                       form_->threads(), frame_.schedule().blocks_per_sm, name);
  }
  // The lines of the kernel, one level in.
  std::string body() const {
    const std::string lines = without_unread(out_.text());
    std::string text;
    for (std::size_t begin = 0; begin < lines.size();) {
      const std::size_t end = lines.find('\n', begin);
      const std::string line = lines.substr(begin, end - begin);
      text += (line.empty() || line.starts_with('#') ? line : "  " + line) + "\n";
      begin = end + 1;
    }
    return text;
  }

  // task → part, row tile, head, sequence; then the lengths of that sequence and the rows of the tile.
  void locate_task() {
    out_.line("u32 task = blockIdx.x + gridDim.x * blockIdx.y;");
    const auto peel = [&](const char* name, const std::string& count) {
      out_.line("const i32 $name = static_cast<i32>(task % static_cast<u32>($count));", {{"name", name}, {"count", count}});
      out_.line("task /= static_cast<u32>($count);", {{"count", count}});
    };
    if (frame_.split) peel("part", frame_.args.size("parts"));
    peel("tile_number", frame_.args.size("row_tiles"));
    const std::int64_t group = frame_.context.problem.group;
    if (frame_.group_in_rows()) {
      peel("kv_head", frame_.args.size("kv_heads"));
    } else {
      peel("head", frame_.args.size("heads"));
      out_.line("const i32 kv_head = head / $group;", {{"group", number(group)}});
    }
    if (frame_.schedule().longest_first)
      out_.line("const i32 row_tile = static_cast<i32>($tiles) - 1 - tile_number;", {{"tiles", frame_.args.size("row_tiles")}});
    else
      out_.line("const i32 row_tile = tile_number;");
    locate_sequence();
    const std::int64_t rows_per_query = frame_.rows_per_query();
    out_.line("const i32 all_rows = row_length * $group;", {{"group", number(rows_per_query)}});
    out_.line("if (tile_row >= all_rows) return;");
  }

  void locate_sequence() {
    const Lengths lengths = frame_.algorithm().lengths;
    const bool over_keys = frame_.algorithm().streamed == key;
    if (lengths == Lengths::packed) {
      locate_packed();
    } else {
      out_.line("const i32 sequence = static_cast<i32>(task);");
      out_.line("const i32 row_length = static_cast<i32>($rows);", {{"rows", frame_.args.size("rows")}});
      const std::string keys = frame_.args.size(over_keys ? "positions" : "keys");
      if (lengths == Lengths::used)
        out_.line("const i32 key_length = bound($lens, $stride, sequence, $keys);",
                  {{"lens", frame_.args.data("kv_lens")}, {"stride", frame_.args.stride("kv_lens", 0)}, {"keys", keys}});
      else
        out_.line("const i32 key_length = static_cast<i32>($keys);", {{"keys", keys}});
      out_.line("const i32 tile_row = row_tile * $tile;", {{"tile", number(frame_.schedule().tile_rows)}});
    }
    out_.line("const i32 position_length = $length;",
              {{"length", over_keys ? "key_length" : "static_cast<i32>(" + frame_.args.size("positions") + ")"}});
  }

  void locate_packed() {
    const auto data = [&](const char* name) { return frame_.args.data(name); };
    const auto stride = [&](const char* name) { return frame_.args.stride(name, 0); };
    const std::string rows = frame_.args.size("rows"), keys = frame_.args.size(frame_.algorithm().streamed == key ? "positions" : "keys");
    const std::string group = number(frame_.rows_per_query()), tile = number(frame_.schedule().tile_rows);
    out_.line("const i32 sequence = owner($q, $stride, static_cast<i32>($sequences), $rows, $group, $tile, row_tile);",
              {{"q", data("cu_seqlens_q")}, {"stride", stride("cu_seqlens_q")}, {"sequences", frame_.args.size("sequences")}, {"rows", rows}, {"group", group}, {"tile", tile}});
    const auto bounds = [&](const char* name, const char* tensor, const std::string& limit) {
      out_.line("const i64 $name_start = bound($data, $stride, sequence, $limit);", {{"name_start", std::string(name) + "_start"}, {"data", data(tensor)}, {"stride", stride(tensor)}, {"limit", limit}});
    };
    bounds("row", "cu_seqlens_q", rows);
    bounds("position", "cu_seqlens_k", keys);
    const auto length = [&](const char* name, const char* start, const char* tensor, const std::string& limit) {
      out_.line("const i32 $name = max_(0, static_cast<i32>(bound($data, $stride, sequence + 1, $limit) - $start));",
                {{"name", name}, {"start", start}, {"data", data(tensor)}, {"stride", stride(tensor)}, {"limit", limit}});
    };
    length("row_length", "row_start", "cu_seqlens_q", rows);
    length("key_length", "position_start", "cu_seqlens_k", keys);
    out_.line("const i32 tile_row = (row_tile - static_cast<i32>(row_start * $group / $tile) - sequence) * $tile;", {{"group", group}, {"tile", tile}});
  }

  void block(const ir::Block& statements) {
    for (const ir::Stmt& s : statements)
      std::visit(ir::overloaded{
                     [&](const ir::Copy& op) { form_->copy(op); },
                     [&](const ir::Prefetch& op) { prefetch(op); },
                     [&](const ir::Await& op) { form_->await(op); },
                     [&](const ir::Release&) { out_.line("__syncthreads();"); },
                     [&](const ir::Fill& op) { fill(op); },
                     [&](const ir::ScoreMma& op) { form_->score(op); },
                     [&](const ir::SumMma& op) { form_->sum(op); },
                     [&](const ir::Map& op) { form_->map(op); },
                     [&](const ir::Mask& op) { form_->mask(op); },
                     [&](const ir::RowReduce& op) { form_->row_reduce(op); },
                     [&](const ir::Rescale& op) { form_->rescale(op); },
                     [&](const ir::Advance& op) { advance(op); },
                     [&](const ir::Join& op) { form_->join(op); },
                     [&](const ir::Insert& op) { form_->insert(op); },
                     [&](const ir::Gather& op) { form_->gather(op); },
                     [&](const ir::Store& op) { form_->store(op); },
                     [&](const ir::Sweep& op) { block(op.body); },
                     [&](const ir::Loop& op) { op.kind == ir::LoopKind::key_tiles ? key_tiles(op) : panels(op); },
                     [&](const auto& op) { internal_check(false, std::string(op.name) + " has no form on a GPU"); },
                 },
                 s.node);
  }

  // Hidden positions are multiplied by 0 first. Where their values are no numbers, a sum is NaN at the end, and the task
  // starts again `guarded`, passing over them. That is another copy of the loop, so that the usual one gives it no register.
  void fill(const ir::Fill& op) {
    if (!filling_ && guards(frame_.kernel.body)) {
      for (const ir::Stmt& s : frame_.kernel.body)
        if (const auto* other = std::get_if<ir::Fill>(&s.node)) form_->declare(other->dst);
      out_.line("const auto sweep = [&](auto guarded) __attribute__((always_inline)) {");
      guards_ = true;
    }
    filling_ = true;
    form_->fill(op);
  }
  bool guards(const ir::Block& body) const {
    if (frame_.schedule().lanes != Lanes::fragments) return false;   // a form that passes over hidden positions anyway
    for (const ir::Stmt& s : body) {
      if (const auto* v = std::get_if<ir::Visibility>(&s.node); v && !v->guarded.empty() && !is_bound_only(v->predicate, frame_.algorithm())) return true;
      for (const ir::Block* inner : ir::blocks_of(s))
        if (guards(*inner)) return true;
    }
    return false;
  }
  void end_guard(const ir::Loop& op) {
    if (!guards_) return;
    std::string bad = "false";
    for (const ir::Value v : op.carry)
      if (frame_.kernel[v].axis == ir::Axis::feature && frame_.kernel[v].space == ir::Space::panel) bad = either(bad, form_->has_nan(v));
    out_.line("};");
    out_.line("sweep(No{});");
    out_.line("if (__syncthreads_or($bad)) {", {{"bad", bad}});
    out_.line("cp_async_wait<0>();");   // of tiles that were on their way when the first one ended
    out_.line("sweep(Yes{});");
    out_.line("}");
  }

  void advance(const ir::Advance& op) {
    const std::string needed = form_->must_advance(op);
    out_.line("if ($needed) {", {{"needed", needed}});
    form_->enter();
    block(op.body);
    form_->leave();
    out_.line("}");
  }

  void key_tiles(const ir::Loop& op) {
    tiles_.start(op);
    hoist_for_panels(op);
    for (const ir::Stmt& s : op.body)
      if (const auto* prefetch = std::get_if<ir::Prefetch>(&s.node)) copies_.push_back(*prefetch);
    first_copies();
    form_->begin_stream();
    out_.line(tiles_.ahead() > 0 ? "for (i32 slot = 0; tile < end_tile;) {" : "while (tile < end_tile) {");
    form_->enter();
    out_.line("const i32 position = tile * $keys;", {{"keys", number(frame_.schedule().tile_keys)}});
    block(op.body);
    form_->leave();
    tiles_.next();
    if (tiles_.ahead() > 0) out_.line("slot = slot + 1 < $n ? slot + 1 : 0;", {{"n", number(frame_.schedule().stages)}});
    out_.line("}");
    end_guard(op);
    form_->end_stream(op);
  }

  void first_copies() {
    if (tiles_.ahead() == 0) return;
    out_.line("#pragma unroll 1");
    out_.line("for (i32 place = 0; place < $n; ++place) {", {{"n", number(tiles_.ahead())}});
    for (const ir::Prefetch& p : copies_) form_->prefetch(p);
    out_.line("cp_async_commit();");
    tiles_.next();
    out_.line("}");
  }
  // Where an iteration begins the copies of a later tile: at once, or (late_copies) between its weights and its sums,
  // where the scores' registers are free.
  bool copies_late() const { return frame_.schedule().late_copies && tiles_.ahead() > 0; }
  void begin_copies() {
    out_.line("{");
    out_.line("const i32 place = $place;", {{"place", tiles_.ahead() == 0 ? "0" : fmt::format("slot > 0 ? slot - 1 : {}", frame_.schedule().stages - 1)}});
    if (tiles_.ahead() == 0) out_.line("const i32 coming = tile;");
    for (const ir::Prefetch& p : copies_) form_->prefetch(p);
    out_.line("cp_async_commit();");
    out_.line("}");
  }
  void prefetch(const ir::Prefetch& op) {
    const bool last = !copies_.empty() && op.dst == copies_.back().dst;   // those of one iteration stand together
    if (last && !copies_late()) begin_copies();
  }
  void late_copies() {
    if (!owes_copies_) return;
    owes_copies_ = false;
    begin_copies();
  }

  void hoist_for_panels(const ir::Loop& op) {
    if (tiles_.scans()) return;
    for (const ir::Stmt& s : op.body)
      if (const auto* panels = std::get_if<ir::Loop>(&s.node); panels && !panels->body.empty())
        if (const auto* v = std::get_if<ir::Visibility>(&panels->body.front().node)) intervals_.hoist(v->predicate, form_->panel_region());
  }

  // The warps work on their panels at once: no loop.
  void panels(const ir::Loop& op) {
    if (const auto* v = op.body.empty() ? nullptr : std::get_if<ir::Visibility>(&op.body.front().node)) return visibility(*v);
    const std::string who = form_->finishing();
    if (!who.empty()) out_.line("if ($who) {", {{"who", who}});
    form_->enter();
    block(op.body);
    form_->leave();
    if (!who.empty()) out_.line("}");
  }

  // The bodies of a Visibility are one, told apart by masks. Where some take guarded products it is emitted twice: for
  // tiles that are seen whole, whose instructions then stand in one block, and for the others.
  void visibility(const ir::Visibility& op) {
    form_->begin_positions();
    // What took a look at a tensor is known for the task as a whole.
    const Truth seen = tiles_.scans() ? Truth{"true", tiles_.seen_whole()} : intervals_.truth(op.predicate, form_->panel_region());
    mixed_text_ = negated(seen.certain);
    mixed_ = mixed_text_ == "true" ? Mixed::yes : mixed_text_ == "false" ? Mixed::no : Mixed::asked;
    if (mixed_ == Mixed::asked) mixed_text_ = form_->expr().named(mixed_text_);
    const bool may_be_hidden = seen.possible != "true";
    if (may_be_hidden) out_.line("if ($possible) {", {{"possible", seen.possible}});
    form_->enter();
    const ir::Block& body = op.guarded.empty() ? op.masked : op.guarded;
    if (guards_ && mixed_ == Mixed::asked) {
      two_bodies(body);
    } else {
      one_body(body);
    }
    form_->leave();
    if (may_be_hidden && (!op.hidden.empty() || copies_late())) {
      out_.line("} else {");
      form_->enter();
      owes_copies_ = copies_late();
      late_copies();
      block(op.hidden);
      form_->leave();
    }
    if (may_be_hidden) out_.line("}");
  }

  void two_bodies(const ir::Block& body) {
    const auto inside = [&] {
      form_->enter();
      one_body(body);
      form_->leave();
    };
    out_.line("if (!guarded.yes && !$mixed) {", {{"mixed", mixed_text_}});
    guards_ = false, mixed_ = Mixed::no;
    inside();
    out_.line("} else {");
    guards_ = true, mixed_ = Mixed::yes;
    inside();
    out_.line("}");
  }
  void one_body(const ir::Block& body) {
    owes_copies_ = copies_late();
    masked_body(body);
    late_copies();
  }
  void masked_body(const ir::Block& body) {
    const bool by_position = frame_.schedule().lanes != Lanes::fragments;   // where hidden positions are passed over anyway
    for (const ir::Stmt& s : body) {
      if (const auto* sweep = std::get_if<ir::Sweep>(&s.node)) {
        masked_body(sweep->body);
      } else if (const auto* mask = std::get_if<ir::Mask>(&s.node)) {
        const bool guards_alone = mask->implied && !by_position;
        if (guards_alone ? !guards_ : mixed_ == Mixed::no) continue;
        if (guards_alone) out_.line("if constexpr (guarded.yes) {");
        else if (mixed_ == Mixed::asked) out_.line("if ($mixed) {", {{"mixed", mixed_text_}});
        form_->mask(*mask);
        if (guards_alone || mixed_ == Mixed::asked) out_.line("}");
      } else if (const auto* sum = std::get_if<ir::SumMma>(&s.node); sum && !by_position) {
        late_copies();
        ir::SumMma plain = *sum;
        plain.guarded = false;
        if (!guards_) {
          form_->sum(plain);
          continue;
        }
        ir::SumMma guarded = *sum;
        guarded.guarded = true;
        out_.line("if constexpr (guarded.yes) {");
        form_->sum(guarded);
        out_.line("} else {");
        form_->sum(plain);
        out_.line("}");
      } else {
        block({s});
      }
    }
  }

  // Has the tile at hand hidden positions? Known while emitting, or asked by the kernel.
  enum class Mixed : std::uint8_t { no, yes, asked };

  const ir::Role role_;
  Frame frame_;
  CodeWriter& out_;
  std::unique_ptr<Form> form_;
  IntervalText intervals_;
  TileSequence tiles_;
  std::vector<ir::Prefetch> copies_;  // of one iteration
  bool filling_ = false, guards_ = false, owes_copies_ = false;
  Mixed mixed_ = Mixed::no;
  std::string mixed_text_;  // what is asked
};

}  // namespace

EmittedKernel emit_cuda(const ir::LoweredKernel& lowered) { return Emitter(lowered, lowered.context()).run(); }

}  // namespace attile
