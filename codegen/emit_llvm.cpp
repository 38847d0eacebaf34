#include "codegen/emit_llvm.h"

#include <algorithm>

#include "codegen/cpu_interval.h"
#include "codegen/lane_form.h"
#include "dsl/derive.h"
#include "dsl/error.h"

namespace attile {
namespace {

using namespace llvm_text;

class Emitter {
 public:
  Emitter(const ir::Kernel& kernel, const ir::Context& context, bool split)
      : frame_(kernel, context, split),
        f_(frame_.f),
        at_(frame_.at),
        form_(context.schedule.lanes == Lanes::rows ? make_row_lanes(frame_) : make_position_lanes(frame_)) {
    form_->set_predicate(context.algorithm.visible);
  }

  EmittedKernel run() {
    const bool per_head = frame_.context.schedule.order == Order::keys_outer;
    const auto body = [&] { block(frame_.kernel.body); };
    per_head ? locate_head(body) : locate_task(body);
    EmittedKernel out = finished();
    out.per_head = per_head;
    out.state_bytes = form_->state_bytes();
    return out;
  }
  EmittedKernel run_packing(std::vector<PackedOperand>& packed) {
    locate_key_tile([&] { block(frame_.kernel.body); });
    for (std::size_t i = 0; i < frame_.kernel.values.size(); ++i)
      packed.push_back({"work." + frame_.kernel.values[i].name, form_->packed_bytes(ir::Value{static_cast<int>(i)})});
    EmittedKernel out = finished();
    out.per_key_tile = true;
    return out;
  }

 private:
  EmittedKernel finished() {
    f_.finish();
    EmittedKernel out;
    out.name = frame_.kernel.name;
    out.text = frame_.module.text();
    out.ir = ir::print(frame_.kernel);
    out.parameters = frame_.args.parameters();
    out.scratch_bytes = frame_.scratch_bytes;
    out.tile_rows = frame_.context.schedule.tile_rows;
    out.group_in_rows = frame_.group_in_rows();
    out.per_part = frame_.split;
    return out;
  }

  // task → part, row tile, head, sequence; then the lengths of that sequence and the rows of the tile.
  void locate_task(const Function::Body& body) {
    Val task{"%task", "i64"};
    if (frame_.split) {
      const Val parts = frame_.args.size("parts");
      at_.part = f_.urem(task, parts);
      task = f_.udiv(task, parts);
    }
    const Val row_tiles = frame_.args.size("row_tiles"), heads = task_heads();
    Val row_tile = f_.urem(task, row_tiles);
    const Val rest = f_.udiv(task, row_tiles);
    at_.head = f_.urem(rest, heads);
    at_.sequence = f_.udiv(rest, heads);
    if (frame_.context.schedule.longest_first) row_tile = f_.sub(f_.sub(row_tiles, i64(1)), row_tile);
    row_tile = locate_sequence(row_tile);
    if (frame_.context.schedule.pack_ahead) at_.first_packed_tile = first_packed_tile(frame_.kv_head_at());
    at_.position_length = stream_length();
    const std::int64_t tile_rows = frame_.context.schedule.tile_rows;
    const Val all_rows = f_.mul(at_.row_length, i64(frame_.rows_per_query()));
    at_.tile_row = f_.mul(row_tile, i64(tile_rows));
    at_.tile_rows = f_.min(f_.sub(all_rows, at_.tile_row), i64(tile_rows));
    f_.if_else(f_.compare("icmp sgt", at_.tile_rows, i64(0)), body);
  }

  // task → head, sequence; a task has all rows.
  void locate_head(const Function::Body& body) {
    const Val heads = task_heads();
    at_.head = f_.urem({"%task", "i64"}, heads);
    at_.sequence = f_.udiv({"%task", "i64"}, heads);
    if (frame_.context.algorithm.lengths == Lengths::packed)
      locate_bounds();
    else
      locate_sequence({});
    at_.position_length = stream_length();
    at_.tile_row = i64(0);
    at_.tile_rows = f_.mul(at_.row_length, i64(frame_.rows_per_query()));
    at_.state_tile = first_state_tile(heads);
    f_.if_else(f_.compare("icmp sgt", at_.tile_rows, i64(0)), body);
  }

  // Saved states are numbered as row tiles are, head by head.
  Val first_state_tile(const Val& heads) {
    const Val tiles = frame_.args.size("row_tiles");
    if (frame_.context.algorithm.lengths != Lengths::packed)
      return f_.mul(f_.add(f_.mul(at_.sequence, heads), at_.head), tiles);
    return f_.add(f_.mul(at_.head, tiles), first_row_tile(at_.sequence));
  }

  // Packed tiles are numbered kv head by kv head, in a sequence's own order.
  Val first_packed_tile(const Val& kv) {
    const Val tiles = frame_.args.size("key_tiles");
    if (frame_.context.algorithm.lengths != Lengths::packed)
      return f_.mul(f_.add(f_.mul(at_.sequence, frame_.args.size("kv_heads")), kv), tiles);
    return f_.add(f_.mul(kv, tiles), first_tile_of("cu_seqlens_k", at_.sequence, 1, frame_.context.schedule.tile_keys));
  }

  // A packing task: task → tile of the stream, kv head, sequence.
  void locate_key_tile(const Function::Body& body) {
    const std::int64_t tile_keys = frame_.context.schedule.tile_keys;
    const Val tiles = frame_.args.size("key_tiles"), kv_heads = frame_.args.size("kv_heads");
    Val tile = f_.urem({"%task", "i64"}, tiles);
    const Val rest = f_.udiv({"%task", "i64"}, tiles);
    const Val kv = f_.urem(rest, kv_heads);
    at_.head = frame_.group_in_rows() ? kv : f_.mul(kv, i64(frame_.context.problem.group));
    at_.sequence = f_.udiv(rest, kv_heads);
    at_.row_start = at_.position_start = i64(0);
    at_.key_length = frame_.args.size("positions");
    at_.packed_tile = {"%task", "i64"};
    if (frame_.context.algorithm.lengths == Lengths::packed) {
      at_.sequence = sequence_of(tile, "cu_seqlens_k", 1, tile_keys);
      tile = f_.sub(tile, first_tile_of("cu_seqlens_k", at_.sequence, 1, tile_keys));
      at_.position_start = bound_of("cu_seqlens_k", at_.sequence);
      at_.key_length = f_.sub(bound_of("cu_seqlens_k", f_.add(at_.sequence, i64(1))), at_.position_start);
    } else if (frame_.context.algorithm.lengths == Lengths::used) {
      at_.key_length = bound_of("kv_lens", at_.sequence);
    }
    at_.position = f_.mul(tile, i64(tile_keys));
    at_.positions = f_.min(f_.sub(at_.key_length, at_.position), i64(tile_keys));
    f_.if_else(f_.compare("icmp sgt", at_.positions, i64(0)), body);
  }

  // Lengths and starts of the sequence; returns the row tile's number within it.
  Val locate_sequence(const Val& row_tile) {
    const Lengths lengths = frame_.context.algorithm.lengths;
    at_.row_start = at_.position_start = i64(0);
    if (lengths == Lengths::packed) return locate_packed(row_tile);
    at_.row_length = frame_.args.size("rows");
    at_.key_length = lengths == Lengths::used ? bound_of("kv_lens", at_.sequence) : frame_.args.size(frame_.context.algorithm.streamed == key ? "positions" : "keys");
    return row_tile;
  }
  Val task_heads() { return frame_.args.size(frame_.group_in_rows() ? "kv_heads" : "heads"); }
  Val stream_length() { return frame_.context.algorithm.streamed == key ? at_.key_length : frame_.args.size("positions"); }

  // Entry s of an int32 tensor with one per sequence: a start or a length.
  Val bound_of(const char* tensor, const Val& s) {
    const Val address = f_.gep("i32", frame_.args.data(tensor), f_.mul(s, frame_.args.stride(tensor, 0)));
    return f_.cast("sext", f_.load("i32", address, 4), "i64");
  }
  // Sequence s owns the tiles from floor(start_s · scale / tile) + s on: a grid of floor(total · scale / tile) +
  // sequences tiles covers all, and a binary search finds the owner.
  Val first_tile_of(const char* tensor, const Val& s, std::int64_t scale, std::int64_t tile) {
    return f_.add(f_.udiv(f_.mul(bound_of(tensor, s), i64(scale)), i64(tile)), s);
  }
  Val sequence_of(const Val& tile_number, const char* tensor, std::int64_t scale, std::int64_t tile) {
    const Var low = f_.variable("i64"), high = f_.variable("i64");
    f_.set(low, i64(0));
    f_.set(high, frame_.args.size("sequences"));
    f_.while_loop([&] { return f_.compare("icmp sgt", f_.sub(f_.get(high), f_.get(low)), i64(1)); },
                  [&] {
                    const Val middle = f_.binary("lshr", f_.add(f_.get(low), f_.get(high)), i64(1));
                    const Val right = f_.compare("icmp sle", first_tile_of(tensor, middle, scale, tile), tile_number);
                    f_.set(low, f_.select(right, middle, f_.get(low)));
                    f_.set(high, f_.select(right, f_.get(high), middle));
                  });
    return f_.get(low);
  }
  Val locate_packed(const Val& row_tile) {
    at_.sequence = sequence_of(row_tile, "cu_seqlens_q", frame_.rows_per_query(), frame_.context.schedule.tile_rows);
    locate_bounds();
    return f_.sub(row_tile, first_row_tile(at_.sequence));
  }
  Val first_row_tile(const Val& s) {
    return first_tile_of("cu_seqlens_q", s, frame_.rows_per_query(), frame_.context.schedule.tile_rows);
  }
  // Starts and lengths of the sequence at hand in packed tensors.
  void locate_bounds() {
    const Val next = f_.add(at_.sequence, i64(1));
    at_.row_start = bound_of("cu_seqlens_q", at_.sequence);
    at_.position_start = bound_of("cu_seqlens_k", at_.sequence);
    at_.row_length = f_.sub(bound_of("cu_seqlens_q", next), at_.row_start);
    at_.key_length = f_.sub(bound_of("cu_seqlens_k", next), at_.position_start);
  }

  void block(const ir::Block& body) {
    for (const ir::Stmt& s : body)
      std::visit(ir::overloaded{
                     [&](const ir::Copy& op) { form_->copy(op); },
                     [&](const ir::Fill& op) { form_->fill(op); },
                     [&](const ir::ScoreMma& op) { form_->score(op); },
                     [&](const ir::SumMma& op) { form_->sum(op); },
                     [&](const ir::Map& op) { form_->map(op); },
                     [&](const ir::Rescale& op) { form_->rescale(op); },
                     [&](const ir::Gather& op) { form_->gather(op); },
                     [&](const ir::Store& op) { form_->store(op); },
                     [&](const ir::Restore& op) { form_->restore(op); },
                     [&](const ir::Save& op) { form_->save(op); },
                     [&](const ir::Sweep& op) { form_->sweep(op); },
                     [&](const ir::Loop& op) { loop(op); },
                     [&](const ir::Visibility& op) { visibility(op); },
                     [&](const auto& op) { internal_check(false, std::string(op.name) + " outside a sweep"); },
                 },
                 s.node);
  }

  void scoped(const Function::Body& body) {
    form_->expr().push_scope();
    body();
    form_->expr().pop_scope();
  }

  void loop(const ir::Loop& op) {
    switch (op.kind) {
      case ir::LoopKind::panels: return panels(op);
      case ir::LoopKind::key_tiles: return key_tiles(op);
      case ir::LoopKind::row_tiles: return row_tiles(op);
    }
  }

  void panels(const ir::Loop& op) {
    const std::int64_t panel_rows = frame_.panel_rows();
    const Val count = f_.udiv(f_.add(at_.tile_rows, i64(panel_rows - 1)), i64(panel_rows));
    f_.loop(i64(0), count, 1, [&](Val panel) {
      scoped([&] {
        at_.panel = panel;
        const Val first = f_.mul(panel, i64(panel_rows));
        at_.row = f_.add(at_.tile_row, first);
        at_.rows = f_.min(f_.sub(at_.tile_rows, first), i64(panel_rows));
        form_->begin_panel(op.carry);
        block(op.body);
        form_->end_panel(op.carry);
      });
    });
  }

  void row_tiles(const ir::Loop& op) {
    const std::int64_t tile = frame_.context.schedule.tile_rows;
    const Place task = at_;
    f_.loop(i64(0), task.tile_rows, tile, [&](Val row) {
      scoped([&] {
        at_.tile_row = row;
        at_.tile_rows = f_.min(f_.sub(task.tile_rows, row), i64(tile));
        at_.state_tile = f_.add(task.state_tile, f_.udiv(row, i64(tile)));
        where_seen(op.skip_unless, [&] { block(op.body); });
      });
    });
    at_ = task;
  }

  void key_tiles(const ir::Loop& op) {
    const std::int64_t tile = frame_.context.schedule.tile_keys;
    Val from = i64(0), to = at_.position_length;
    if (frame_.split) {
      const Val parts = frame_.args.size("parts");
      const Val tiles = f_.udiv(f_.add(to, i64(tile - 1)), i64(tile));
      const Val length = f_.mul(f_.udiv(f_.sub(f_.add(tiles, parts), i64(1)), parts), i64(tile));
      from = f_.mul(at_.part, length);
      to = f_.min(f_.add(from, length), to);
    }
    f_.loop(from, to, tile, [&](Val position) {
      scoped([&] {
        at_.position = position;
        at_.positions = f_.min(f_.sub(to, position), i64(tile));
        at_.tile_offset = i64(0);
        if (frame_.context.schedule.pack_ahead) at_.packed_tile = f_.add(at_.first_packed_tile, f_.udiv(position, i64(tile)));
        where_seen(op.skip_unless, [&] { block(op.body); });
      });
    });
  }

  // Runs `body` unless the whole tile at hand is hidden.
  void where_seen(const Expr& predicate, const Function::Body& body) {
    if (predicate.empty()) return body();
    const Truth seen = intervals({at_.tile_row, at_.tile_rows, at_.position, at_.positions}).truth(predicate);
    f_.if_else(seen.possible, [&] { scoped(body); });
  }

  void visibility(const ir::Visibility& op) {
    IntervalEmitter whole = intervals({at_.row, at_.rows, at_.position, at_.positions});
    const Truth seen = whole.truth(op.predicate);
    const auto hidden = [&] { scoped([&] { block(op.hidden); }); };
    f_.if_else(seen.possible, [&] {
      f_.if_else(seen.certain, [&] { scoped([&] { block(op.plain); }); }, [&] { scoped([&] { mixed(op); }); });
    }, op.hidden.empty() ? Function::Body{} : hidden);
  }

  // Part of the tile is hidden: work on the stretch of it that the panel can see at all, if nothing is written elsewhere.
  void mixed(const ir::Visibility& op) {
    const Place before = at_;
    if (op.hidden.empty()) narrow(op.predicate);
    Val bad;
    for (const ir::Value v : op.watched) {
      const Val this_bad = form_->not_finite(v);
      bad = bad.empty() ? this_bad : f_.binary("or", bad, this_bad);
    }
    const auto body = [&](const ir::Block& statements) { return [&] { scoped([&] { block(statements); }); }; };
    if (op.guarded.empty())
      body(op.masked)();
    else
      f_.if_else(bad, body(op.guarded), body(op.masked));
    at_ = before;
  }

  // Drops leading and trailing chunks of positions that are wholly hidden. Chunks keep the blocks of packed tiles.
  void narrow(const Expr& predicate) {
    const std::int64_t chunk = std::max(frame_.context.schedule.block, 16);
    const Var first = f_.variable("i64"), end = f_.variable("i64");
    f_.set(first, at_.positions);
    f_.set(end, i64(0));
    IntervalEmitter part = intervals({at_.row, at_.rows, at_.position, i64(1)});
    part.hoist(predicate);
    f_.loop(i64(0), at_.positions, chunk, [&](Val offset) {
      scoped([&] {
        const Val count = f_.min(f_.sub(at_.positions, offset), i64(chunk));
        part.set_positions(f_.add(at_.position, offset), count);
        f_.if_else(part.truth(predicate).possible, [&] {
          f_.set(first, f_.min(f_.get(first), offset));
          f_.set(end, f_.add(offset, count));
        });
      });
    });
    const Val skipped = f_.min(f_.get(first), f_.get(end));   // nothing seen after all: an empty stretch
    at_.positions = f_.sub(f_.get(end), skipped);
    at_.position = f_.add(at_.position, skipped);
    at_.tile_offset = skipped;
  }

  IntervalEmitter intervals(const Region& region) { return IntervalEmitter(frame_, form_->expr(), region); }

  Frame frame_;
  Function& f_;
  Place& at_;
  std::unique_ptr<LaneForm> form_;
};

}  // namespace

EmittedKernel emit_llvm(const ir::Kernel& kernel, const ir::Context& context, bool split) {
  return Emitter(kernel, context, split).run();
}

EmittedKernel emit_llvm_packing(const ir::Kernel& kernel, const ir::Context& context, std::vector<PackedOperand>& packed) {
  return Emitter(kernel, context, false).run_packing(packed);
}

}  // namespace attile
