/* Attention from C: causal, compared with plain loops; and what the error paths of the C interface say. */
#include <attile/attile_c.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { H = 2, N = 5, M = 9, D = 16 };

static int failures = 0;

static void expect(int holds, const char* what) {
  if (holds) return;
  ++failures;
  printf("failed: %s (last error: %s)\n", what, attile_last_error());
}

static attile_tensor tensor(void* data, int32_t dtype, int64_t a, int64_t b, int64_t c, int64_t d) {
  attile_tensor t = {data, dtype, 4, {a, b, c, d}, {b * c * d, c * d, d, 1}};
  return t;
}

static float q[H * N * D], k[H * M * D], v[H * M * D], o[H * N * D];

static attile_attention_tensors all_tensors(void) {
  attile_attention_tensors t;
  expect(attile_attention_tensors_init(&t, sizeof t) == ATTILE_OK, "tensors_init");
  t.q = tensor(q, ATTILE_FLOAT32, 1, H, N, D);
  t.k = tensor(k, ATTILE_FLOAT32, 1, H, M, D);
  t.v = tensor(v, ATTILE_FLOAT32, 1, H, M, D);
  t.o = tensor(o, ATTILE_FLOAT32, 1, H, N, D);
  return t;
}

static double difference(void) {
  double worst = 0;
  for (int row = 0; row < H * N; ++row) {
    double sum[D] = {0}, weights = 0;
    for (int j = 0; j <= row % N + M - N; ++j) {
      double s = 0;
      for (int d = 0; d < D; ++d) s += (double)q[row * D + d] * k[(row / N * M + j) * D + d];
      const double weight = exp(s / 4);
      weights += weight;
      for (int d = 0; d < D; ++d) sum[d] += weight * v[(row / N * M + j) * D + d];
    }
    for (int d = 0; d < D; ++d) worst = fmax(worst, fabs(o[row * D + d] - sum[d] / weights));
  }
  return worst;
}

static void check_errors(void) {
  attile_attention_options options;
  attile_attention* attention = NULL;
  attile_attention_options_init(&options, sizeof options);
  options.scale = -1;
  options.has_scale = 1;
  expect(attile_attention_create(&options, &attention) == ATTILE_ERROR_ARGUMENT && !attention, "a negative scale");
  expect(strstr(attile_last_error(), "scale is -1") != NULL, "the text of a negative scale");
  attile_attention_options_init(&options, sizeof options);
  options.schedule = "tile_rows: 16\nno_such_field: 1\n";
  expect(attile_attention_create(&options, &attention) == ATTILE_ERROR_ARGUMENT, "an unknown schedule field");
  expect(strstr(attile_last_error(), "no_such_field") != NULL, "the text of an unknown schedule field");
  memset(&options, 0, sizeof options);
  expect(attile_attention_create(&options, &attention) == ATTILE_ERROR_ARGUMENT, "a struct without its size");
  expect(attile_attention_create(NULL, &attention) == ATTILE_ERROR_ARGUMENT, "no options");
  expect(attile_attention_run(NULL, NULL) == ATTILE_ERROR_ARGUMENT, "no attention");
  expect(attile_set_threads(-1) == ATTILE_ERROR_ARGUMENT, "a negative number of threads");
  attile_attention_destroy(NULL);
}

int main(void) {
  attile_attention_options options;
  attile_attention* attention = NULL;
  attile_attention_tensors tensors = all_tensors();
  int32_t threads = 0;
  for (int i = 0; i < H * N * D; ++i) q[i] = (float)(i * 37 % 41) / 20 - 1;
  for (int i = 0; i < H * M * D; ++i) k[i] = (float)(i * 29 % 43) / 20 - 1, v[i] = (float)(i * 31 % 47) / 20 - 1;

  expect(attile_attention_options_init(&options, sizeof options) == ATTILE_OK, "options_init");
  options.causal = 1;
  expect(attile_attention_create(&options, &attention) == ATTILE_OK, "create");
  expect(attile_attention_prepare(attention, &tensors) == ATTILE_OK, "prepare");
  expect(attile_attention_run(attention, &tensors) == ATTILE_OK, "run");
  expect(difference() < 1e-5, "the result");
  tensors.v.dtype = 77;
  expect(attile_attention_run(attention, &tensors) == ATTILE_ERROR_ARGUMENT, "an unknown dtype");
  attile_attention_destroy(attention);
  expect(attile_set_threads(2) == ATTILE_OK && attile_get_threads(&threads) == ATTILE_OK && threads == 2, "threads");
  check_errors();
  printf("attile %s from C: %s\n", attile_version(), failures ? "failed" : "good");
  return failures != 0;
}
