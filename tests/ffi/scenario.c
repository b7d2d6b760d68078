/* A day in the life of a shim, errors included, for the memory checkers.
 *
 *   scenario SHIM PAIR SUMMED BAD PLUGIN
 *
 * PAIR is a module of (2x3, scalar), SUMMED one with an all_reduce over two
 * replicas, BAD a file that is refused. The tiny plugin's count of what is
 * still held is printed at the end, where PLUGIN has one. Exits with 0 if
 * every call answered as it should. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "iree_ffi.h"

typedef struct {
  iree_ffi_session_t *(*create)(const char *);
  void (*release)(iree_ffi_session_t *);
  int (*invoke)(iree_ffi_session_t *, const char *, int, const int32_t *,
                const int64_t *, const float *const *, int, const int64_t *,
                float *const *);
  int (*over_replicas)(iree_ffi_session_t *, const char *, int, int,
                       const int32_t *, const int64_t *, const float *const *,
                       const unsigned char *, int, const int64_t *,
                       float *const *);
  int (*describe)(char *, size_t);
} shim;

static int wrong;

static void bind(void *library, const char *name, void *function) {
  void *address = dlsym(library, name);
  memcpy(function, &address, sizeof address);
}

static void expect(const char *what, int got, int wanted) {
  if (got == wanted) return;
  printf("%s: %d instead of %d\n", what, got, wanted);
  wrong = 1;
}

static int pair(const shim *s, iree_ffi_session_t *session, const char *name,
                int64_t rows, int64_t total) {
  const float a[6] = {1, 2, 3, 4, 5, 6}, b = 7;
  const float *in[] = {a, &b};
  float a_out[6] = {0}, b_out = 0;
  float *out[] = {a_out, &b_out};
  const int32_t ranks[] = {2, 0};
  const int64_t dims[] = {rows, 6 / rows}, totals[] = {total, 1};
  int rc = s->invoke(session, name, 2, ranks, dims, in, 2, totals, out);
  if (rc == 0) expect("the last output", (int)(a_out[5] + b_out), 13);
  return rc;
}

static int summed(const shim *s, iree_ffi_session_t *session, int replicas,
                  int64_t rows) {
  const float x[5] = {1, 2, 10, 20, 0}, w = 5;
  const float *in[] = {x, &w};
  float x_out[2] = {0}, w_out = 0;
  float *out[] = {x_out, &w_out};
  const int32_t ranks[] = {1, 0};
  const int64_t dims[] = {rows}, totals[] = {2, 1};
  const unsigned char mask[] = {1, 0};
  return s->over_replicas(session, "summed", replicas, 2, ranks, dims, in, mask,
                          2, totals, out);
}

static void one_session(const shim *s, const char *path, int code) {
  iree_ffi_session_t *session = s->create(path);
  int i;
  if (session == NULL) return;
  for (i = 0; i < 3; i++) expect("pair", pair(s, session, "pair", 2, 6), code);
  expect("another name", pair(s, session, "m.other", 2, 6), 1);
  expect("transposed", pair(s, session, "pair", 3, 6), 1);
  expect("no room", pair(s, session, "m.pair", 2, 5), 4);
  expect("replicas", summed(s, session, 2, 4), 1);
  s->release(session);
}

static void held_by_us(const char *plugin) {
  long (*held)(void) = NULL;
  void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return;
  bind(library, "tiny_handed_out", &held);
  if (held != NULL) printf("held %ld\n", held());
  dlclose(library);
}

int main(int argc, char **argv) {
  static char facts[1 << 16];
  void *library = argc < 6 ? NULL : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  int code = argc == 7 ? argv[6][0] - '0' : 0;
  iree_ffi_session_t *session;
  shim s;
  if (library == NULL) return 2;
  bind(library, "iree_ffi_session_create", &s.create);
  bind(library, "iree_ffi_session_release", &s.release);
  bind(library, "iree_ffi_invoke_f32", &s.invoke);
  bind(library, "pjrt_ffi_invoke_f32_dp", &s.over_replicas);
  bind(library, "pjrt_ffi_describe", &s.describe);
  expect("describe", s.describe(facts, sizeof facts), code == 9);
  expect("describe in 9 bytes", s.describe(facts, 9), 1);
  expect("a bad file", s.create(argv[4]) != NULL, 0);
  expect("no file", s.create("/nowhere") != NULL, 0);
  one_session(&s, argv[2], code);
  one_session(&s, argv[2], code);
  session = s.create(argv[3]);
  if (session != NULL) {
    expect("summed", summed(&s, session, 2, 4), code);
    expect("a shard too long", summed(&s, session, 2, 5), 1);
    expect("one replica", summed(&s, session, 1, 2), 1);
  }
  s.release(session);
  s.release(NULL);
  expect("no session", pair(&s, NULL, "pair", 2, 6), 1);
  held_by_us(argv[5]);
  return wrong;
}
