// Elementary functions as vector instructions; coefficients are minimax fits of the usual reductions.
#include <fmt/format.h>

#include <limits>

#include "codegen/llvm_expr.h"

namespace attile::llvm_text {
namespace {

struct Math {
  Function& f;
  int lanes;
  Val real(double x) const { return splat_constant(f32(static_cast<float>(x)), lanes); }
  Val bits(std::int64_t x) const { return splat_constant(i32(x), lanes); }
  std::string floats() const { return vector_of(lanes, "float"); }
  std::string ints() const { return vector_of(lanes, "i32"); }
  Val polynomial(const Val& x, std::initializer_list<double> highest_first) const {
    Val sum;
    for (const double c : highest_first) sum = sum.empty() ? real(c) : f.fma(sum, x, real(c));
    return sum;
  }
};

}  // namespace

// 2^t with AVX-512: t minus its floor by vreduceps, a polynomial on [0, 1), times 2^floor(t) by vscalefps, which is
// total: −inf gives 0, NaN stays. Both polynomials are minimax with constant term 1, so that exp(0) is exactly 1.
static Val exp2_avx512(Function& f, const Val& t) {
  const Math m{f, 16};
  const Val all{"-1", "i16"}, current{"4", "i32"};   // every lane, current rounding mode
  const Val r = f.call(t.type, "llvm.x86.avx512.mask.reduce.ps.512", {t, i32(9), {"poison", t.type}, all, current});
  const Val p = m.polynomial(r, {1.867129816673696e-3, 9.017030708491802e-3, 5.579991266131401e-2, 2.4016444385051727e-1,
                                 6.931512951850891e-1, 1.0});
  return f.call(t.type, "llvm.x86.avx512.mask.scalef.ps.512", {p, t, {"poison", t.type}, all, current});
}

// 2^t by splitting t into n + r, |r| ≤ 1/2: adding 1.5·2^23 + 127 leaves n + 127 in the low bits, which shifted
// up are the float 2^n. The product with it keeps a NaN.
static Val exp2_generic(Function& f, const Val& t) {
  const Math m{f, lanes_of(t.type)};
  const Val low = f.select(f.compare("fcmp olt", t, m.real(-126)), m.real(-126), t);
  const Val clamped = f.select(f.compare("fcmp ogt", low, m.real(128)), m.real(128), low);
  const Val magic = m.real(12582912.0 + 127.0);
  const Val shifted = f.binary("fadd", clamped, magic);
  const Val r = f.binary("fsub", clamped, f.binary("fsub", shifted, magic));
  const Val p = m.polynomial(r, {1.3264715671539307e-3, 9.671512991189957e-3, 5.550733953714371e-2, 2.4022242426872253e-1,
                                 6.931470036506653e-1, 1.0});
  const Val exponent = f.binary("shl", f.cast("bitcast", shifted, m.ints()), m.bits(23));
  const Val value = f.binary("fmul", p, f.cast("bitcast", exponent, m.floats()));
  return f.select(f.compare("fcmp uge", t, m.real(-126)), value, m.real(0));
}

Val emit_exp(Function& f, const Val& x) {
  const Math m{f, lanes_of(x.type)};
  const Val t = f.binary("fmul", x, m.real(1.4426950408889634));
  return f.module().avx512 && m.lanes == 16 ? exp2_avx512(f, t) : exp2_generic(f, t);
}

// x = 2^e·m with m in [√½, √2); log m by the odd series in (m−1)/(m+1).
Val emit_log(Function& f, const Val& x) {
  const Math m{f, lanes_of(x.type)};
  const Val tiny = f.compare("fcmp olt", x, m.real(std::numeric_limits<float>::min()));
  const Val scaled = f.select(tiny, f.binary("fmul", x, m.real(8388608.0)), x);
  const Val bits = f.cast("bitcast", scaled, m.ints());
  const Val biased = f.binary("sub", bits, m.bits(0x3F3504F3));   // √½
  const Val e = f.binary("ashr", biased, m.bits(23));
  const Val mantissa = f.cast("bitcast", f.binary("sub", bits, f.binary("shl", e, m.bits(23))), m.floats());
  const Val s = f.binary("fdiv", f.binary("fsub", mantissa, m.real(1)), f.binary("fadd", mantissa, m.real(1)));
  const Val z = f.binary("fmul", s, s);
  const Val series = f.binary("fmul", f.binary("fmul", s, z), m.polynomial(z, {2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3}));
  const Val log_m = f.fma(s, m.real(2), series);
  const Val shift = f.select(tiny, m.real(-23), m.real(0));
  const Val exponent = f.binary("fadd", f.cast("sitofp", e, m.floats()), shift);
  const Val finite = f.fma(exponent, m.real(0.6931471805599453), log_m);
  const double infinity = std::numeric_limits<double>::infinity();
  const Val at_zero = f.select(f.compare("fcmp oeq", x, m.real(0)), m.real(-infinity), finite);
  const Val negative = f.compare("fcmp olt", x, m.real(0));
  const Val nan = m.real(std::numeric_limits<double>::quiet_NaN());
  const Val valid = f.select(negative, nan, at_zero);
  const Val large = f.compare("fcmp oeq", x, m.real(infinity));
  return f.select(f.compare("fcmp uno", x, x), x, f.select(large, x, valid));
}

// 1/x for finite x of magnitude 1 or more; with AVX-512 a 14-bit estimate and one Newton step, a third of a division.
static Val reciprocal(Function& f, const Val& x) {
  const Math m{f, lanes_of(x.type)};
  if (!f.module().avx512 || m.lanes != 16) return f.binary("fdiv", m.real(1), x);
  const Val estimate = f.call(x.type, "llvm.x86.avx512.rcp14.ps.512", {x, {"poison", x.type}, {"-1", "i16"}});
  const Val minus_x = f.emit(x.type, fmt::format("fneg {} {}", x.type, x.name));
  return f.fma(estimate, f.fma(minus_x, estimate, m.real(1)), estimate);
}

// x·P(x²)/Q(x²), minimax in relative error (6.5e-8) on [−9.1, 9.1], beyond which tanh is ±1 in float32.
Val emit_tanh(Function& f, const Val& x) {
  const Math m{f, lanes_of(x.type)};
  const Val above = f.select(f.compare("fcmp olt", x, m.real(-9.1)), m.real(-9.1), x);
  const Val bounded = f.select(f.compare("fcmp ogt", above, m.real(9.1)), m.real(9.1), above);
  const Val z = f.binary("fmul", bounded, bounded);
  const Val p = m.polynomial(z, {1.779683171665436e-11, -1.2598570187094538e-8, 9.206135473505128e-6, 2.914013108238578e-3,
                                 0.12912942469120026, 0.9999999403953552});
  const Val q = m.polynomial(z, {2.271691191708669e-4, 2.3735513910651207e-2, 0.4624622166156769, 1.0});
  return f.binary("fmul", f.binary("fmul", bounded, p), reciprocal(f, q));
}

// Below −87 the result is 10^−38 instead of less.
Val emit_sigmoid(Function& f, const Val& x) {
  const Math m{f, lanes_of(x.type)};
  const Val bounded = f.select(f.compare("fcmp olt", x, m.real(-87)), m.real(-87), x);
  const Val e = emit_exp(f, f.binary("fsub", m.real(-0.0), bounded));
  return reciprocal(f, f.binary("fadd", e, m.real(1)));
}

Val ranks_before(Function& f, const Val& x, const Val& y) {
  const Val only_x_is_nan = f.binary("and", f.compare("fcmp uno", x, y), f.compare("fcmp ord", y, y));
  return f.binary("or", f.compare("fcmp ogt", x, y), only_x_is_nan);
}

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::string philox_function(Module& module, int lanes) {
  const std::string name = fmt::format("philox4x32_10_x{}", lanes);
  if (!module.function_names.insert(name).second) return name;
  const std::string words = vector_of(lanes, "i32"), wide = vector_of(lanes, "i64");
  Function f(module, fmt::format("internal {0} @{1}({0} %c0, {0} %c1, {0} %c2, {0} %c3, i32 %k0, i32 %k1, i32 %word) noinline", words, name));
  Val c[4] = {{"%c0", words}, {"%c1", words}, {"%c2", words}, {"%c3", words}};
  Val k0{"%k0", "i32"}, k1{"%k1", "i32"};
  const auto product = [&](const Val& x, std::uint32_t factor) {
    const Val full = f.binary("mul", f.cast("zext", x, wide), splat_constant(i64(factor), lanes));
    const Val high = f.cast("trunc", f.binary("lshr", full, splat_constant(i64(32), lanes)), words);
    return std::pair(high, f.cast("trunc", full, words));
  };
  for (int round = 0; round < 10; ++round) {
    const auto [high0, low0] = product(c[0], 0xD2511F53u);
    const auto [high1, low1] = product(c[2], 0xCD9E8D57u);
    const Val next0 = f.binary("xor", f.binary("xor", high1, c[1]), f.splat(k0, lanes));
    const Val next2 = f.binary("xor", f.binary("xor", high0, c[3]), f.splat(k1, lanes));
    c[0] = next0, c[1] = low1, c[2] = next2, c[3] = low0;
    k0 = f.binary("add", k0, i32(static_cast<std::int32_t>(0x9E3779B9u)));
    k1 = f.binary("add", k1, i32(static_cast<std::int32_t>(0xBB67AE85u)));
  }
  Val word = c[0];
  for (int i = 1; i < 4; ++i) {
    const Val is_i = f.compare("icmp eq", Val{"%word", "i32"}, i32(i));
    word = f.select(is_i, c[i], word);
  }
  f.statement(fmt::format("ret {} {}", word.type, word.name));
  f.finish_returned();
  return name;
}

}  // namespace attile::llvm_text
