// The C boundary between libattile and its LLVM module (libattile_llvm.so), which is opened at the first compile.
// The module holds LLVM statically with hidden symbols, so it lives beside any other LLVM of the process.
// No exception crosses this boundary and nothing is printed: a failure is a status and a text. All functions may be
// called from any thread at any time, and a fork waits for those under way. The module is never closed and runs no
// destructors at exit.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Raised with every change below; libattile refuses a module with another number.
#define ATTILE_LLVM_ABI 1

enum attile_llvm_status {
  attile_llvm_ok = 0,
  attile_llvm_bad_text = 1,       // the IR does not parse or verify, or the CPU name is unknown
  attile_llvm_backend_error = 2,  // well formed, but the code generator or the linker refused it
  attile_llvm_no_memory = 3,
};

enum attile_llvm_output { attile_llvm_object = 0, attile_llvm_assembly = 1, attile_llvm_optimised_ir = 2 };

// Freed by the caller with attile_llvm_free(data); `data` is null when empty.
typedef struct attile_llvm_buffer {
  char* data;
  size_t size;
} attile_llvm_buffer;

typedef struct attile_llvm_request {
  const char* ir;  // need not end in a null byte
  size_t ir_size;
  const char* cpu;       // what may be executed, e.g. "x86-64-v4"
  const char* tune;      // what it is scheduled for, e.g. "znver4"; ignored where LLVM does not know it; may be null
  const char* features;  // "+avx512bf16,-amx-tile"; may be null
  int output;            // attile_llvm_output
} attile_llvm_request;

typedef struct attile_llvm_times {
  double parse_ms, passes_ms, codegen_ms;
} attile_llvm_times;

typedef struct attile_llvm_loaded attile_llvm_loaded;  // executable code of one object

int attile_llvm_abi(void);
const char* attile_llvm_version(void);  // "19.1.7"; static storage

// On success `output` is filled; `message` carries the diagnostic (failure) or warnings (success, usually empty).
int attile_llvm_compile(const attile_llvm_request* request, attile_llvm_buffer* output, attile_llvm_buffer* message,
                        attile_llvm_times* times);

// Links one object and makes it executable; every external it needs is in the module's fixed list (memcpy, expf, ...).
int attile_llvm_load(const char* object, size_t size, attile_llvm_loaded** loaded, attile_llvm_buffer* message);
// The address of a symbol the object defines; null when there is none.
void* attile_llvm_lookup(const attile_llvm_loaded* loaded, const char* symbol);
// The code must not be running; addresses become invalid.
void attile_llvm_unload(attile_llvm_loaded* loaded);

void attile_llvm_free(char* data);

#ifdef __cplusplus
}
#endif
