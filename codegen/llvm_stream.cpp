#include "codegen/llvm_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace attile::llvm_text {
namespace {

using Join = std::function<Val(const Val&, const Val&)>;

const Val arg(const char* name, const char* type) { return {name, type}; }

// Elements [col, col + lanes) of a row of `cols` as they are; those past the end read as 0 and are not touched.
Val load_raw(Function& f, DType type, const Val& row, std::int64_t col, std::int64_t cols, int lanes) {
  const std::int64_t bytes = static_cast<std::int64_t>(size_of(type));
  const Val at = f.byte_offset(row, col * bytes);
  const std::string vec = vector_of(lanes, raw_type(type));
  const int valid = static_cast<int>(std::min<std::int64_t>(lanes, cols - col));
  if (valid == lanes) return f.load(vec, at, static_cast<int>(bytes));
  std::string mask = "<";
  for (int i = 0; i < lanes; ++i) mask += fmt::format("{}i1 {}", i ? ", " : "", i < valid ? "true" : "false");
  return f.call(vec, fmt::format("llvm.masked.load.{}.p0", mangled(vec)),
                {at, i32(bytes), {mask + ">", vector_of(lanes, "i1")}, {"zeroinitializer", vec}});
}

// Columns [col, col + lanes) of a bf16 row, the even ones and the odd ones.
std::array<Val, 2> load_halves(Function& f, const Val& row, std::int64_t col, int lanes) {
  const Val words = f.load(vector_of(lanes / 2, "i32"), f.byte_offset(row, col * 2), 2);
  const auto floats = [&](const Val& bits) { return f.cast("bitcast", bits, vector_of(lanes / 2, "float")); };
  return {floats(f.binary("shl", words, splat_constant(i32(16), lanes / 2))),
          floats(f.binary("and", words, splat_constant(i32(-65536), lanes / 2)))};
}

Val dot_pairs(Function& f, const Val& sum, const Val& a, const Val& b) {
  const int lanes = 2 * lanes_of(sum.type);
  const std::string pairs = vector_of(lanes, "bfloat");
  return f.call(sum.type, fmt::format("llvm.x86.avx512bf16.dpbf16ps.{}", lanes * 16), {sum, f.cast("bitcast", a, pairs), f.cast("bitcast", b, pairs)});
}

// A row of the other tile. One line in four is enough for the chip's own prefetcher to follow, also across pages;
// asking for all of them is slower, since the few misses that a core tracks are then taken. Rows so long that the
// sums take several passes are too much for that prefetcher.
void fetch_ahead(Function& f, const StreamProduct& p, const Val& address) {
  const int step = p.shape.sum_in_one_pass(p.ahead_cols) ? 256 : 64;
  f.module().declarations.insert("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)");
  for (std::int64_t at = 0; at < p.ahead_cols * static_cast<std::int64_t>(size_of(p.ahead_type)); at += step)
    f.call_void("llvm.prefetch.p0", {f.byte_offset(address, at), i32(0), i32(2), i32(1)});   // a read, into level 2, of data
}

// Lanes with bit `step` clear take a's, the others b's: of themselves and of their partner across that bit.
Val fold_step(Function& f, const Val& a, const Val& b, int step, const Join& join) {
  const int width = lanes_of(a.type);
  std::vector<int> own, partner;
  for (int lane = 0; lane < width; ++lane) {
    const int source = lane & step ? width : 0;
    own.push_back(source + lane);
    partner.push_back(source + (lane ^ step));
  }
  return join(f.shuffle(a, b, own), f.shuffle(a, b, partner));
}

Join adding(Function& f) {
  return [&f](const Val& a, const Val& b) { return f.binary("fadd", a, b); };
}

std::string signature(const std::string& name, const char* parameters) {
  return fmt::format("internal void @{}({}, ptr %ahead, i64 %ahead_stride) noinline", name, parameters);
}
std::string name_of(const char* what, const StreamProduct& p) {
  const char* form = p.shape.pairs ? "_pairs" : p.shape.halves ? "_halves" : "";
  return fmt::format("{}_{}{}_rows{}_cols{}_ahead_{}x{}", what, short_name(p.type), form, p.rows, p.cols,
                     short_name(p.ahead_type), p.ahead_cols);
}

class Score {
 public:
  Score(Function& f, const StreamProduct& p) : f_(f), p_(p), lanes_(p.shape.width * (p.shape.pairs ? 2 : 1)), keys_(p.shape.width / p.rows) {}

  // First the sums of each key, those of its rows folded into one vector; these are then folded key by key. The
  // first loop is short, so that the chip's prefetcher sees few places that read.
  void run() {
    if (vectors() * p_.rows <= p_.shape.registers / 2)
      for (int r = 0; r < p_.rows; ++r)
        for (std::int64_t v = 0; v < vectors(); ++v) q_.push_back(load_q(r, i64(v * p_.shape.width)));
    const Val n = arg("%n", "i64");
    const Var next = f_.variable("ptr"), ahead = f_.variable("ptr");
    f_.set(next, arg("%k", "ptr"));
    f_.set(ahead, arg("%ahead", "ptr"));
    f_.loop(i64(0), n, stream_chunk, [&](Val first) {
      const Val count = f_.min(f_.sub(n, first), i64(stream_chunk));
      const auto sum_up = [&](const Val& j, int keys) {
        std::vector<Val> rows;
        for (int key = 0; key < keys; ++key) {
          fetch_ahead(f_, p_, advanced(ahead, arg("%ahead_stride", "i64")));
          rows.push_back(advanced(next, arg("%stride", "i64")));
        }
        const std::vector<std::vector<Val>> sums = sums_of(rows);
        for (int key = 0; key < keys; ++key)
          f_.store(folded(sums[static_cast<std::size_t>(key)], p_.shape.width / 2), waiting(f_.add(j, i64(key))),
                   p_.shape.width * 4);
      };
      const Val whole = f_.binary("and", count, i64(-keys_at_once));
      f_.loop(i64(0), whole, keys_at_once, [&](Val j) { sum_up(j, keys_at_once); });
      f_.loop(whole, count, 1, [&](Val j) { sum_up(j, 1); });
      f_.loop(i64(0), count, keys_, [&](Val j) {
        std::vector<Val> keys;
        for (int key = 0; key < keys_; ++key) keys.push_back(f_.load(zero().type, waiting(f_.add(j, i64(key))), p_.shape.width * 4));
        store(folded(std::move(keys), keys_ / 2), f_.add(first, j));
      });
    });
  }

 private:
  std::int64_t vectors() const { return (p_.cols + lanes_ - 1) / lanes_; }
  Val load_q(int row, const Val& word) {
    const std::string type = p_.shape.pairs ? vector_of(lanes_, "i16") : vector_of(lanes_, "float");
    return f_.load(type, f_.gep("float", arg("%q", "ptr"), f_.add(i64(row * p_.shape.padded(p_.cols)), word)), p_.shape.width * 4);
  }
  Val zero() const { return {"zeroinitializer", vector_of(p_.shape.width, "float")}; }

  Val waiting(const Val& j) { return f_.gep("float", arg("%folded", "ptr"), f_.mul(j, i64(p_.shape.width))); }
  // The address before it moves on.
  Val advanced(const Var& address, const Val& stride) {
    const Val now = f_.get(address);
    f_.set(address, f_.gep("i8", now, stride));
    return now;
  }

  using Sums = std::vector<std::vector<Val>>;  // [key][row]
  using LoadQ = std::function<Val(int row, int vector)>;

  void add(Val& sum, const Val& q, const Val& k) {
    if (p_.shape.pairs) sum = dot_pairs(f_, sum.empty() ? zero() : sum, q, k);
    else sum = sum.empty() ? f_.binary("fmul", q, k) : f_.fma(q, k, sum);
  }
  // The products of some vectors of keys with every row, from column `col` on: `vectors` are of one load.
  void add_vectors(Sums& sums, const std::vector<Val>& rows, std::int64_t col, int vectors, const LoadQ& q) {
    std::vector<std::vector<Val>> k;
    for (const Val& row : rows) {
      if (vectors == 2) {
        const auto [even, odd] = load_halves(f_, row, col, 2 * lanes_);
        k.push_back({even, odd});
      } else {
        const Val raw = load_raw(f_, p_.type, row, col, p_.cols, lanes_);
        k.push_back({p_.shape.pairs ? raw : widened(f_, p_.type, raw)});
      }
    }
    for (int v = 0; v < vectors; ++v)
      for (int r = 0; r < p_.rows; ++r) {
        const Val of_row = q(r, v);
        for (std::size_t key = 0; key < rows.size(); ++key)
          add(sums[key][static_cast<std::size_t>(r)], of_row, k[key][static_cast<std::size_t>(v)]);
      }
  }
  // Of keys at once: the lanes' sums for each row.
  Sums sums_of(const std::vector<Val>& rows) {
    constexpr std::int64_t unrolled = 16;
    Sums sums(rows.size(), std::vector<Val>(static_cast<std::size_t>(p_.rows)));
    const std::int64_t in_loop = vectors() <= unrolled ? 0 : p_.cols / (lanes_ * unrolled) * unrolled;
    const int step = p_.shape.halves ? 2 : 1;
    if (in_loop > 0) {
      std::vector<Var> kept;
      const auto each = [&](const std::function<void(Val& sum, const Var& place)>& body) {
        std::size_t i = 0;
        for (std::vector<Val>& of_key : sums)
          for (Val& sum : of_key) body(sum, kept[i++]);
      };
      for (std::size_t i = 0; i < rows.size() * static_cast<std::size_t>(p_.rows); ++i)
        kept.push_back(f_.variable(zero().type)), f_.set(kept.back(), zero());
      f_.loop(i64(0), i64(in_loop), unrolled, [&](Val first) {
        each([&](Val& sum, const Var& place) { sum = f_.get(place); });
        std::vector<Val> parts;
        for (const Val& row : rows)
          parts.push_back(f_.gep("i8", row, f_.mul(first, i64(lanes_ * static_cast<std::int64_t>(size_of(p_.type))))));
        for (std::int64_t v = 0; v < unrolled; v += step)
          add_vectors(sums, parts, v * lanes_, step,
                      [&](int r, int half) { return load_q(r, f_.mul(f_.add(first, i64(v + half)), i64(p_.shape.width))); });
        each([&](Val& sum, const Var& place) { f_.set(place, sum); });
      });
      each([&](Val& sum, const Var& place) { sum = f_.get(place); });
    }
    for (std::int64_t v = in_loop; v < vectors();) {
      const int count = v * lanes_ < p_.shape.halved(p_.cols) ? 2 : 1;
      add_vectors(sums, rows, v * lanes_, count, [&](int r, int half) {
        return q_.empty() ? load_q(r, i64((v + half) * p_.shape.width)) : q_[static_cast<std::size_t>(r * vectors() + v + half)];
      });
      v += count;
    }
    return sums;
  }
  // Of rows: row r's sums end in lanes [r·keys, (r + 1)·keys). Of keys: key i of each row in lane i of those.
  Val folded(std::vector<Val> x, int step) {
    for (; x.size() > 1; step /= 2) {
      std::vector<Val> next;
      for (std::size_t i = 0; i < x.size() / 2; ++i) next.push_back(fold_step(f_, x[i], x[i + x.size() / 2], step, adding(f_)));
      x = std::move(next);
    }
    return x.front();
  }
  void store(const Val& scores, const Val& j) {
    for (int r = 0; r < p_.rows; ++r) {
      std::vector<int> mask;
      for (int key = 0; key < keys_; ++key) mask.push_back(r * keys_ + key);
      const Val part = p_.rows == 1 ? scores : f_.shuffle(scores, scores, mask);
      f_.store(part, f_.gep("float", arg("%s", "ptr"), f_.add(i64(r * p_.pitch), j)), 4);
    }
  }

  Function& f_;
  const StreamProduct& p_;
  static constexpr int keys_at_once = 2;   // so that a vector of q is loaded once for two
  const int lanes_, keys_;   // elements of a vector of K; positions of a block
  std::vector<Val> q_;       // where the registers hold it: [row][vector]
};

// One pass over the stream for some columns of V.
class Sum {
 public:
  Sum(Function& f, const StreamProduct& p, std::int64_t first, int vectors) : f_(f), p_(p), first_(first), vectors_(vectors) {}

  void run(bool ahead) {
    load_sums();
    const Val n = arg("%n", "i64");
    row_ = f_.variable("ptr"), ahead_ = f_.variable("ptr");
    f_.set(row_, arg("%v", "ptr"));
    f_.set(ahead_, arg("%ahead", "ptr"));
    const std::int64_t step = p_.shape.pairs ? 2 : 1;
    const Val whole = step == 1 ? n : f_.binary("and", n, i64(-step));
    f_.loop(i64(0), whole, step, [&](Val j) {
      if (ahead) fetch(step);
      p_.shape.pairs ? two_positions(j) : one_position(j);
    });
    if (step == 2) f_.if_else(f_.compare("icmp ne", whole, n), [&] { last_position(whole); });
    store_sums();
  }

 private:
  std::string floats() const { return vector_of(p_.shape.width, "float"); }
  Val o_at(int r, int e) {
    return f_.gep("float", arg("%o", "ptr"), i64(r * p_.shape.padded(p_.cols) + first_ + std::int64_t{e} * p_.shape.width));
  }
  // Vectors from e on that are one load of V.
  int together(int e) const {
    return e + 1 < vectors_ && first_ + std::int64_t{e} * p_.shape.width < p_.shape.halved(p_.cols) ? 2 : 1;
  }
  void each_load(const std::function<void(int e, int count)>& body) {
    for (int e = 0; e < vectors_; e += together(e)) body(e, together(e));
  }
  void load_sums() {
    for (int i = 0; i < p_.rows * vectors_; ++i) sums_.push_back(f_.variable(floats()));
    for (int r = 0; r < p_.rows; ++r)
      each_load([&](int e, int count) {
        const auto load = [&](int at) { return f_.load(floats(), o_at(r, at), p_.shape.width * 4); };
        if (count == 1) return f_.set(sum(r, e), load(e));
        const auto [even, odd] = split_halves(f_, load(e), load(e + 1));
        f_.set(sum(r, e), even), f_.set(sum(r, e + 1), odd);
      });
  }
  void store_sums() {
    for (int r = 0; r < p_.rows; ++r)
      each_load([&](int e, int count) {
        const auto store = [&](const Val& x, int at) { f_.store(x, o_at(r, at), p_.shape.width * 4); };
        if (count == 1) return store(f_.get(sum(r, e)), e);
        const auto [first, second] = joined_halves(f_, f_.get(sum(r, e)), f_.get(sum(r, e + 1)));
        store(first, e), store(second, e + 1);
      });
  }
  const Var& sum(int r, int e) const { return sums_[static_cast<std::size_t>(r * vectors_ + e)]; }

  Val next_row() {
    const Val row = f_.get(row_);
    f_.set(row_, f_.gep("i8", row, arg("%stride", "i64")));
    return row;
  }
  void fetch(std::int64_t positions) {
    for (std::int64_t i = 0; i < positions; ++i) {
      fetch_ahead(f_, p_, f_.get(ahead_));
      f_.set(ahead_, f_.gep("i8", f_.get(ahead_), arg("%ahead_stride", "i64")));
    }
  }
  Val weight_at(int r, const Val& j) {
    const Val row = f_.gep("float", arg("%p", "ptr"), i64(r * p_.pitch));
    return f_.gep(p_.shape.pairs ? "i16" : "float", row, j);
  }

  void one_position(const Val& j) {
    const Val row = next_row();
    std::vector<Val> weights;
    for (int r = 0; r < p_.rows; ++r) weights.push_back(f_.splat(f_.load("float", weight_at(r, j), 4), p_.shape.width));
    const auto add = [&](int e, const Val& v) {
      for (int r = 0; r < p_.rows; ++r)
        f_.set(sum(r, e), f_.fma(weights[static_cast<std::size_t>(r)], v, f_.get(sum(r, e))));
    };
    each_load([&](int e, int count) {
      const std::int64_t col = first_ + std::int64_t{e} * p_.shape.width;
      if (count == 1) return add(e, widened(f_, p_.type, load_raw(f_, p_.type, row, col, p_.cols, p_.shape.width)));
      const auto [even, odd] = load_halves(f_, row, col, 2 * p_.shape.width);
      add(e, even), add(e + 1, odd);
    });
  }
  void two_positions(const Val& j) {
    const Val a = next_row(), b = next_row();
    multiply(interleaved(a, b), [&](int r) { return f_.load("i32", weight_at(r, j), 2); });
  }
  // Without a second position: it weighs 0 and so does its V, whatever the memory behind it holds.
  void last_position(const Val& j) {
    multiply(interleaved(next_row(), {}), [&](int r) { return f_.cast("zext", f_.load("i16", weight_at(r, j), 2), "i32"); });
  }
  // Vectors of pairs: column c of row a and of row b side by side.
  std::vector<Val> interleaved(const Val& a, const Val& b) {
    std::vector<Val> out;
    for (int e = 0; e < vectors_; e += 2) {
      const int count = std::min(2, vectors_ - e), lanes = count * p_.shape.width;
      const std::int64_t col = first_ + std::int64_t{e} * p_.shape.width;
      const Val upper = load_raw(f_, p_.type, a, col, p_.cols, lanes);
      const Val lower = b.empty() ? Val{"zeroinitializer", upper.type} : load_raw(f_, p_.type, b, col, p_.cols, lanes);
      for (int half = 0; half < count; ++half) {
        std::vector<int> zip;
        for (int i = 0; i < p_.shape.width; ++i) zip.insert(zip.end(), {half * p_.shape.width + i, lanes + half * p_.shape.width + i});
        out.push_back(f_.shuffle(upper, lower, zip));
      }
    }
    return out;
  }
  void multiply(const std::vector<Val>& v, const std::function<Val(int)>& weights) {
    for (int r = 0; r < p_.rows; ++r) {
      const Val p = f_.splat(weights(r), p_.shape.width);
      for (int e = 0; e < vectors_; ++e) f_.set(sum(r, e), dot_pairs(f_, f_.get(sum(r, e)), v[static_cast<std::size_t>(e)], p));
    }
  }

  Function& f_;
  const StreamProduct& p_;
  const std::int64_t first_;
  const int vectors_;
  std::vector<Var> sums_;   // [row][vector of columns]
  Var row_, ahead_;
};

// Vectors of columns per pass of a sum of `rows` rows, of `all`: one pass if the sums leave a quarter of the registers,
// else passes of one size as far as possible that leave half, for V and the weights.
int sum_vectors(const StreamShape& shape, int rows, std::int64_t all) {
  if (rows * all <= shape.registers * 3 / 4) return static_cast<int>(all);
  const std::int64_t most = std::max(1, shape.registers / 2 / rows);
  const std::int64_t passes = (all + most - 1) / most, each = (all + passes - 1) / passes;
  return static_cast<int>(shape.halves && each % 2 && each < all ? each + 1 : each);  // both halves in one pass
}

}  // namespace

static bool one_pass(const StreamShape& shape, int rows, std::int64_t vectors) {
  return sum_vectors(shape, rows, vectors) >= vectors;
}
int StreamShape::sum_rows(std::int64_t cols) const {
  const std::int64_t vectors = padded(cols) / width;
  return one_pass(*this, most_rows / 2, vectors) && !one_pass(*this, most_rows, vectors) ? most_rows / 2 : most_rows;
}
bool StreamShape::sum_in_one_pass(std::int64_t cols) const {
  return one_pass(*this, sum_rows(cols), padded(cols) / width);
}

std::string stream_score_function(Module& m, const StreamProduct& p) {
  const std::string name = name_of("stream_score", p);
  if (!m.function_names.insert(name).second) return name;
  Function f(m, signature(name, "ptr noalias %q, ptr %k, i64 %stride, i64 %n, ptr noalias %s, ptr noalias %folded"));
  Score(f, p).run();
  f.finish();
  return name;
}

std::string stream_sum_function(Module& m, const StreamProduct& p) {
  const std::string name = name_of("stream_sum", p);
  if (!m.function_names.insert(name).second) return name;
  Function f(m, signature(name, "ptr noalias %p, ptr %v, i64 %stride, i64 %n, ptr noalias %o"));
  const std::int64_t all = p.shape.padded(p.cols) / p.shape.width;
  const int step = sum_vectors(p.shape, p.rows, all);
  for (std::int64_t e = 0; e < all; e += step)
    Sum(f, p, e * p.shape.width, static_cast<int>(std::min<std::int64_t>(step, all - e))).run(e == 0);
  f.finish();
  return name;
}

std::string guarded_stream_sum_function(Module& m, const StreamProduct& p) {
  const std::string name = name_of("guarded_stream_sum", p);
  if (!m.function_names.insert(name).second) return name;
  Function f(m, signature(name, "ptr noalias %p, ptr %v, i64 %stride, i64 %n, ptr noalias %o"));
  const std::string word = p.shape.pairs ? "i16" : "i32";
  f.loop(i64(0), arg("%n", "i64"), 1, [&](Val j) {
    const Val row = f.gep("i8", arg("%v", "ptr"), f.mul(j, arg("%stride", "i64")));
    f.loop(i64(0), i64(p.rows), 1, [&](Val r) {
      const Val at = f.gep(word, f.gep("float", arg("%p", "ptr"), f.mul(r, i64(p.pitch))), j);
      const Val hidden{p.shape.pairs ? "-32768" : "-2147483648", word};
      f.if_else(f.compare("icmp ne", f.load(word, at, 2), hidden), [&] {
        const Val weight = load_widened(f, p.shape.pairs ? DType::bfloat16 : DType::float32, at, 1);
        f.loop(i64(0), i64(p.cols), 1, [&](Val c) {
          const Val x = load_widened(f, p.type, f.gep(raw_type(p.type), row, c), 1);
          const Val o = f.gep("float", arg("%o", "ptr"), f.add(f.mul(r, i64(p.shape.padded(p.cols))), c));
          f.store(f.fma(weight, x, f.load("float", o, 4)), o, 4);
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
    for (std::int64_t c = 0; c < cols; c += shape.width) {   // x·0 is NaN exactly where x is not finite
      const Val x = widened(f, type, load_raw(f, type, row, c, cols, shape.width));
      f.set(seen, f.fma(x, splat_constant(f32(0), shape.width), f.get(seen)));
    }
  });
  const Val total = f.get(seen);
  const Val bad = f.call("i1", fmt::format("llvm.vector.reduce.or.v{}i1", shape.width), {f.compare("fcmp uno", total, total)});
  f.statement(fmt::format("ret i1 {}", bad.name));
  f.finish_returned();
  return name;
}

std::array<Val, 2> split_halves(Function& f, const Val& first, const Val& second) {
  std::vector<int> even, odd;
  for (int i = 0; i < lanes_of(first.type); ++i) even.push_back(2 * i), odd.push_back(2 * i + 1);
  return {f.shuffle(first, second, even), f.shuffle(first, second, odd)};
}
std::array<Val, 2> joined_halves(Function& f, const Val& even, const Val& odd) {
  const int width = lanes_of(even.type);
  std::vector<int> first, second;
  for (int i = 0; i < width; ++i) {
    first.push_back(i / 2 + (i % 2) * width);
    second.push_back(width / 2 + i / 2 + (i % 2) * width);
  }
  return {f.shuffle(even, odd, first), f.shuffle(even, odd, second)};
}

Val fold_lanes(Function& f, std::vector<Val> x, const Join& join) {
  const int width = lanes_of(x.front().type);
  int step = width / 2;
  for (; x.size() > 1; step /= 2) {
    std::vector<Val> next;
    for (std::size_t i = 0; i < x.size() / 2; ++i) next.push_back(fold_step(f, x[i], x[i + x.size() / 2], step, join));
    x = std::move(next);
  }
  Val whole = x.front();
  for (; step > 0; step /= 2) whole = fold_step(f, whole, whole, step, join);
  return whole;
}

}  // namespace attile::llvm_text
