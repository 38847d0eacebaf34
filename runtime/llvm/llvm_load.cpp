// Object bytes to executable code. One session for the process, one symbol table (JITDylib) per object, linked at
// once by the calling thread; the session is never destroyed, so code may run while the process exits.
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "llvm/ADT/StringMap.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/ExecutorProcessControl.h"
#include "llvm/ExecutionEngine/Orc/ObjectFileInterface.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/Orc/TaskDispatch.h"
#include "llvm/Support/MemoryBuffer.h"
#include "runtime/llvm/llvm_support.h"
#if LLVM_VERSION_MAJOR >= 21
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h"
#endif

struct attile_llvm_loaded {
  llvm::orc::JITDylib* dylib;
  llvm::StringMap<void*> symbols;
};

namespace attile_llvm {
namespace {

// The linker tells the cause to the session and only "failed to materialize" to the look-up; both on this thread.
thread_local std::string reported;

struct LoadFailure {
  std::string text;
};

template <typename T>
T must(llvm::Expected<T> value) {
  if (!value) throw LoadFailure{llvm::toString(value.takeError())};
  return std::move(*value);
}

void must(llvm::Error error) {
  if (error) throw LoadFailure{llvm::toString(std::move(error))};
}

// float -> bfloat16, round to nearest even, in the low half of xmm0: what the code generator calls where the CPU has
// no such instruction and libgcc (before 13) no such function.
_Float16 truncate_to_bfloat16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  std::uint32_t rounded = nan ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  return std::bit_cast<_Float16>(static_cast<std::uint16_t>(rounded >> 16));
}

struct External {
  const char* name;
  void* address;
};

template <typename F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

using Unary = float(float);
using Binary = float(float, float);
using Unary64 = double(double);
using Binary64 = double(double, double);

// Everything generated code may call. A fixed list: a kernel from the cache can reach nothing else of the process.
const External externals[] = {
    {"memcpy", address_of(::memcpy)},
    {"memmove", address_of(::memmove)},
    {"memset", address_of(::memset)},
    {"__truncsfbf2", address_of(truncate_to_bfloat16)},
    {"expf", address_of<Unary>(::expf)},
    {"exp2f", address_of<Unary>(::exp2f)},
    {"expm1f", address_of<Unary>(::expm1f)},
    {"logf", address_of<Unary>(::logf)},
    {"log2f", address_of<Unary>(::log2f)},
    {"log1pf", address_of<Unary>(::log1pf)},
    {"tanhf", address_of<Unary>(::tanhf)},
    {"sinf", address_of<Unary>(::sinf)},
    {"cosf", address_of<Unary>(::cosf)},
    {"erff", address_of<Unary>(::erff)},
    {"powf", address_of<Binary>(::powf)},
    {"fmaf", address_of<float(float, float, float)>(::fmaf)},
    {"fma", address_of<double(double, double, double)>(::fma)},
    {"fmodf", address_of<Binary>(::fmodf)},
    {"roundf", address_of<Unary>(::roundf)},
    {"exp", address_of<Unary64>(::exp)},
    {"exp2", address_of<Unary64>(::exp2)},
    {"log", address_of<Unary64>(::log)},
    {"log2", address_of<Unary64>(::log2)},
    {"tanh", address_of<Unary64>(::tanh)},
    {"pow", address_of<Binary64>(::pow)},
    {"fmod", address_of<Binary64>(::fmod)},
};

class Session {
 public:
  static Session& instance() {
    static Session* session = new Session();
    return *session;
  }

  std::unique_ptr<attile_llvm_loaded> load(llvm::StringRef object);
  void unload(attile_llvm_loaded* loaded);

 private:
  Session();

  std::unique_ptr<llvm::orc::ExecutionSession> session_;
  std::unique_ptr<llvm::orc::ObjectLinkingLayer> linker_;
  llvm::orc::JITDylib* externals_ = nullptr;
  std::atomic<std::uint64_t> count_{0};
};

Session::Session() {
  namespace orc = llvm::orc;
  auto control = must(orc::SelfExecutorProcessControl::Create(nullptr, std::make_unique<orc::InPlaceTaskDispatcher>()));
  session_ = std::make_unique<orc::ExecutionSession>(std::move(control));
  session_->setErrorReporter([](llvm::Error error) { reported += llvm::toString(std::move(error)) + "\n"; });
  linker_ = std::make_unique<orc::ObjectLinkingLayer>(*session_, must(llvm::jitlink::InProcessMemoryManager::Create()));
  externals_ = &session_->createBareJITDylib("externals");
  orc::SymbolMap symbols;
  for (const External& external : externals) {
    auto name = session_->intern(external.name);
#if LLVM_VERSION_MAJOR >= 17
    symbols[name] = {orc::ExecutorAddr::fromPtr(external.address), llvm::JITSymbolFlags::Exported};
#else
    symbols[name] =
        llvm::JITEvaluatedSymbol(llvm::pointerToJITTargetAddress(external.address), llvm::JITSymbolFlags::Exported);
#endif
  }
  must(externals_->define(orc::absoluteSymbols(std::move(symbols))));
}

std::unique_ptr<attile_llvm_loaded> Session::load(llvm::StringRef object) {
  namespace orc = llvm::orc;
  // A copy: the linker wants alignment, and keeps the bytes while it works.
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object, "kernel.o");
  auto interface = must(orc::getObjectFileInterface(*session_, buffer->getMemBufferRef()));
  orc::SymbolLookupSet wanted;
  for (const auto& symbol : interface.SymbolFlags) wanted.add(symbol.first);
  auto loaded = std::make_unique<attile_llvm_loaded>();
  loaded->dylib = &session_->createBareJITDylib("kernel" + std::to_string(count_.fetch_add(1)));
  loaded->dylib->addToLinkOrder(*externals_);
  try {
    must(linker_->add(*loaded->dylib, std::move(buffer)));
    auto found = must(session_->lookup(orc::makeJITDylibSearchOrder(loaded->dylib), std::move(wanted)));
    for (const auto& [name, symbol] : found)
#if LLVM_VERSION_MAJOR >= 17
      loaded->symbols[*name] = symbol.getAddress().template toPtr<void*>();
#else
      loaded->symbols[*name] = llvm::jitTargetAddressToPointer<void*>(symbol.getAddress());
#endif
  } catch (...) {
    llvm::consumeError(session_->removeJITDylib(*loaded->dylib));
    throw;
  }
  return loaded;
}

void Session::unload(attile_llvm_loaded* loaded) {
  llvm::consumeError(session_->removeJITDylib(*loaded->dylib));
  loaded->symbols.clear();
  session_->getSymbolStringPool()->clearDeadEntries();
}

int guarded_load(llvm::StringRef object, attile_llvm_loaded** loaded, attile_llvm_buffer& message) {
  reported.clear();
  try {
    initialize();
    *loaded = Session::instance().load(object).release();
    return attile_llvm_ok;
  } catch (const LoadFailure& failure) {
    message = to_buffer(reported.empty() ? failure.text : reported);
  } catch (const FatalError& fatal) {
    message = to_buffer(fatal.text);
  }
  return attile_llvm_backend_error;
}

}  // namespace
}  // namespace attile_llvm

ATTILE_LLVM_EXPORT int attile_llvm_load(const char* object, size_t size, attile_llvm_loaded** loaded,
                                        attile_llvm_buffer* message) {
  *loaded = nullptr;
  *message = {nullptr, 0};
  try {
    const attile_llvm::Inside inside;
    return attile_llvm::guarded_load(llvm::StringRef(object, size), loaded, *message);
  } catch (const std::bad_alloc&) {
    return attile_llvm_no_memory;
  } catch (...) {
    return attile_llvm_backend_error;
  }
}

ATTILE_LLVM_EXPORT void* attile_llvm_lookup(const attile_llvm_loaded* loaded, const char* symbol) {
  auto found = loaded->symbols.find(symbol);
  return found == loaded->symbols.end() ? nullptr : found->second;
}

ATTILE_LLVM_EXPORT void attile_llvm_unload(attile_llvm_loaded* loaded) {
  if (!loaded) return;
  try {
    const attile_llvm::Inside inside;
    attile_llvm::Session::instance().unload(loaded);
  } catch (...) {  // a leak is the lesser evil
  }
  delete loaded;
}
