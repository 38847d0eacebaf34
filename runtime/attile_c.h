/* Attile for other languages: attention by the C calling convention, in plain C. No C++ type, no exception and no
 * ownership of tensors crosses it. Every function that can fail returns a status; attile_last_error() says in words
 * what was wrong. A failed run has written nothing. All functions may be called from any thread.
 *
 *   attile_attention_options options;
 *   attile_attention_options_init(&options, sizeof options);
 *   options.causal = 1;
 *   attile_attention* attention;
 *   if (attile_attention_create(&options, &attention) != ATTILE_OK) puts(attile_last_error());
 *   attile_attention_tensors tensors;
 *   attile_attention_tensors_init(&tensors, sizeof tensors);
 *   tensors.q = ...;
 *   attile_attention_run(attention, &tensors);       // the first run for these types and head dims compiles
 *   attile_attention_destroy(attention);
 */
#ifndef ATTILE_C_H
#define ATTILE_C_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTILE_C_API __attribute__((visibility("default")))

/* Values never change their meaning; new ones may come. */
typedef int32_t attile_status;
enum {
  ATTILE_OK = 0,
  ATTILE_ERROR_ARGUMENT = 1,    /* the caller's input is wrong */
  ATTILE_ERROR_UNSUPPORTED = 2, /* understood, but this build or machine cannot do it */
  ATTILE_ERROR_ENVIRONMENT = 3, /* something outside the process is missing or broken */
  ATTILE_ERROR_RESOURCE = 4,    /* memory, disk space or another limit ran out */
  ATTILE_ERROR_INTERNAL = 5     /* a fault of Attile's own */
};

/* Element types. */
enum {
  ATTILE_FLOAT32 = 0,
  ATTILE_BFLOAT16 = 1,
  ATTILE_FLOAT16 = 2,
  ATTILE_INT32 = 3,
  ATTILE_INT64 = 4,
  ATTILE_BOOLEAN = 5 /* one byte, non-zero is true */
};

/* Rules. */
enum {
  ATTILE_SOFTMAX = 0,
  ATTILE_SOFTMAX_PLUS_ONE = 1,
  ATTILE_SIGMOID = 2,
  ATTILE_LINEAR = 3
};

/* What of tuning a call uses: the shipped schedules; what tuning found before; the same, where an unknown problem is
 * tuned at its first call, which takes many seconds. */
enum {
  ATTILE_TUNING_OF_PROCESS = 0, /* in options alone: what attile_set_tuning says */
  ATTILE_TUNING_NEVER = 1,
  ATTILE_TUNING_CACHED = 2,
  ATTILE_TUNING_NOW = 3
};

/* What a call does about a kernel that is not there: builds it and waits; fails at once; runs with another kernel of
 * its problem while it is built, and fails at once where there is none. */
enum {
  ATTILE_BUILDING_OF_PROCESS = 0, /* in options alone: what attile_set_building says */
  ATTILE_BUILDING_ON_DEMAND = 1,
  ATTILE_BUILDING_NEVER = 2,
  ATTILE_BUILDING_BACKGROUND = 3
};

enum { ATTILE_MAX_RANK = 6, ATTILE_CPU = -1 };

/* Memory of the caller. shape and strides: the first `rank` entries, outermost first, strides in elements. All zero: no
 * tensor. */
typedef struct attile_tensor {
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t shape[ATTILE_MAX_RANK];
  int64_t strides[ATTILE_MAX_RANK];
} attile_tensor;

/* What is computed, but for what the tensors say. Fields are only ever added, at the end; `size` tells the library
 * which the caller knows. Always start with attile_attention_options_init(). */
typedef struct attile_attention_options {
  uint64_t size; /* sizeof(attile_attention_options), set by init */
  int32_t rule;
  int32_t causal;      /* 0 or 1; aligned at the bottom right */
  int64_t window_left; /* keys left and right of the diagonal; -1 = no limit */
  int64_t window_right;
  int32_t has_scale; /* 0: 1/sqrt(D) */
  int32_t top_k;     /* 0 = off, else 1..128 */
  double scale;
  double softcap; /* 0 = off */
  double dropout; /* probability of dropping, in [0, 1) */
  uint64_t seed, offset;
  int32_t top_k_renormalise; /* 1 unless changed */
  int32_t reserved;
  const char* schedule; /* YAML; NULL: the best known. Copied by create. */
  int32_t device;       /* where tensors lie: ATTILE_CPU, or the number of a CUDA device, 0 the first */
  int32_t tf32;         /* 1: on a GPU, products of float32 tensors may round to TF32 */
  int32_t tuning;       /* ATTILE_TUNING_...; without effect beside a schedule */
  int32_t building;     /* ATTILE_BUILDING_... */
} attile_attention_options;

/* B sequences, H query heads, H_k kv heads (H a multiple), N_q rows, N_k keys, D head dim, D_v value dim. */
typedef struct attile_attention_tensors {
  uint64_t size;   /* sizeof(attile_attention_tensors), set by init */
  attile_tensor q; /* [B][H][N_q][D] float32, bfloat16 or float16, unit stride last */
  attile_tensor k; /* [B][H_k][N_k][D] */
  attile_tensor v; /* [B][H_k][N_k][D_v] */
  attile_tensor o; /* out: [B][H][N_q][D_v], any float type */
  /* The rest is optional. */
  attile_tensor lse;                        /* out: float32 [B][H][N_q], natural logarithm */
  attile_tensor values, indices;            /* out, with top_k: float32 and int32 [B][H][N_q][top_k] */
  attile_tensor alibi_slopes;               /* float32 [H] or [B][H] */
  attile_tensor bias;                       /* float [B or 1][H or 1][N_q or 1][N_k] */
  attile_tensor mask;                       /* boolean, same shapes, true = keep */
  attile_tensor sink;                       /* float32 [H] */
  attile_tensor prefix_len;                 /* int32 [B]; needs causal */
  attile_tensor doc_ids;                    /* int32 [B][N_k] */
  attile_tensor kv_lens;                    /* int32 [B] */
  attile_tensor cu_seqlens_q, cu_seqlens_k; /* int32 [sequences + 1]; then B is 1 and sequences follow each other */
  /* On a GPU. */
  void* stream;             /* a CUstream; NULL: the default stream */
  void* workspace;          /* device memory; NULL: from the device's pool, in stream order */
  uint64_t workspace_bytes; /* at least what attile_attention_workspace says */
} attile_attention_tensors;

typedef struct attile_attention attile_attention;

/* The library's version, "0.1.0". */
ATTILE_C_API const char* attile_version(void);

/* What the last failure on this thread was, one line in UTF-8; "" before the first. Valid until the next failure. */
ATTILE_C_API const char* attile_last_error(void);

/* Every field at its default. `size` is the caller's sizeof. */
ATTILE_C_API attile_status attile_attention_options_init(attile_attention_options* options, uint64_t size);
ATTILE_C_API attile_status attile_attention_tensors_init(attile_attention_tensors* tensors, uint64_t size);

/* Cheap: compiled kernels belong to the library and outlive the handle. On failure *attention is NULL. */
ATTILE_C_API attile_status attile_attention_create(const attile_attention_options* options,
                                                   attile_attention** attention);
/* NULL is fine. */
ATTILE_C_API void attile_attention_destroy(attile_attention* attention);

/* Computes all outputs. On the CPU it returns when they are written, on a GPU when the work is in the stream. Compiles, or
 * reads from the disk cache, what is not in memory. */
ATTILE_C_API attile_status attile_attention_run(const attile_attention* attention,
                                                const attile_attention_tensors* tensors);
/* The same without the run, whatever `building` says: afterwards a run of like tensors (types, head dims, optional
 * tensors, lengths within powers of two) compiles nothing, nor tunes. */
ATTILE_C_API attile_status attile_attention_prepare(const attile_attention* attention,
                                                    const attile_attention_tensors* tensors);

/* Bytes of device memory that a run with these tensors uses beside them; 0 on the CPU. */
ATTILE_C_API attile_status attile_attention_workspace(const attile_attention* attention,
                                                      const attile_attention_tensors* tensors, uint64_t* bytes);

/* Threads of a call, the caller included; 0 returns to the default: every core this process may use. */
ATTILE_C_API attile_status attile_set_threads(int32_t threads);
ATTILE_C_API attile_status attile_get_threads(int32_t* threads);

/* Of the process, where options say nothing. Unless set, ATTILE_TUNING_CACHED and ATTILE_BUILDING_ON_DEMAND. */
ATTILE_C_API attile_status attile_set_tuning(int32_t tuning);
ATTILE_C_API attile_status attile_get_tuning(int32_t* tuning);
ATTILE_C_API attile_status attile_set_building(int32_t building);
ATTILE_C_API attile_status attile_get_building(int32_t* building);

#ifdef __cplusplus
}
#endif

#endif
