#include "codegen/position_tiles.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/walk.h"
#include "dsl/error.h"

namespace attile::llvm_text {
namespace {

// Tensors that products read along the stream, in the order of use.
std::vector<ir::Value> streamed_tensors(const ir::Kernel& kernel) {
  std::vector<ir::Value> out;
  const auto add = [&](ir::Value v) {
    if (std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
  };
  ir::walk(kernel.body, [&](const ir::Stmt& s) {
    if (const auto* op = std::get_if<ir::ScoreMma>(&s.node)) add(op->b);
    if (const auto* op = std::get_if<ir::SumMma>(&s.node)) add(op->v);
  });
  return out;
}

}  // namespace

PositionTiles::PositionTiles(Frame& frame)
    : LaneForm(frame), buffers_(ir::assign_stream_buffers(frame.kernel)), streamed_(streamed_tensors(frame.kernel)) {
  const Target& target = frame.context.target;
  shape_ = {target.vector_bytes / 4, target.vector_registers, frame.context.schedule.bf16_dot};
  shape_.halves = !shape_.pairs && std::all_of(streamed_.begin(), streamed_.end(), [&](ir::Value v) {
    return frame.dtype(frame.kernel[v].name) == DType::bfloat16;
  });
  tile_rows_ = frame.context.schedule.tile_rows;
  pitch_ = shape_.padded(frame.context.schedule.tile_keys) + shape_.width;
  for (int i = 0; i < buffers_.count; ++i) stream_memory_.push_back(frame_.reserve(tile_rows_ * pitch_ * 4));
  for (std::size_t v = 0; v < frame_.kernel.values.size(); ++v) {
    const ir::ValueDecl& decl = frame_.kernel.values[v];
    if (decl.axis == ir::Axis::stream || decl.space == ir::Space::global) continue;
    memory_[static_cast<int>(v)] = frame_.reserve(words_of(decl) * 4);
  }
  folded_ = frame_.reserve(stream_chunk * shape_.width * 4);
}

std::int64_t PositionTiles::words_of(const ir::ValueDecl& decl) const {
  return decl.axis == ir::Axis::row ? shape_.padded(tile_rows_ + shape_.width) : tile_rows_ * shape_.padded(decl.cols);
}
Val PositionTiles::element_address(ir::Value v, const Val& r, const Val& c) {
  return f_.gep("float", memory_.at(v.id), f_.add(f_.mul(r, i64(shape_.padded(frame_.kernel[v].cols))), c));
}
Val PositionTiles::stream_address(ir::Value v, const Val& r, const Val& j) {
  const Val base = stream_memory_.at(static_cast<std::size_t>(buffers_.buffer_of.at(v.id)));
  return f_.gep(is_bf16(v) ? "i16" : "float", f_.gep("float", base, f_.mul(r, i64(pitch_))), j);
}
Val PositionTiles::reduced_row(std::size_t number, const Val& r) {
  while (reduced_.size() <= number) reduced_.push_back(frame_.reserve((tile_rows_ + StreamShape::most_rows) * shape_.width * 4));
  return f_.gep("float", reduced_[number], f_.mul(r, i64(shape_.width)));
}
Val PositionTiles::load_tile(ir::Value v) {
  return load_widened(f_, is_bf16(v) ? DType::bfloat16 : DType::float32, stream_address(v, row_, offset_), shape_.width);
}
void PositionTiles::store_tile(ir::Value v, const Val& value) {
  const Val at = stream_address(v, row_, offset_);
  if (!is_bf16(v)) return f_.store(value, at, 4);
  const int lanes = shape_.width;
  f_.store(f_.call(vector_of(lanes, "bfloat"), fmt::format("llvm.x86.avx512bf16.cvtneps2bf16.{}", lanes * 32), {value}), at, 2);
}

PositionTiles::Ahead PositionTiles::ahead_of(ir::Value v) {
  const auto at = std::find(streamed_.begin(), streamed_.end(), v) + 1;
  const bool last = at == streamed_.end();
  const ir::ValueDecl& next = frame_.kernel[last ? streamed_.front() : *at];
  const Val position = last ? f_.add(frame_.at.position, i64(frame_.context.schedule.tile_keys)) : frame_.at.position;
  return {frame_.row_address(next.name, frame_.at.row, position), frame_.stream_stride(next.name), frame_.dtype(next.name), next.cols};
}

void PositionTiles::row_blocks(int most, const std::function<void(Val, int)>& body) {
  const Val rows = frame_.at.rows, whole = f_.binary("and", rows, i64(-most));
  if (most <= tile_rows_) f_.loop(i64(0), whole, most, [&](Val r) { body(r, most); });
  const Var done = f_.variable("i64");
  f_.set(done, whole);
  for (int count = most / 2; count > 0; count /= 2) {
    if (count > tile_rows_) continue;
    f_.if_else(f_.compare("icmp ne", f_.binary("and", rows, i64(count)), i64(0)), [&] {
      const Val r = f_.get(done);
      body(r, count);
      f_.set(done, f_.add(r, i64(count)));
    });
  }
}
void PositionTiles::rows_by(std::int64_t step, const std::function<void()>& body) {
  f_.loop(i64(0), frame_.at.rows, step, [&](Val r) {
    expr_.push_scope();
    row_ = r;
    body();
    expr_.pop_scope();
  });
}
void PositionTiles::each_row_vector(const std::function<void()>& body) {
  rows_in_lanes_ = true;
  rows_by(shape_.width, body);
  rows_in_lanes_ = false;
}
void PositionTiles::each_slot(std::int64_t slots, const std::function<void()>& body) {
  f_.loop(i64(0), i64(slots), 1, [&](Val t) {
    expr_.push_scope(true);
    slot_ = t;
    body();
    expr_.pop_scope();
  });
}
Val PositionTiles::row_lanes(bool heads) {
  const Val last = f_.splat(f_.cast("trunc", f_.sub(f_.add(frame_.at.row, frame_.at.rows), i64(1)), "i32"), shape_.width);
  const Val row = f_.min(lane_numbers(row_number()), last);
  if (!frame_.group_in_rows()) return row;
  const Val group = splat_constant(i32(frame_.context.problem.group), shape_.width);
  if (!heads) return f_.binary("udiv", row, group);
  const Val first = f_.cast("trunc", f_.mul(frame_.at.head, i64(frame_.context.problem.group)), "i32");
  return f_.binary("add", f_.splat(first, shape_.width), f_.binary("urem", row, group));
}
Val PositionTiles::lane_numbers(const Val& first) {
  return f_.binary("add", f_.splat(f_.cast("trunc", first, "i32"), shape_.width), iota(0, shape_.width));
}

// A row takes the same room whatever its type, zero past its end.
void PositionTiles::copy(const ir::Copy& op) {
  f_.loop(i64(0), frame_.at.tile_rows, 1, [&](Val r) {
    const Val from = frame_.row_address(op.tensor, f_.add(frame_.at.tile_row, r));
    copy_row(from, element_address(op.dst, r, i64(0)), frame_.kernel[op.dst].cols, frame_.dtype(op.tensor));
  });
}
// bf16 as it is for a dot of pairs, else widened, and in halves where the stream is read so.
void PositionTiles::copy_row(const Val& from, const Val& to, std::int64_t cols, DType type) {
  const std::string raw = raw_type(type), kept = shape_.pairs ? "i16" : "float";
  const int lanes = shape_.width * (shape_.pairs ? 2 : 1);
  const std::int64_t whole = cols / lanes * lanes, padded = (cols + lanes - 1) / lanes * lanes;
  const auto element = [&](const Val& c, int count) {
    const Val at = f_.gep(raw, from, c);
    return shape_.pairs ? f_.load(vector_of(count, raw), at, 2) : load_widened(f_, type, at, count);
  };
  const std::int64_t halved = shape_.halved(cols);
  f_.loop(i64(0), i64(halved), 2 * lanes, [&](Val c) {
    const Val second = f_.add(c, i64(lanes));
    const auto [even, odd] = split_halves(f_, element(c, lanes), element(second, lanes));
    f_.store(even, f_.gep(kept, to, c), 4);
    f_.store(odd, f_.gep(kept, to, second), 4);
  });
  f_.loop(i64(halved), i64(whole), lanes, [&](Val c) { f_.store(element(c, lanes), f_.gep(kept, to, c), 4); });
  f_.loop(i64(whole), i64(cols), 1, [&](Val c) { f_.store(element(c, 1), f_.gep(kept, to, c), 2); });
  f_.loop(i64(cols), i64(padded), 1, [&](Val c) { f_.store({"zeroinitializer", kept}, f_.gep(kept, to, c), 2); });
}

void PositionTiles::fill(const ir::Fill& op) {
  const ir::ValueDecl& decl = frame_.kernel[op.dst];
  const Val value = decl.element == ir::Element::i32 ? i32(static_cast<std::int64_t>(op.constant)) : f32(static_cast<float>(op.constant));
  const Val lanes = splat_constant(value, shape_.width);
  f_.loop(i64(0), i64(words_of(decl)), shape_.width, [&](Val i) { f_.store(lanes, f_.gep("float", memory_.at(op.dst.id), i), 4); });
}

void PositionTiles::gather(const ir::Gather& op) {
  const std::int64_t slots = frame_.kernel[op.indices].cols, cols = frame_.kernel[op.dst].cols;
  const DType type = frame_.dtype(op.tensor);
  fill({op.dst, 0.0});
  each_row([&] {
    each_slot(slots, [&] {
      const Val position = f_.cast("sext", f_.load("i32", element_address(op.indices, row_, slot_), 4), "i64");
      f_.if_else(f_.compare("icmp sge", position, i64(0)), [&] {
        expr_.push_scope();
        const Val weight = expr_.to_real(expr_.emit(op.weight)).front();
        const Val source_row = frame_.row_address(op.tensor, row_number(), position);
        f_.loop(i64(0), i64(cols), 1, [&](Val c) {
          const Val at = element_address(op.dst, row_, c);
          const Val x = load_widened(f_, type, f_.gep(raw_type(type), source_row, c), 1);
          f_.store(f_.fma(weight, x, f_.load("float", at, 4)), at, 4);
        });
        expr_.pop_scope();
      });
    });
  });
}

void PositionTiles::store(const ir::Store& op) {
  const ir::ValueDecl& decl = frame_.kernel[op.src];
  const DType type = frame_.dtype(op.tensor);
  each_row([&] {
    const Val to = frame_.row_address(op.tensor, row_number());
    if (decl.axis == ir::Axis::slot) return store_slots(op, to);
    if (decl.axis == ir::Axis::row) return store_narrowed(f_, type, f_.load("float", state_address(op.src, row_), 4), to);
    const std::int64_t whole = decl.cols / shape_.width * shape_.width;
    f_.loop(i64(0), i64(whole), shape_.width, [&](Val c) {
      store_narrowed(f_, type, f_.load(floats(), element_address(op.src, row_, c), 4), f_.gep(raw_type(type), to, c));
    });
    f_.loop(i64(whole), i64(decl.cols), 1, [&](Val c) {
      store_narrowed(f_, type, f_.load("float", element_address(op.src, row_, c), 4), f_.gep(raw_type(type), to, c));
    });
  });
}
void PositionTiles::store_slots(const ir::Store& op, const Val& to) {
  const ir::ValueDecl& decl = frame_.kernel[op.src];
  const int slot_dim = static_cast<int>(frame_.dims_of(op.tensor).size()) - 1;
  f_.loop(i64(0), i64(decl.cols), 1, [&](Val t) {
    const Val offset = f_.mul(t, frame_.args.stride(op.tensor, slot_dim));
    const Val from = element_address(op.src, row_, t);
    if (decl.element == ir::Element::i32) return f_.store(f_.load("i32", from, 4), f_.gep("i32", to, offset), 4);
    const DType type = frame_.dtype(op.tensor);
    store_narrowed(f_, type, f_.load("float", from, 4), f_.gep(raw_type(type), to, offset));
  });
}

void PositionTiles::restore(const ir::Restore&) { internal_check(false, "saved states with lanes: positions"); }
void PositionTiles::save(const ir::Save&) { internal_check(false, "saved states with lanes: positions"); }

}  // namespace attile::llvm_text
