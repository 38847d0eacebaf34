// Writes the text of one LLVM function: typed values, structured loops and branches, automatic names.
// Only text: no LLVM header or library is needed. Syntax of LLVM 16 and later (opaque pointers).
// Integers that count or address are i64. Variables that change are `Var`s (stack slots that LLVM's SROA
// turns into registers), so no phi is ever written by hand.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace attile::llvm_text {

struct Val {
  std::string name;  // "%7", "42", "zeroinitializer"
  std::string type;  // "i64", "float", "<16 x float>", "ptr"
  bool empty() const { return name.empty(); }
};

// A mutable variable of one function.
struct Var {
  std::string slot, type;
};

Val i64(std::int64_t value);
Val i32(std::int64_t value);
Val f32(float value);                                  // exact, in LLVM's hexadecimal form
std::string vector_of(int lanes, const std::string& element);
bool is_vector(const std::string& type);
std::string element_of(const std::string& type);       // "float" of "<16 x float>"; itself for a scalar
int lanes_of(const std::string& type);                 // 1 for a scalar
Val splat_constant(const Val& constant, int lanes);    // of a constant scalar
Val iota(std::int64_t first, int lanes);               // i32: first, first + 1, …
std::string mangled(const std::string& type);          // as the name of an overloaded intrinsic has it: "v16f32"

// The declarations and functions of one module.
struct Module {
  std::set<std::string> declarations;
  std::vector<std::string> functions;
  std::set<std::string> function_names;
  std::string attributes;   // body of `attributes #0 = { … }`
  bool avx512 = false;      // its intrinsics on 16 floats may be used
  std::string text() const;
};

class Function {
 public:
  using Body = std::function<void()>;

  // `signature`: "internal void @name(ptr noalias %q, i64 %n)".
  Function(Module& module, std::string signature);
  void finish();            // appends the text to the module; `ret void` is added
  void finish_returned();   // the same where the body has written its own ret

  Module& module() { return module_; }
  void comment(std::string_view text);

  // Raw instruction with a result: emit("float", "fadd float %1, %2").
  Val emit(const std::string& type, const std::string& instruction);
  void statement(const std::string& instruction);

  Val binary(const char* op, const Val& a, const Val& b);   // operands of one type
  Val add(const Val& a, const Val& b);                      // integers; folds constants
  Val sub(const Val& a, const Val& b);
  Val mul(const Val& a, const Val& b);
  Val udiv(const Val& a, const Val& b);
  Val urem(const Val& a, const Val& b);
  Val min(const Val& a, const Val& b);                      // signed integers
  Val max(const Val& a, const Val& b);
  Val compare(const char* predicate, const Val& a, const Val& b);   // "icmp slt", "fcmp olt"
  Val select(const Val& condition, const Val& a, const Val& b);
  Val cast(const char* op, const Val& a, const std::string& type);  // no-op when the type is the same
  Val splat(const Val& scalar, int lanes);
  Val call(const std::string& type, const std::string& callee, const std::vector<Val>& args);
  Val fma(const Val& a, const Val& b, const Val& c);
  void call_void(const std::string& callee, const std::vector<Val>& args);
  Val shuffle(const Val& a, const Val& b, const std::vector<int>& mask);

  Val gep(const std::string& element, const Val& base, const Val& index);
  Val byte_offset(const Val& base, std::int64_t bytes);
  Val load(const std::string& type, const Val& address, int align);
  void store(const Val& value, const Val& address, int align);

  Var variable(const std::string& type);
  Val get(const Var& v);
  void set(const Var& v, const Val& value);

  // for (i = from; i < to; i += step) body(i)
  void loop(const Val& from, const Val& to, std::int64_t step, const std::function<void(Val i)>& body);
  void if_else(const Val& condition, const Body& then, const Body& otherwise = nullptr);
  void while_loop(const std::function<Val()>& condition, const Body& body);

  // Instructions that stand at the function's start, before everything else (loads of arguments).
  Val at_entry(const std::string& type, const std::string& instruction);

 private:
  std::string fresh();
  std::string label(const char* hint);
  void begin(const std::string& block);
  void jump(const std::string& target);

  Module& module_;
  std::string signature_, allocas_, entry_, body_;
  int next_value_ = 0, next_label_ = 0;
};

}  // namespace attile::llvm_text
