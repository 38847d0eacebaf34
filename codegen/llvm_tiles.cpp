#include "codegen/llvm_tiles.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/llvm_transpose.h"

namespace attile::llvm_text {

std::string raw_type(DType type) {
  switch (type) {
    case DType::float32: return "float";
    case DType::bfloat16: return "i16";
    case DType::float16: return "half";
    case DType::int32: return "i32";
    case DType::int64: return "i64";
    case DType::boolean: return "i8";
  }
  return {};
}
std::string_view short_name(DType type) {
  return type == DType::float32 ? "f32" : type == DType::bfloat16 ? "bf16" : "f16";
}

Val widened(Function& f, DType type, const Val& raw) {
  const int lanes = lanes_of(raw.type);
  const std::string floats = vector_of(lanes, "float");
  if (type == DType::float32) return raw;
  if (type == DType::float16) return f.cast("fpext", raw, floats);
  const Val wide = f.cast("zext", raw, vector_of(lanes, "i32"));
  return f.cast("bitcast", f.binary("shl", wide, splat_constant(i32(16), lanes)), floats);
}
Val load_widened(Function& f, DType type, const Val& address, int lanes) {
  return widened(f, type, f.load(vector_of(lanes, raw_type(type)), address, static_cast<int>(size_of(type))));
}

// Round to nearest even on the bits; a NaN keeps its upper half and is made quiet.
static Val bfloat16_bits(Function& f, const Val& value) {
  const int lanes = lanes_of(value.type);
  const auto constant = [&](std::int64_t x) { return splat_constant(i32(x), lanes); };
  const Val bits = f.cast("bitcast", value, vector_of(lanes, "i32"));
  const Val upper = f.binary("lshr", bits, constant(16));
  const Val odd = f.binary("and", upper, constant(1));
  const Val rounded = f.binary("lshr", f.binary("add", bits, f.binary("add", odd, constant(0x7fff))), constant(16));
  const Val quiet = f.binary("or", upper, constant(0x40));
  const Val chosen = f.select(f.compare("fcmp uno", value, value), quiet, rounded);
  return f.cast("trunc", chosen, vector_of(lanes, "i16"));
}

void store_narrowed(Function& f, DType type, const Val& value, const Val& address) {
  const int lanes = lanes_of(value.type);
  if (type == DType::float32) return f.store(value, address, 4);
  if (type == DType::float16) return f.store(f.cast("fptrunc", value, vector_of(lanes, "half")), address, 2);
  f.store(bfloat16_bits(f, value), address, 2);
}

namespace {

Val table_entry(Function& f, const Val& table, const Val& row) { return f.load("ptr", f.gep("ptr", table, row), 8); }

const Val arg(const char* name, const char* type) { return {name, type}; }

}  // namespace

std::string pack_rows_function(Module& m, DType type, int count, std::int64_t cols, int pitch, bool pairs) {
  const std::string name = fmt::format("pack_rows_{}_{}x{}_pitch{}{}", short_name(type), count, cols, pitch, pairs ? "_pairs" : "");
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal void @{}(ptr noalias %table, ptr noalias %dst) noinline", name));
  const Val table = arg("%table", "ptr"), dst = arg("%dst", "ptr");
  const std::int64_t units = pairs ? cols / 2 : cols;
  const std::int64_t whole = units / count * count;
  const auto source = [&](const Val& row, const Val& unit) {
    return f.gep(raw_type(type), row, pairs ? f.mul(unit, i64(2)) : unit);
  };
  const std::string unit_type = pairs ? "i32" : "float";
  if (whole > 0) {
    std::vector<Val> row_address;
    for (int r = 0; r < count; ++r) row_address.push_back(table_entry(f, table, i64(r)));
    f.loop(i64(0), i64(whole), count, [&](Val c) {
      std::vector<Val> rows;
      for (const Val& row : row_address)
        rows.push_back(pairs ? f.load(vector_of(count, "i32"), source(row, c), 2) : load_widened(f, type, source(row, c), count));
      rows = transpose(f, std::move(rows));
      const Val base = f.gep(unit_type, dst, f.mul(c, i64(pitch)));
      for (int i = 0; i < count; ++i)
        f.store(rows[static_cast<std::size_t>(i)], f.gep(unit_type, base, i64(static_cast<std::int64_t>(i) * pitch)), 4);
    });
  }
  f.loop(i64(0), i64(count), 1, [&](Val r) {
    const Val row = table_entry(f, table, r);
    const auto put = [&](const Val& unit, const Val& value) {
      f.store(value, f.gep(unit_type, dst, f.add(f.mul(unit, i64(pitch)), r)), 4);
    };
    f.loop(i64(whole), i64(units), 1, [&](Val c) {
      put(c, pairs ? f.load("i32", source(row, c), 2) : load_widened(f, type, source(row, c), 1));
    });
    if (pairs && cols % 2)
      put(i64(units), f.cast("zext", f.load("i16", f.gep("i16", row, i64(cols - 1)), 2), "i32"));
  });
  f.finish();
  return name;
}

namespace {

// One position (pairs: two) of `lanes` columns; returns what accumulates into the "not finite" test.
struct ColumnPacker {
  Function& f;
  DType type;
  bool pairs;
  Var seen;  // float: becomes NaN; pairs: largest magnitude bits

  void element(const Val& value, int lanes) {
    const Val wide = lanes == lanes_of(seen.type) ? value : Val{};
    if (wide.empty()) return scalar_element(value);
    if (pairs) {
      const Val magnitude = f.binary("and", wide, splat_constant({"32767", "i16"}, lanes));
      f.set(seen, f.call(seen.type, fmt::format("llvm.umax.v{}i16", lanes), {magnitude, f.get(seen)}));
    } else {
      f.set(seen, f.fma(wide, splat_constant(f32(0), lanes), f.get(seen)));
    }
  }
  void scalar_element(const Val& value) { element(f.splat(value, lanes_of(seen.type)), lanes_of(seen.type)); }
};

}  // namespace

std::string pack_columns_function(Module& m, DType type, std::int64_t cols, std::int64_t capacity, int block, bool pairs) {
  const std::string name = fmt::format("pack_columns_{}_{}x{}_block{}{}", short_name(type), capacity, cols, block, pairs ? "_pairs" : "");
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal i1 @{}(ptr noalias %src, i64 %stride, i64 %n, ptr noalias %dst) noinline", name));
  const Val src = arg("%src", "ptr"), stride = arg("%stride", "i64"), n = arg("%n", "i64"), dst = arg("%dst", "ptr");
  const std::string source_type = raw_type(type);
  ColumnPacker packer{f, type, pairs, f.variable(vector_of(block, pairs ? "i16" : "float"))};
  f.set(packer.seen, {"zeroinitializer", packer.seen.type});

  const auto columns = [&](const Val& row, const Val& next, const Val& col, int lanes, const Val& out) {
    const Val at = f.gep(source_type, row, col);
    if (!pairs) {
      const Val value = load_widened(f, type, at, lanes);
      packer.element(value, lanes);
      return f.store(value, out, 4);
    }
    const std::string bits = vector_of(lanes, "i16");
    const Val a = f.load(bits, at, 2);
    packer.element(a, lanes);
    Val b{lanes == 1 ? "0" : "zeroinitializer", bits};
    if (!next.empty()) {
      b = f.load(bits, f.gep(source_type, next, col), 2);
      packer.element(b, lanes);
    }
    if (lanes == 1) {
      f.store(a, out, 2);
      return f.store(b, f.byte_offset(out, 2), 2);
    }
    std::vector<int> zip;
    for (int i = 0; i < lanes; ++i) zip.insert(zip.end(), {i, lanes + i});
    f.store(f.shuffle(a, b, zip), out, 4);
  };
  // All columns of one position (or pair of positions) `p`.
  const int unit = 4;  // bytes of a float or of a pair
  const std::int64_t slots = pairs ? (capacity + 1) / 2 : capacity;
  const auto position = [&](const Val& row, const Val& next, const Val& p) {
    const Val start = f.gep("i8", dst, f.mul(p, i64(static_cast<std::int64_t>(block) * unit)));
    const std::int64_t whole = cols / block * block;
    f.loop(i64(0), i64(whole), block, [&](Val col) {
      columns(row, next, col, block, f.gep("i8", start, f.mul(col, i64(slots * unit))));
    });
    const Val last = f.byte_offset(start, whole * slots * unit);
    f.loop(i64(whole), i64(cols), 1, [&](Val col) {
      columns(row, next, col, 1, f.gep("i8", last, f.mul(f.sub(col, i64(whole)), i64(unit))));
    });
  };
  const auto row_at = [&](const Val& j) { return f.gep("i8", src, f.mul(j, stride)); };
  if (pairs) {
    const Val even = f.binary("and", n, i64(-2));
    f.loop(i64(0), even, 2, [&](Val j) { position(row_at(j), row_at(f.add(j, i64(1))), f.binary("lshr", j, i64(1))); });
    f.if_else(f.compare("icmp ne", even, n), [&] { position(row_at(even), Val{}, f.binary("lshr", even, i64(1))); });
    const Val top = f.call("i16", fmt::format("llvm.vector.reduce.umax.v{}i16", block), {f.get(packer.seen)});
    const Val bad = f.compare("icmp uge", top, {"32640", "i16"});
    f.statement(fmt::format("ret i1 {}", bad.name));
  } else {
    f.loop(i64(0), n, 1, [&](Val j) { position(row_at(j), Val{}, j); });
    const Val seen = f.get(packer.seen);
    const Val lanes_bad = f.compare("fcmp uno", seen, seen);
    const Val bad = f.call("i1", fmt::format("llvm.vector.reduce.or.v{}i1", block), {lanes_bad});
    f.statement(fmt::format("ret i1 {}", bad.name));
  }
  f.finish_returned();
  return name;
}

namespace {

// The accumulators of one register block: count × vectors.
struct Accumulators {
  Function& f;
  const PanelShape& shape;
  int count;
  std::vector<Var> slots;

  Accumulators(Function& fn, const PanelShape& s, int n) : f(fn), shape(s), count(n) {
    for (int i = 0; i < count * shape.vectors; ++i) slots.push_back(f.variable(vector_of(shape.width, "float")));
  }
  void clear() {
    for (const Var& v : slots) f.set(v, {"zeroinitializer", v.type});
  }
  Val address(const Val& base, int i, int v) const {
    return f.gep("float", base, i64(static_cast<std::int64_t>(i) * shape.rows() + static_cast<std::int64_t>(v) * shape.width));
  }
  void load(const Val& base) {
    for (int i = 0; i < count; ++i)
      for (int v = 0; v < shape.vectors; ++v) f.set(at(i, v), f.load(at(i, v).type, address(base, i, v), shape.width * 4));
  }
  void store(const Val& base) {
    for (int i = 0; i < count; ++i)
      for (int v = 0; v < shape.vectors; ++v) f.store(f.get(at(i, v)), address(base, i, v), shape.width * 4);
  }
  const Var& at(int i, int v) const { return slots[static_cast<std::size_t>(i * shape.vectors + v)]; }
};

// `steps` rank-1 updates: acc[i] += broadcast(b[step·b_pitch + i]) · a[step].
void multiply(Function& f, const Accumulators& acc, const Val& a, const Val& b, int b_pitch, int steps, bool pairs) {
  const PanelShape& shape = acc.shape;
  std::vector<Val> sums;
  for (const Var& v : acc.slots) sums.push_back(f.get(v));
  const std::string unit = pairs ? "i32" : "float";
  const std::string dot_operand = vector_of(2 * shape.width, "bfloat");
  for (int step = 0; step < steps; ++step) {
    std::vector<Val> lanes;
    for (int v = 0; v < shape.vectors; ++v) {
      const Val at = f.gep(unit, a, i64(static_cast<std::int64_t>(step) * shape.rows() + static_cast<std::int64_t>(v) * shape.width));
      const Val loaded = f.load(vector_of(shape.width, unit), at, shape.width * 4);
      lanes.push_back(pairs ? f.cast("bitcast", loaded, dot_operand) : loaded);
    }
    for (int i = 0; i < acc.count; ++i) {
      const Val scalar = f.load(unit, f.gep(unit, b, i64(static_cast<std::int64_t>(step) * b_pitch + i)), 4);
      Val wide = f.splat(scalar, shape.width);
      if (pairs) wide = f.cast("bitcast", wide, dot_operand);
      for (int v = 0; v < shape.vectors; ++v) {
        Val& sum = sums[static_cast<std::size_t>(i * shape.vectors + v)];
        const Val& lane = lanes[static_cast<std::size_t>(v)];
        sum = pairs ? f.call(sum.type, fmt::format("llvm.x86.avx512bf16.dpbf16ps.{}", shape.width * 32), {sum, lane, wide})
                    : f.fma(lane, wide, sum);
      }
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) f.set(acc.slots[i], sums[i]);
}

}  // namespace

std::string score_function(Module& m, const PanelShape& shape, std::int64_t depth, bool pairs) {
  const std::string name = fmt::format("score_{}x{}_depth{}{}", shape.block, shape.rows(), depth, pairs ? "_pairs" : "");
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal void @{}(ptr noalias %q, ptr noalias %k, ptr noalias %s, i64 %blocks) noinline", name));
  const std::int64_t steps = pairs ? (depth + 1) / 2 : depth;
  const int unroll = 4;
  const std::int64_t whole = steps / unroll * unroll;
  Accumulators acc(f, shape, shape.block);
  f.loop(i64(0), arg("%blocks", "i64"), 1, [&](Val b) {
    acc.clear();
    const Val k = f.gep("float", arg("%k", "ptr"), f.mul(b, i64(steps * shape.block)));
    const auto run = [&](const Val& d, int n) {
      multiply(f, acc, f.gep("float", arg("%q", "ptr"), f.mul(d, i64(shape.rows()))),
               f.gep("float", k, f.mul(d, i64(shape.block))), shape.block, n, pairs);
    };
    f.loop(i64(0), i64(whole), unroll, [&](Val d) { run(d, unroll); });
    if (whole < steps) run(i64(whole), static_cast<int>(steps - whole));
    acc.store(f.gep("float", arg("%s", "ptr"), f.mul(b, i64(static_cast<std::int64_t>(shape.block) * shape.rows()))));
  });
  f.finish();
  return name;
}

std::string sum_function(Module& m, const PanelShape& shape, std::int64_t cols, std::int64_t capacity, bool pairs) {
  const std::string name = fmt::format("sum_{}x{}_cols{}{}", shape.block, shape.rows(), cols, pairs ? "_pairs" : "");
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal void @{}(ptr noalias %p, ptr noalias %v, ptr noalias %o, i64 %n) noinline", name));
  const std::int64_t slots = pairs ? (capacity + 1) / 2 : capacity;
  const Val n = arg("%n", "i64");
  const Val even = f.binary("and", n, i64(-2));
  const auto block_of = [&](const Val& block, int count) {
    Accumulators acc(f, shape, count);
    const Val o = f.gep("float", arg("%o", "ptr"), f.mul(block, i64(static_cast<std::int64_t>(shape.block) * shape.rows())));
    const Val v = f.gep("float", arg("%v", "ptr"), f.mul(block, i64(slots * shape.block)));
    acc.load(o);
    const auto run = [&](const Val& j, int steps) {
      multiply(f, acc, f.gep("float", arg("%p", "ptr"), f.mul(j, i64(shape.rows()))),
               f.gep("float", v, f.mul(j, i64(shape.block))), shape.block, steps, pairs);
    };
    f.loop(i64(0), even, 2, [&](Val j) { run(j, 2); });
    f.if_else(f.compare("icmp ne", even, n), [&] { run(even, 1); });
    acc.store(o);
  };
  const std::int64_t whole = cols / shape.block;
  if (whole > 0) f.loop(i64(0), i64(whole), 1, [&](Val b) { block_of(b, shape.block); });
  if (cols % shape.block) block_of(i64(whole), static_cast<int>(cols % shape.block));
  f.finish();
  return name;
}

std::string guarded_sum_function(Module& m, const PanelShape& shape, std::int64_t cols, std::int64_t capacity, bool pairs) {
  const std::string name = fmt::format("guarded_sum_{}_cols{}{}", shape.rows(), cols, pairs ? "_pairs" : "");
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal void @{}(ptr noalias %p, ptr noalias %v, ptr noalias %o, i64 %n) noinline", name));
  const std::int64_t slots = pairs ? (capacity + 1) / 2 : capacity;
  const int w = shape.width;
  const std::string floats = vector_of(w, "float"), ints = vector_of(w, "i32");
  f.loop(i64(0), i64(cols), 1, [&](Val col) {
    const Val block = f.udiv(col, i64(shape.block)), in_block = f.urem(col, i64(shape.block));
    const Val v = f.gep("float", arg("%v", "ptr"), f.add(f.mul(block, i64(slots * shape.block)), in_block));
    f.loop(i64(0), i64(shape.rows()), w, [&](Val lane) {
      const Val o = f.gep("float", arg("%o", "ptr"), f.add(f.mul(col, i64(shape.rows())), lane));
      const Var sum = f.variable(floats);
      f.set(sum, f.load(floats, o, 4));
      f.loop(i64(0), arg("%n", "i64"), 1, [&](Val j) {
        const Val p_bits = f.load(ints, f.gep("float", arg("%p", "ptr"), f.add(f.mul(j, i64(shape.rows())), lane)), 4);
        const Val v_bits = f.load("i32", f.gep("float", v, f.mul(j, i64(shape.block))), 4);
        const auto step = [&](const Val& p_half, const Val& v_half) {
          const Val p = f.cast("bitcast", p_half, floats);
          const Val x = f.splat(f.cast("bitcast", v_half, "float"), w);
          const Val hidden = f.compare("icmp eq", p_half, splat_constant(i32(INT32_MIN), w));
          f.set(sum, f.select(hidden, f.get(sum), f.fma(p, x, f.get(sum))));
        };
        if (!pairs) return step(p_bits, v_bits);
        step(f.binary("shl", p_bits, splat_constant(i32(16), w)), f.binary("shl", v_bits, i32(16)));
        step(f.binary("and", p_bits, splat_constant(i32(-65536), w)), f.binary("and", v_bits, i32(-65536)));
      });
      f.store(f.get(sum), o, 4);
    });
  });
  f.finish();
  return name;
}

std::string unpack_rows_function(Module& m, DType type, int width, std::int64_t cols, int pitch) {
  const std::string name = fmt::format("unpack_rows_{}_{}x{}_pitch{}", short_name(type), width, cols, pitch);
  if (!m.function_names.insert(name).second) return name;
  Function f(m, fmt::format("internal void @{}(ptr noalias %src, ptr noalias %table, i64 %rows) noinline", name));
  const Val src = arg("%src", "ptr"), table = arg("%table", "ptr"), rows = arg("%rows", "i64");
  const std::string floats = vector_of(width, "float"), out_type = raw_type(type);
  const Var buffer = f.variable(fmt::format("[{} x {}]", width, floats));
  const Val square{buffer.slot, "ptr"};
  const std::int64_t whole = cols / width * width;
  f.loop(i64(0), i64(whole), width, [&](Val c) {
    std::vector<Val> lanes;
    for (int i = 0; i < width; ++i)
      lanes.push_back(f.load(floats, f.gep("float", src, f.mul(f.add(c, i64(i)), i64(pitch))), 4));
    lanes = transpose(f, std::move(lanes));
    for (int i = 0; i < width; ++i) f.store(lanes[static_cast<std::size_t>(i)], f.byte_offset(square, static_cast<std::int64_t>(i) * width * 4), width * 4);
    f.loop(i64(0), rows, 1, [&](Val r) {
      const Val value = f.load(floats, f.gep(floats, square, r), width * 4);
      store_narrowed(f, type, value, f.gep(out_type, table_entry(f, table, r), c));
    });
  });
  f.loop(i64(0), rows, 1, [&](Val r) {
    const Val row = table_entry(f, table, r);
    f.loop(i64(whole), i64(cols), 1, [&](Val c) {
      const Val value = f.load("float", f.gep("float", src, f.add(f.mul(c, i64(pitch)), r)), 4);
      store_narrowed(f, type, value, f.gep(out_type, row, c));
    });
  });
  f.finish();
  return name;
}

}  // namespace attile::llvm_text
