#include "codegen/llvm_builder.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <iterator>
#include <optional>

#include "dsl/error.h"

namespace attile::llvm_text {

Val i64(std::int64_t value) { return {fmt::format("{}", value), "i64"}; }
Val i32(std::int64_t value) { return {fmt::format("{}", value), "i32"}; }
Val f32(float value) {
  return {fmt::format("0x{:016X}", std::bit_cast<std::uint64_t>(static_cast<double>(value))), "float"};
}

std::string vector_of(int lanes, const std::string& element) {
  return lanes == 1 ? element : fmt::format("<{} x {}>", lanes, element);
}
bool is_vector(const std::string& type) { return type.starts_with("<"); }
std::string element_of(const std::string& type) {
  if (!is_vector(type)) return type;
  const auto from = type.find(" x ") + 3;
  return type.substr(from, type.size() - from - 1);
}
int lanes_of(const std::string& type) { return is_vector(type) ? std::stoi(type.substr(1)) : 1; }

Val splat_constant(const Val& constant, int lanes) {
  if (lanes == 1) return constant;
  std::string text = "<";
  for (int i = 0; i < lanes; ++i) text += fmt::format("{}{} {}", i ? ", " : "", constant.type, constant.name);
  return {text + ">", vector_of(lanes, constant.type)};
}

Val iota(std::int64_t first, int lanes) {
  std::string text = "<";
  for (int lane = 0; lane < lanes; ++lane) text += fmt::format("{}i32 {}", lane ? ", " : "", first + lane);
  return {text + ">", vector_of(lanes, "i32")};
}

std::string mangled(const std::string& type) {
  const std::string element = element_of(type), text = element == "float" ? "f32" : element == "half" ? "f16" : element;
  return is_vector(type) ? fmt::format("v{}{}", lanes_of(type), text) : text;
}

static std::optional<std::int64_t> as_constant(const Val& v) {
  std::int64_t value = 0;
  const char* end = v.name.data() + v.name.size();
  const auto result = std::from_chars(v.name.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

std::string Module::text() const {
  std::string out;
  for (const auto& f : functions) out += f + "\n";
  for (const auto& d : declarations) out += d + "\n";
  out += "\nattributes #0 = { " + attributes + " }\n";
  return out;
}

Function::Function(Module& module, std::string signature) : module_(module), signature_(std::move(signature)) {
  body_.reserve(1 << 16);
}

void Function::finish() {
  statement("ret void");
  finish_returned();
}
void Function::finish_returned() {
  // `noinline` and the like stand after the parameter list, before the attribute group.
  module_.functions.push_back(
      fmt::format("define {} #0 {{\nentry:\n{}{}  br label %start\nstart:\n{}}}\n", signature_, allocas_, entry_, body_));
}

void Function::comment(std::string_view text) { fmt::format_to(std::back_inserter(body_), "  ; {}\n", text); }
std::string Function::fresh() { return fmt::format("%v{}", next_value_++); }
std::string Function::label(const char* hint) { return fmt::format("{}{}", hint, next_label_++); }
void Function::begin(const std::string& block) { body_ += block + ":\n"; }
void Function::jump(const std::string& target) { fmt::format_to(std::back_inserter(body_), "  br label %{}\n", target); }

Val Function::emit(const std::string& type, const std::string& instruction) {
  Val result{fresh(), type};
  fmt::format_to(std::back_inserter(body_), "  {} = {}\n", result.name, instruction);
  return result;
}
void Function::statement(const std::string& instruction) { fmt::format_to(std::back_inserter(body_), "  {}\n", instruction); }

Val Function::at_entry(const std::string& type, const std::string& instruction) {
  Val result{fresh(), type};
  fmt::format_to(std::back_inserter(entry_), "  {} = {}\n", result.name, instruction);
  return result;
}

Val Function::binary(const char* op, const Val& a, const Val& b) {
  internal_check(a.type == b.type, fmt::format("{} of {} and {}", op, a.type, b.type));
  return emit(a.type, fmt::format("{} {} {}, {}", op, a.type, a.name, b.name));
}

Val Function::add(const Val& a, const Val& b) {
  const auto x = as_constant(a), y = as_constant(b);
  if (x && y) return {fmt::format("{}", *x + *y), a.type};
  if (x && *x == 0) return b;
  if (y && *y == 0) return a;
  return binary("add", a, b);
}
Val Function::sub(const Val& a, const Val& b) {
  const auto x = as_constant(a), y = as_constant(b);
  if (x && y) return {fmt::format("{}", *x - *y), a.type};
  if (y && *y == 0) return a;
  return binary("sub", a, b);
}
Val Function::mul(const Val& a, const Val& b) {
  const auto x = as_constant(a), y = as_constant(b);
  if (x && y) return {fmt::format("{}", *x * *y), a.type};
  if (x && *x == 1) return b;
  if (y && *y == 1) return a;
  return binary("mul", a, b);
}
Val Function::udiv(const Val& a, const Val& b) {
  const auto y = as_constant(b);
  return y && *y == 1 ? a : binary("udiv", a, b);
}
Val Function::urem(const Val& a, const Val& b) {
  const auto y = as_constant(b);
  return y && *y == 1 ? Val{"0", a.type} : binary("urem", a, b);
}
Val Function::min(const Val& a, const Val& b) { return select(compare("icmp slt", a, b), a, b); }
Val Function::max(const Val& a, const Val& b) { return select(compare("icmp sgt", a, b), a, b); }

Val Function::compare(const char* predicate, const Val& a, const Val& b) {
  internal_check(a.type == b.type, fmt::format("{} of {} and {}", predicate, a.type, b.type));
  return emit(vector_of(lanes_of(a.type), "i1"), fmt::format("{} {} {}, {}", predicate, a.type, a.name, b.name));
}
Val Function::select(const Val& condition, const Val& a, const Val& b) {
  internal_check(a.type == b.type, fmt::format("select of {} and {}", a.type, b.type));
  return emit(a.type, fmt::format("select {} {}, {} {}, {} {}", condition.type, condition.name, a.type, a.name, b.type,
                                  b.name));
}
Val Function::cast(const char* op, const Val& a, const std::string& type) {
  if (a.type == type) return a;
  return emit(type, fmt::format("{} {} {} to {}", op, a.type, a.name, type));
}

Val Function::splat(const Val& scalar, int lanes) {
  if (lanes == 1 || is_vector(scalar.type)) return scalar;
  const std::string type = vector_of(lanes, scalar.type);
  const Val one = emit(type, fmt::format("insertelement {} poison, {} {}, i64 0", type, scalar.type, scalar.name));
  return shuffle(one, one, std::vector<int>(static_cast<std::size_t>(lanes), 0));
}

static std::string argument_list(const std::vector<Val>& args) {
  std::string text;
  for (const Val& a : args) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", a.type, a.name);
  return text;
}
static std::string type_list(const std::vector<Val>& args) {
  std::string text;
  for (const Val& a : args) text += (text.empty() ? "" : ", ") + a.type;
  return text;
}

Val Function::call(const std::string& type, const std::string& callee, const std::vector<Val>& args) {
  if (callee.starts_with("llvm."))
    module_.declarations.insert(fmt::format("declare {} @{}({})", type, callee, type_list(args)));
  return emit(type, fmt::format("call {} @{}({})", type, callee, argument_list(args)));
}
void Function::call_void(const std::string& callee, const std::vector<Val>& args) {
  if (callee.starts_with("llvm.")) module_.declarations.insert(fmt::format("declare void @{}({})", callee, type_list(args)));
  statement(fmt::format("call void @{}({})", callee, argument_list(args)));
}

Val Function::fma(const Val& a, const Val& b, const Val& c) {
  return call(a.type, "llvm.fma." + mangled(a.type), {a, b, c});
}

Val Function::shuffle(const Val& a, const Val& b, const std::vector<int>& mask) {
  std::string indices;
  for (const int i : mask) indices += fmt::format("{}i32 {}", indices.empty() ? "" : ", ", i);
  const int lanes = static_cast<int>(mask.size());
  return emit(vector_of(lanes, element_of(a.type)),
              fmt::format("shufflevector {} {}, {} {}, <{} x i32> <{}>", a.type, a.name, b.type, b.name, lanes, indices));
}

Val Function::gep(const std::string& element, const Val& base, const Val& index) {
  if (index.name == "0") return base;
  return emit("ptr", fmt::format("getelementptr inbounds {}, ptr {}, {} {}", element, base.name, index.type, index.name));
}
Val Function::byte_offset(const Val& base, std::int64_t bytes) { return gep("i8", base, i64(bytes)); }
Val Function::load(const std::string& type, const Val& address, int align) {
  return emit(type, fmt::format("load {}, ptr {}, align {}", type, address.name, align));
}
void Function::store(const Val& value, const Val& address, int align) {
  statement(fmt::format("store {} {}, ptr {}, align {}", value.type, value.name, address.name, align));
}

Var Function::variable(const std::string& type) {
  Var v{fresh(), type};
  fmt::format_to(std::back_inserter(allocas_), "  {} = alloca {}\n", v.slot, type);
  return v;
}
Val Function::get(const Var& v) { return emit(v.type, fmt::format("load {}, ptr {}", v.type, v.slot)); }
void Function::set(const Var& v, const Val& value) {
  internal_check(v.type == value.type, fmt::format("a variable of {} set to {}", v.type, value.type));
  statement(fmt::format("store {} {}, ptr {}", value.type, value.name, v.slot));
}

void Function::loop(const Val& from, const Val& to, std::int64_t step, const std::function<void(Val)>& body) {
  const Var counter = variable(from.type);
  set(counter, from);
  while_loop([&] { return compare("icmp slt", get(counter), to); },
             [&] {
               const Val i = get(counter);
               body(i);
               set(counter, emit(from.type, fmt::format("add nsw {} {}, {}", from.type, i.name, step)));
             });
}

// The test stands in front and again at the end, so that the loop proper is one block where its body is.
void Function::while_loop(const std::function<Val()>& condition, const Body& body) {
  const std::string inside = label("loop"), after = label("after");
  const Val enter = condition();
  statement(fmt::format("br i1 {}, label %{}, label %{}", enter.name, inside, after));
  begin(inside);
  body();
  const Val again = condition();
  statement(fmt::format("br i1 {}, label %{}, label %{}", again.name, inside, after));
  begin(after);
}

void Function::if_else(const Val& condition, const Body& then, const Body& otherwise) {
  const std::string yes = label("then"), no = label("else"), after = label("endif");
  statement(fmt::format("br i1 {}, label %{}, label %{}", condition.name, yes, otherwise ? no : after));
  begin(yes);
  then();
  jump(after);
  if (otherwise) {
    begin(no);
    otherwise();
    jump(after);
  }
  begin(after);
}

}  // namespace attile::llvm_text
