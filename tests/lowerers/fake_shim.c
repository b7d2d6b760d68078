/* A shim that keeps the ABI and needs no plugin: it doubles its inputs. What
 * it does besides is asked for by the function's name. Built with -DSTALE it
 * lacks a symbol, with -DNO_MARKER it is not the XLA shim. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct iree_ffi_session {
  int calls;
} session;

session *iree_ffi_session_create(const char *path) {
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    fprintf(stderr, "[pjrt_ffi] no file %s\n", path);
    return NULL;
  }
  fclose(file);
  return calloc(1, sizeof(session));
}

void iree_ffi_session_release(session *s) {
  if (s != NULL) fprintf(stderr, "released after %d calls\n", s->calls);
  free(s);
}

static int obey(const char *command) {
  if (strcmp(command, "crash") == 0) raise(SIGSEGV);
  if (strcmp(command, "abort") == 0) {
    fprintf(stderr, "Check failed: replica_count > 0\n");
    abort();
  }
  if (strcmp(command, "hang") == 0) sleep(300);
  if (strcmp(command, "unsupported") == 0) return 99;
  if (strncmp(command, "code", 4) != 0) return 0;
  fprintf(stderr, "[pjrt_ffi] asked to fail\n");
  return atoi(command + 4);
}

int iree_ffi_invoke_f32(session *s, const char *fn_name, int n_inputs,
                        const int32_t *ranks, const int64_t *dims,
                        const float *const *in, int n_outputs,
                        const int64_t *totals, float *const *out) {
  int i, code = obey(fn_name);
  if (s == NULL) {
    fprintf(stderr, "[pjrt_ffi] NULL session\n");
    return 1;
  }
  if (code != 0) return code;
  s->calls++;
  for (i = 0; i < n_inputs && i < n_outputs; i++) {
    int64_t size = 1, j;
    for (j = 0; j < ranks[i]; j++) size *= *dims++;
    for (j = 0; j < size && j < totals[i]; j++) out[i][j] = 2 * in[i][j];
  }
  return 0;
}

int iree_ffi_train_step_mlp(void) { return 99; }
int iree_ffi_train_step_generic(void) { return 99; }
int iree_ffi_train_step_adam(void) { return 99; }
int iree_ffi_train_step_adam_seg(void) { return 99; }
int iree_ffi_train_step_adam_softlabel(void) { return 99; }
int iree_ffi_train_step_adam_ddpm(void) { return 99; }
#ifndef STALE
int iree_ffi_train_step_adam_yolov1(void) { return 99; }
#endif

#ifndef NO_MARKER
void pjrt_ffi_marker(void) {}
#endif

#ifdef WITH_EXTRAS
int pjrt_ffi_invoke_f32_dp(session *s, const char *fn_name, int n_replicas,
                           int n_inputs, const int32_t *ranks,
                           const int64_t *dims, const float *const *in,
                           const unsigned char *shard_mask, int n_outputs,
                           const int64_t *totals, float *const *out) {
  (void)s, (void)fn_name, (void)ranks, (void)dims, (void)in;
  (void)n_outputs, (void)totals;
  out[0][0] = (float)n_replicas;
  out[0][1] = (float)(n_inputs == 2 ? shard_mask[0] * 10 + shard_mask[1] : -1);
  return 0;
}

int pjrt_ffi_describe(char *out, size_t n) {
  int failing = getenv("FAKE_SHIM_NO_CLIENT") != NULL;
  if (failing) fprintf(stderr, "[pjrt_ffi] no PJRT plugin found\n");
  snprintf(out, n, "{\"plugin\": \"none\", \"devices\": 4}");
  return failing;
}
#endif
