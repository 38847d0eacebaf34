#include "codegen/llvm_stream.h"

#include <fmt/format.h>

#include <algorithm>

namespace attile::llvm_text {
namespace {

const Val arg(const char* name, const char* type) { return {name, type}; }
std::string_view short_name(DType type) {
  return type == DType::float32 ? "f32" : type == DType::bfloat16 ? "bf16" : "f16";
}

// Elements [col, col + width) of a row of `cols`; those past the end read as 0 and are not touched.
Val load_columns(Function& f, const StreamShape& shape, DType type, const Val& row, std::int64_t col, std::int64_t cols) {
  const std::int64_t bytes = static_cast<std::int64_t>(size_of(type));
  const Val at = f.byte_offset(row, col * bytes);
  const int valid = static_cast<int>(std::min<std::int64_t>(shape.width, cols - col));
  if (valid == shape.width) return load_widened(f, type, at, shape.width);
  const std::string raw = type == DType::float32 ? "float" : type == DType::bfloat16 ? "i16" : "half";
  const std::string suffix = type == DType::float32 ? "f32" : type == DType::bfloat16 ? "i16" : "f16";
  std::string mask = "<";
  for (int i = 0; i < shape.width; ++i) mask += fmt::format("{}i1 {}", i ? ", " : "", i < valid ? "true" : "false");
  const std::string vec = vector_of(shape.width, raw);
  const Val loaded = f.call(vec, fmt::format("llvm.masked.load.v{}{}.p0", shape.width, suffix),
                            {at, i32(bytes), {mask + ">", vector_of(shape.width, "i1")}, {"zeroinitializer", vec}});
  const std::string floats = vector_of(shape.width, "float");
  if (type == DType::float32) return loaded;
  if (type == DType::float16) return f.cast("fpext", loaded, floats);
  const Val wide = f.cast("zext", loaded, vector_of(shape.width, "i32"));
  return f.cast("bitcast", f.binary("shl", wide, splat_constant(i32(16), shape.width)), floats);
}

// Lane sums of `x.size()` vectors (a power of two ≤ width) as one vector of that many lanes: halves are folded
// together pairwise, so that each step halves the number of vectors, then of lanes.
Val sum_lanes(Function& f, std::vector<Val> x) {
  const int width = lanes_of(x.front().type);
  const int count = static_cast<int>(x.size());
  int group = width;   // lanes that belong to one sum
  while (x.size() > 1) {
    std::vector<int> low, high;
    std::vector<Val> next;
    for (int half = 0, sums = width / group; half < 2; ++half) {
      std::vector<int>& mask = half == 0 ? low : high;
      for (int source = 0; source < 2; ++source)
        for (int s = 0; s < sums; ++s)
          for (int lane = 0; lane < group / 2; ++lane) mask.push_back(source * width + s * group + half * group / 2 + lane);
    }
    for (std::size_t i = 0; i < x.size() / 2; ++i) {
      const Val &a = x[i], &b = x[i + x.size() / 2];
      next.push_back(f.binary("fadd", f.shuffle(a, b, low), f.shuffle(a, b, high)));
    }
    x = std::move(next);
    group /= 2;
  }
  Val total = x.front();
  for (int distance = group / 2; distance > 0; distance /= 2) {
    std::vector<int> mask;
    for (int lane = 0; lane < width; ++lane) mask.push_back(lane ^ distance);
    total = f.binary("fadd", total, f.shuffle(total, total, mask));
  }
  // Sum number i now fills the lanes of some group; its place follows from the order of folding.
  std::vector<int> mask(static_cast<std::size_t>(count));
  std::vector<std::vector<int>> held;
  for (int i = 0; i < count; ++i) held.push_back({i});
  while (held.size() > 1) {
    std::vector<std::vector<int>> next;
    for (std::size_t i = 0; i < held.size() / 2; ++i) {
      std::vector<int> both = held[i];
      both.insert(both.end(), held[i + held.size() / 2].begin(), held[i + held.size() / 2].end());
      next.push_back(std::move(both));
    }
    held = std::move(next);
  }
  for (int place = 0; place < count; ++place) mask[static_cast<std::size_t>(held[0][static_cast<std::size_t>(place)])] = place * group;
  return f.shuffle(total, total, mask);
}

}  // namespace

std::string stream_score_function(Module& m, const StreamShape& shape, DType type, std::int64_t depth, std::int64_t pitch) {
  const std::string name = fmt::format("stream_score_{}_{}x{}_depth{}", short_name(type), shape.rows, shape.positions, depth);
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal void @{}(ptr noalias %q, ptr noalias %k, i64 %stride, i64 %n, ptr noalias %s) noinline", name));
  const Val q = arg("%q", "ptr"), n = arg("%n", "i64");
  const std::int64_t q_pitch = shape.padded(depth);
  const std::string floats = vector_of(shape.width, "float");
  const Val last = f.sub(n, i64(1));
  f.loop(i64(0), n, shape.positions, [&](Val j) {
    std::vector<Val> rows_of_k;
    for (int p = 0; p < shape.positions; ++p) {
      const Val position = p == 0 ? j : f.min(f.add(j, i64(p)), last);
      rows_of_k.push_back(f.gep("i8", arg("%k", "ptr"), f.mul(position, arg("%stride", "i64"))));
    }
    std::vector<Val> sums(static_cast<std::size_t>(shape.rows * shape.positions));
    for (std::int64_t d = 0; d < depth; d += shape.width) {
      std::vector<Val> k;
      for (const Val& row : rows_of_k) k.push_back(load_columns(f, shape, type, row, d, depth));
      for (int r = 0; r < shape.rows; ++r) {
        const Val x = f.load(floats, f.gep("float", q, i64(r * q_pitch + d)), shape.width * 4);
        for (int p = 0; p < shape.positions; ++p) {
          Val& sum = sums[static_cast<std::size_t>(r * shape.positions + p)];
          sum = sum.empty() ? f.binary("fmul", x, k[static_cast<std::size_t>(p)]) : f.fma(x, k[static_cast<std::size_t>(p)], sum);
        }
      }
    }
    for (int r = 0; r < shape.rows; ++r) {
      const auto first = sums.begin() + r * shape.positions;
      const Val total = sum_lanes(f, std::vector<Val>(first, first + shape.positions));
      f.store(total, f.gep("float", arg("%s", "ptr"), f.add(i64(r * pitch), j)), 4);
    }
  });
  f.finish();
  return name;
}

std::string stream_sum_function(Module& m, const StreamShape& shape, DType type, std::int64_t cols, std::int64_t pitch) {
  const std::string name = fmt::format("stream_sum_{}_{}x{}_cols{}", short_name(type), shape.rows, shape.column_vectors, cols);
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal void @{}(ptr noalias %p, ptr noalias %v, i64 %stride, i64 %n, ptr noalias %o) noinline", name));
  const std::int64_t o_pitch = shape.padded(cols);
  const std::string floats = vector_of(shape.width, "float");
  for (std::int64_t first = 0; first < o_pitch; first += std::int64_t{shape.column_vectors} * shape.width) {
    const int vectors = static_cast<int>(std::min<std::int64_t>(shape.column_vectors, (o_pitch - first) / shape.width));
    std::vector<Var> sums;
    const auto o_at = [&](int r, int e) { return f.gep("float", arg("%o", "ptr"), i64(r * o_pitch + first + std::int64_t{e} * shape.width)); };
    for (int r = 0; r < shape.rows; ++r)
      for (int e = 0; e < vectors; ++e) {
        sums.push_back(f.variable(floats));
        f.set(sums.back(), f.load(floats, o_at(r, e), shape.width * 4));
      }
    f.loop(i64(0), arg("%n", "i64"), 1, [&](Val j) {
      const Val row = f.gep("i8", arg("%v", "ptr"), f.mul(j, arg("%stride", "i64")));
      std::vector<Val> v;
      for (int e = 0; e < vectors; ++e) v.push_back(load_columns(f, shape, type, row, first + std::int64_t{e} * shape.width, cols));
      for (int r = 0; r < shape.rows; ++r) {
        const Val p = f.splat(f.load("float", f.gep("float", arg("%p", "ptr"), f.add(i64(r * pitch), j)), 4), shape.width);
        for (int e = 0; e < vectors; ++e) {
          const Var& sum = sums[static_cast<std::size_t>(r * vectors + e)];
          f.set(sum, f.fma(p, v[static_cast<std::size_t>(e)], f.get(sum)));
        }
      }
    });
    for (int r = 0; r < shape.rows; ++r)
      for (int e = 0; e < vectors; ++e) f.store(f.get(sums[static_cast<std::size_t>(r * vectors + e)]), o_at(r, e), shape.width * 4);
  }
  f.finish();
  return name;
}

std::string guarded_stream_sum_function(Module& m, const StreamShape& shape, DType type, std::int64_t cols, std::int64_t pitch) {
  const std::string name = fmt::format("guarded_stream_sum_{}_{}_cols{}", short_name(type), shape.rows, cols);
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal void @{}(ptr noalias %p, ptr noalias %v, i64 %stride, i64 %n, ptr noalias %o) noinline", name));
  const std::int64_t o_pitch = shape.padded(cols);
  f.loop(i64(0), arg("%n", "i64"), 1, [&](Val j) {
    const Val row = f.gep("i8", arg("%v", "ptr"), f.mul(j, arg("%stride", "i64")));
    f.loop(i64(0), i64(shape.rows), 1, [&](Val r) {
      const Val p_at = f.gep("float", arg("%p", "ptr"), f.add(f.mul(r, i64(pitch)), j));
      const Val hidden = f.compare("icmp eq", f.load("i32", p_at, 4), i32(INT32_MIN));
      f.if_else(hidden, [] {}, [&] {
        const Val p = f.load("float", p_at, 4);
        f.loop(i64(0), i64(cols), 1, [&](Val c) {
          const Val x = load_widened(f, type, f.gep(type == DType::float32 ? "float" : "i16", row, c), 1);
          const Val o = f.gep("float", arg("%o", "ptr"), f.add(f.mul(r, i64(o_pitch)), c));
          f.store(f.fma(p, x, f.load("float", o, 4)), o, 4);
        });
      });
    });
  });
  f.finish();
  return name;
}

std::string stream_not_finite_function(Module& m, const StreamShape& shape, DType type, std::int64_t cols) {
  const std::string name = fmt::format("stream_not_finite_{}_cols{}", short_name(type), cols);
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal i1 @{}(ptr noalias %v, i64 %stride, i64 %n) noinline", name));
  const std::string floats = vector_of(shape.width, "float");
  const Var seen = f.variable(floats);
  f.set(seen, {"zeroinitializer", floats});
  f.loop(i64(0), arg("%n", "i64"), 1, [&](Val j) {
    const Val row = f.gep("i8", arg("%v", "ptr"), f.mul(j, arg("%stride", "i64")));
    for (std::int64_t c = 0; c < cols; c += shape.width)   // x·0 is NaN exactly where x is not finite
      f.set(seen, f.fma(load_columns(f, shape, type, row, c, cols), splat_constant(f32(0), shape.width), f.get(seen)));
  });
  const Val total = f.get(seen);
  const Val bad = f.call("i1", fmt::format("llvm.vector.reduce.or.v{}i1", shape.width), {f.compare("fcmp uno", total, total)});
  f.statement(fmt::format("ret i1 {}", bad.name));
  f.finish_returned();
  return name;
}

}  // namespace attile::llvm_text
