#include "runtime/orc_compiler.h"

#include <cstring>
#include <thread>

#include "dsl/error.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

// What LLVM held when it met a fatal fault is abandoned on purpose, for its state is unknown; and a forked child has
// the memory of its parent's pool threads without the threads.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libattile_llvm.so\nleak:worker_scratch\nleak:__cxa_thread_atexit\n";
}

namespace {

std::string adder(int number) {
  std::string n = std::to_string(number);
  return "define i32 @add(i32 %x) {\n  %y = add i32 %x, " + n + "\n  ret i32 %y\n}\n";
}

int add(const LoadedObject& object, int x) { return object.function<int(int)>("add")(x); }

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("no error");
}

// The text of a refused program is dumped for the report; the test takes it away again.
void remove_dump(const Error& error) {
  std::string text = error.what();
  auto end = text.rfind(".ll'"), start = text.rfind('\'', end);
  REQUIRE(end != std::string::npos);
  std::string path = text.substr(start + 1, end + 3 - start - 1);
  CHECK(fs::exists(path));
  fs::remove(path);
}

}  // namespace

TEST_CASE("IR text becomes a function of this process") {
  auto& compiler = OrcCompiler::instance();
  CompileReport report;
  LoadedObject object = compiler.load(compiler.compile(adder(3), host_cpu(), &report));
  CHECK(add(object, 4) == 7);
  CHECK(report.warnings.empty());
  CHECK(report.codegen_ms > 0);
  CHECK_THROWS_WITH(object.symbol("nothing"), ContainsSubstring("nothing"));
  LoadedObject moved = std::move(object);
  CHECK(add(moved, 5) == 8);
}

TEST_CASE("one text compiles to the same bytes every time") {
  auto& compiler = OrcCompiler::instance();
  CHECK(compiler.compile(adder(3), host_cpu()) == compiler.compile(adder(3), host_cpu()));
}

TEST_CASE("code may call memory and maths functions and nothing else") {
  auto& compiler = OrcCompiler::instance();
  auto copy = compiler.load(
      compiler.compile("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\ndeclare float @expf(float)\n"
                       "define void @copy(ptr %a, ptr %b, i64 %n) {\n"
                       "  call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %b, i64 %n, i1 false)\n  ret void\n}\n"
                       "define float @e(float %x) {\n  %y = call float @expf(float %x)\n  ret float %y\n}\n",
                       host_cpu()));
  char from[100] = "some text", to[100] = {};
  copy.function<void(char*, const char*, std::int64_t)>("copy")(to, from, 100);
  CHECK(std::strcmp(from, to) == 0);
  CHECK(copy.function<float(float)>("e")(0) == 1);
  auto object = compiler.compile(
      "declare i32 @system(ptr)\ndefine i32 @f(ptr %x) {\n  %y = call i32 @system(ptr %x)\n"
      "  ret i32 %y\n}\n",
      host_cpu());
  Error error = error_of([&] { compiler.load(object); });
  CHECK(error.kind() == ErrorKind::environment);
  CHECK_THAT(error.what(), ContainsSubstring("system"));
}

TEST_CASE("text that does not parse is refused with its line and a way to reproduce") {
  Error error = error_of([] { OrcCompiler::instance().compile("define void @f() {\n  ret i32 %x\n}\n", host_cpu()); });
  CHECK(error.kind() == ErrorKind::internal);
  CHECK_THAT(error.what(), ContainsSubstring("kernel.ll:2:") && ContainsSubstring("llc-"));
  remove_dump(error);
}

TEST_CASE("text that parses but is wrong is refused by the verifier") {
  Error error = error_of([] {
    OrcCompiler::instance().compile(
        "define i32 @f(i1 %c) {\nentry:\n  br i1 %c, label %a, label %b\na:\n"
        "  %x = add i32 1, 2\n  br label %b\nb:\n  ret i32 %x\n}\n",
        host_cpu());
  });
  CHECK_THAT(error.what(), ContainsSubstring("does not dominate"));
  remove_dump(error);
}

TEST_CASE("an instruction the CPU lacks is refused, not guessed") {
  const char* text =
      "declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)\n"
      "define <16 x float> @f(<16 x float> %s, <32 x bfloat> %a, <32 x bfloat> %b) {\n"
      "  %r = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %s, <32 x bfloat> %a, <32 x bfloat> "
      "%b)\n"
      "  ret <16 x float> %r\n}\n";
  Error error = error_of([&] { OrcCompiler::instance().compile(text, named_cpu("x86-64-v4")); });
  CHECK_THAT(error.what(), ContainsSubstring("avx512bf16") && ContainsSubstring("x86-64-v4"));
  remove_dump(error);
}

TEST_CASE("a fault inside the code generator is an error and the compiler goes on working") {
  auto& compiler = OrcCompiler::instance();
  Error error = error_of([&] {
    compiler.compile("define void @f() {\n  call void asm \"bogus $0\", \"r\"(i32 1)\n  ret void\n}\n", host_cpu());
  });
  CHECK(error.kind() == ErrorKind::internal);
  remove_dump(error);
  CHECK(add(compiler.load(compiler.compile(adder(1), host_cpu())), 1) == 2);
}

TEST_CASE("assembly is written for a CPU that is not here") {
  const char* text =
      "define void @f(ptr %p) #0 {\n  %x = load <16 x float>, ptr %p\n"
      "  %y = fadd <16 x float> %x, %x\n  store <16 x float> %y, ptr %p\n  ret void\n}\n"
      "attributes #0 = { \"prefer-vector-width\"=\"512\" }\n";
  auto& compiler = OrcCompiler::instance();
  CHECK_THAT(compiler.assembly(text, named_cpu("x86-64-v4")), ContainsSubstring("zmm"));
  CHECK_THAT(compiler.assembly(text, named_cpu("x86-64-v3")), ContainsSubstring("ymm") && !ContainsSubstring("zmm"));
  CHECK_THAT(compiler.optimised(text, named_cpu("x86-64-v3")), ContainsSubstring("fadd <16 x float>"));
}

TEST_CASE("bytes that are no object are refused") {
  auto& compiler = OrcCompiler::instance();
  auto object = compiler.compile(adder(3), host_cpu());
  for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{60}, object.size() / 2})
    CHECK_THROWS_AS(compiler.load(std::span(object).first(size)), Error);
  object[18] = std::byte{0xb7};  // the machine of the ELF header: AArch64
  CHECK_THROWS_AS(compiler.load(object), Error);
}

TEST_CASE("many threads compile, load, run and unload at once") {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      auto& compiler = OrcCompiler::instance();
      for (int i = 0; i < 25; ++i) {
        LoadedObject object = compiler.load(compiler.compile(adder(t * 100 + i), host_cpu()));
        wrong += add(object, 1) != t * 100 + i + 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a process may fork while threads compile, and the child compiles") {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  const std::vector<std::byte> object = OrcCompiler::instance().compile(adder(3), host_cpu());
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!over) OrcCompiler::instance().load(object);
    });
  int ended = 0;
  constexpr int forks = 40;
  for (int i = 0; i < forks && ended == i; ++i)
    ended += run_in_child([&] {
               alarm(20);  // what waits for a lock of the parent's threads never ends
               LoadedObject own = OrcCompiler::instance().load(OrcCompiler::instance().compile(adder(5), host_cpu()));
               expect(add(own, 1) == 6, "the sum");
             }) == 0;
  over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(ended == forks);
}

TEST_CASE("a process may exit while a thread compiles") {
  for (int round = 0; round < 10; ++round) {
    pid_t child = fork();
    if (child == 0) {
      std::thread([] {
        for (int i = 0;; ++i) OrcCompiler::instance().compile(adder(i), host_cpu());
      }).detach();
      std::this_thread::sleep_for(std::chrono::milliseconds(2 * round));
      std::exit(0);
    }
    CHECK(wait_for(child) == 0);
  }
}

TEST_CASE("the places where the LLVM module is looked for can be told") {
  auto places = OrcCompiler::module_places();
  CHECK_FALSE(places.empty());
  for (const std::string& place : places) CHECK_THAT(place, ContainsSubstring(".so"));
}

TEST_CASE("a missing LLVM module is told with the places looked in") {
  if (!std::getenv("ATTILE_TEST_CHILD")) {  // the variable is read once, so a fresh process has to look
    CHECK(run_in_child([] {
            setenv("ATTILE_TEST_CHILD", "1", 1);
            setenv("ATTILE_LLVM_MODULE", "/nowhere/libattile_llvm.so", 1);
            execl("/proc/self/exe", "test", "a missing LLVM module*", static_cast<char*>(nullptr));
          }) == 0);
    return;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    Error error = error_of([] { OrcCompiler::instance().compile(adder(1), host_cpu()); });
    CHECK(error.kind() == ErrorKind::environment);
    CHECK_THAT(error.what(),
               ContainsSubstring("/nowhere/libattile_llvm.so") && ContainsSubstring("ATTILE_LLVM_MODULE"));
  }
}
