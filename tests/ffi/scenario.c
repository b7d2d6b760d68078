/* A day in the life of a shim, errors included, for the memory checkers.
 *
 *   scenario SHIM PAIR SUMMED TRAIN BAD PLUGIN [CODE]
 *
 * PAIR is a module of (2x3, scalar), SUMMED one with an all_reduce over two
 * replicas, TRAIN a step of the generic verb's form, BAD a file that is
 * refused. CODE is what a call answers that should run. The tiny plugin's
 * count of what is still held is printed at the end, where PLUGIN has one.
 * Exits with 0 if every call answered as it should. */
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
  int (*resident)(iree_ffi_session_t *, const char *, int, int, int, int,
                  long long, int, const int32_t *, const int64_t *,
                  const float *const *, const unsigned char *, int,
                  const int64_t *, float *const *);
  int (*read)(iree_ffi_session_t *, int64_t, float *);
  int (*step)(iree_ffi_session_t *, const char *, int, int, const int32_t *,
              const int64_t *, const float *const *, const unsigned char *,
              const int32_t *, int, const int64_t *, float *const *, int, int);
  int (*flush)(iree_ffi_session_t *, int, float *const *);
  int (*train)(iree_ffi_session_t *, const char *, int, int, const int32_t *,
               const int64_t *, const int64_t *, const float *, int,
               const int64_t *, const float *, const int32_t *, float, float *,
               float *);
} shim;

/* PAIR's arguments. */
static const int32_t ranks[] = {2, 0};
static const int64_t dims[] = {2, 3}, totals[] = {6, 1};
/* Aligned, so that a CPU plugin reads them where they lie. */
static _Alignas(64) const float a[6] = {1, 2, 3, 4, 5, 6}, b = 7;

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
  const float *in[] = {a, &b};
  float a_out[6] = {0}, b_out = 0;
  float *out[] = {a_out, &b_out};
  const int64_t shape[] = {rows, 6 / rows}, room[] = {total, 1};
  int rc = s->invoke(session, name, 2, ranks, shape, in, 2, room, out);
  if (rc == 0) expect("the last output", (int)(a_out[5] + b_out), 13);
  return rc;
}

static int summed(const shim *s, iree_ffi_session_t *session, int replicas,
                  int64_t rows) {
  _Alignas(64) const float x[5] = {1, 2, 10, 20, 0}, w = 5;
  const float *in[] = {x, &w};
  float x_out[2] = {0}, w_out = 0;
  float *out[] = {x_out, &w_out};
  const int32_t rank[] = {1, 0};
  const int64_t shape[] = {rows}, room[] = {2, 1};
  const unsigned char mask[] = {1, 0};
  return s->over_replicas(session, "summed", replicas, 2, rank, shape, in, mask,
                          2, room, out);
}

/* The first input is replaced by the first output, the second one is sent. */
static void keeping(const shim *s, const char *path, int code) {
  iree_ffi_session_t *session = s->create(path);
  const float *first[] = {a, &b}, *later[] = {NULL, &b};
  float b_out = 0, back[6] = {0};
  float *out[] = {NULL, &b_out};
  if (session == NULL) return;
  expect("a range too far", s->resident(session, "pair", 1, 1, 0, 2, 0, 2,
                                        ranks, dims, first, NULL, 2, totals,
                                        out), 1);
  expect("nothing yet", s->read(session, 6, back), 1);
  expect("resident", s->resident(session, "pair", 1, 0, 0, 1, 0, 2, ranks, dims,
                                 first, NULL, 2, totals, out), code);
  expect("resident again", s->resident(session, "pair", 1, 0, 0, 1, 0, 2, ranks,
                                       dims, later, NULL, 2, totals, out),
         code == 2 || code == 3 ? 1 : code);
  expect("another size", s->read(session, 5, back), 2);
  expect("read", s->read(session, 6, back), code == 0 ? 0 : 2);
  if (code == 0) expect("what was read", (int)(back[5] + b_out), 13);
  s->release(session);
}

/* Steps in flight, some of which a failing plugin lets down: then it counts
 * that nothing is touched too late or kept too long. */
static void flying(const shim *s, const char *path, int code) {
  iree_ffi_session_t *session = s->create(path);
  const int32_t roles[] = {0, PJRT_FFI_HOLD};
  const float *first[] = {a, &b}, *later[] = {NULL, NULL};
  float b_out = 0;
  float *out[] = {NULL, &b_out};
  int i, rc = 0;
  if (session == NULL) return;
  for (i = 0; i < 9; i++)
    rc |= s->step(session, "pair", 1, 2, ranks, dims, i ? later : first, NULL,
                  roles, 2, totals, out, i % 4, i % 3 != 0);
  rc |= s->flush(session, 2, out);
  expect("steps in flight", rc != 0, code != 0);
  if (code == 0) expect("the last late output", (int)b_out, 7);
  for (i = 0; i < 5; i++)
    s->step(session, "pair", 1, 2, ranks, dims, first, NULL, roles, 2, totals,
            out, 9, 1);
  s->release(session);
}

static void training(const shim *s, const char *path, int code) {
  iree_ffi_session_t *session = s->create(path);
  const int32_t rank[] = {2}, labels[] = {1, 0}, wrong_labels[] = {1, 2};
  const int64_t sizes[] = {6}, short_sizes[] = {5};
  float packed[6], loss = 0;
  if (session == NULL) return;
  expect("train", s->train(session, "train", 2, 1, rank, dims, sizes, a, 2,
                           dims, a, labels, 5, packed, &loss), code);
  if (code == 0) expect("what was trained", (int)packed[5], 6);
  expect("a label", s->train(session, "train", 2, 1, rank, dims, sizes, a, 2,
                             dims, a, wrong_labels, 5, packed, &loss), 1);
  expect("a size", s->train(session, "train", 2, 1, rank, dims, short_sizes, a,
                            2, dims, a, labels, 5, packed, &loss), 1);
  s->release(session);
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
  void *library = argc < 7 ? NULL : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  int code = argc == 8 ? argv[7][0] - '0' : 0;
  iree_ffi_session_t *session;
  shim s;
  if (library == NULL) return 2;
  bind(library, "iree_ffi_session_create", &s.create);
  bind(library, "iree_ffi_session_release", &s.release);
  bind(library, "iree_ffi_invoke_f32", &s.invoke);
  bind(library, "pjrt_ffi_invoke_f32_dp", &s.over_replicas);
  bind(library, "pjrt_ffi_describe", &s.describe);
  bind(library, "pjrt_ffi_invoke_f32_resident_v2", &s.resident);
  bind(library, "pjrt_ffi_resident_read", &s.read);
  bind(library, "pjrt_ffi_step_f32_v1", &s.step);
  bind(library, "pjrt_ffi_flush_v1", &s.flush);
  bind(library, "iree_ffi_train_step_generic", &s.train);
  expect("describe", s.describe(facts, sizeof facts), code == 9);
  expect("describe in 9 bytes", s.describe(facts, 9), 1);
  expect("a bad file", s.create(argv[5]) != NULL, 0);
  expect("no file", s.create("/nowhere") != NULL, 0);
  one_session(&s, argv[2], code);
  one_session(&s, argv[2], code);
  keeping(&s, argv[2], code);
  flying(&s, argv[2], code);
  training(&s, argv[4], code);
  session = s.create(argv[3]);
  if (session != NULL) {
    expect("summed", summed(&s, session, 2, 4), code);
    expect("a shard too long", summed(&s, session, 2, 5), 1);
    expect("one replica", summed(&s, session, 1, 2), 1);
  }
  s.release(session);
  s.release(NULL);
  expect("no session", pair(&s, NULL, "pair", 2, 6), 1);
  held_by_us(argv[6]);
  return wrong;
}
