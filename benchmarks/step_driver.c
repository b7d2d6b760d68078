/* The C side of step_against_jax.py: one net's train step in a loop, in each
 * of the five ways, through the XLA shim.
 *
 *   step_driver SHIM NET.mlir NET.bin WARMUP STEPS
 *
 * NET.bin is what step_against_jax.py writes: int64 words and float32 data.
 * Prints one JSON object: the client's facts, and for each case every step's
 * time in nanoseconds and the loss of one step more. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "iree_ffi.h"

enum { MAX_TENSORS = 256, MAX_DIMS = 1024, IN_FLIGHT = 8, ALIGNMENT = 64 };

typedef struct {
  iree_ffi_session_t *(*create)(const char *);
  void (*release)(iree_ffi_session_t *);
  int (*invoke)(iree_ffi_session_t *, const char *, int, const int32_t *,
                const int64_t *, const float *const *, int, const int64_t *,
                float *const *);
  int (*step)(iree_ffi_session_t *, const char *, int, int, const int32_t *,
              const int64_t *, const float *const *, const unsigned char *,
              const int32_t *, int, const int64_t *, float *const *, int, int);
  int (*flush)(iree_ffi_session_t *, int, float *const *);
  int (*describe)(char *, size_t);
} shim;

/* A net's arguments. `roles` are those of training as it is: the batch is
 * sent, the rate is held, the parameters are updated. */
typedef struct {
  const char *path, *entry;
  int inputs, outputs, loss;
  int32_t ranks[MAX_TENSORS], roles[MAX_TENSORS];
  int64_t dims[MAX_DIMS], totals[MAX_TENSORS];
  float *in[MAX_TENSORS];
} net;

typedef struct {
  const shim *shim;
  const net *net;
  iree_ffi_session_t *session;
  int32_t roles[MAX_TENSORS];
  const float *data[MAX_TENSORS];
  float *out[MAX_TENSORS];
  float *spare[MAX_TENSORS]; /* where outputs go while inputs are read */
  float loss;
  int in_flight, late;
} loop;

static void stop(const char *what) {
  fprintf(stderr, "step_driver: %s\n", what);
  exit(1);
}

static void bind(void *library, const char *name, void *function) {
  void *address = dlsym(library, name);
  if (address == NULL) stop(dlerror());
  memcpy(function, &address, sizeof address);
}

static shim open_shim(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  shim s;
  if (library == NULL) stop(dlerror());
  bind(library, "iree_ffi_session_create", &s.create);
  bind(library, "iree_ffi_session_release", &s.release);
  bind(library, "iree_ffi_invoke_f32", &s.invoke);
  bind(library, "pjrt_ffi_step_f32_v1", &s.step);
  bind(library, "pjrt_ffi_flush_v1", &s.flush);
  bind(library, "pjrt_ffi_describe", &s.describe);
  return s;
}

static int64_t read_word(FILE *file) {
  int64_t word;
  if (fread(&word, sizeof word, 1, file) != 1) stop("the data ends too early");
  return word;
}

/* Aligned as XLA aligns its own, so that a CPU may read it where it lies. */
static float *room(int64_t count) {
  size_t bytes = (size_t)count * sizeof(float);
  float *data = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
  if (data == NULL) stop("out of memory");
  return memset(data, 0, bytes);
}

static void read_net(const char *path, net *n) {
  FILE *file = fopen(path, "rb");
  int64_t *dims = n->dims;
  int i, k;
  if (file == NULL) stop("no data");
  n->inputs = (int)read_word(file);
  n->outputs = (int)read_word(file);
  n->loss = n->outputs - 1;
  if (n->inputs > MAX_TENSORS || n->outputs > MAX_TENSORS) stop("a large net");
  for (i = 0; i < n->inputs; i++) {
    int64_t count = 1;
    n->roles[i] = (int32_t)read_word(file);
    n->ranks[i] = (int32_t)read_word(file);
    if (dims + n->ranks[i] > n->dims + MAX_DIMS) stop("too many dimensions");
    for (k = 0; k < n->ranks[i]; k++) count *= *dims++ = read_word(file);
    n->in[i] = room(count);
    if (fread(n->in[i], sizeof(float), (size_t)count, file) != (size_t)count)
      stop("the data ends too early");
  }
  for (i = 0; i < n->outputs; i++) n->totals[i] = read_word(file);
  fclose(file);
}

/* From the beginning: the parameters are the net's own. */
static void begin(loop *l, const shim *s, const net *n, int in_flight,
                  int late) {
  int i;
  l->shim = s;
  l->net = n;
  l->in_flight = in_flight;
  l->late = late;
  for (i = 0; i < n->inputs; i++) l->data[i] = n->in[i];
  for (i = 0; i < n->outputs; i++) l->out[i] = NULL;
}

static void step(loop *l) {
  const net *n = l->net;
  int i;
  if (l->shim->step(l->session, n->entry, 1, n->inputs, n->ranks, n->dims,
                    l->data, NULL, l->roles, n->outputs, n->totals, l->out,
                    l->in_flight, l->late) != 0)
    stop("a step failed");
  for (i = 0; i < n->inputs; i++)
    if (l->roles[i] != PJRT_FFI_SEND) l->data[i] = NULL;
}

/* Host arrays in and out: what came out goes in the next time. */
static void copying_step(loop *l) {
  const net *n = l->net;
  int i;
  if (l->shim->invoke(l->session, n->entry, n->inputs, n->ranks, n->dims,
                      l->data, n->outputs, n->totals, l->out) != 0)
    stop("a step failed");
  for (i = 0; i < n->inputs; i++) {
    int from = n->roles[i];
    if (from < 0) continue;
    l->data[i] = l->out[from];
    l->out[from] = l->out[from] == l->spare[from] ? n->in[i] : l->spare[from];
  }
}

static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void report(const char *name, const long long *ns, int steps,
                   double loss) {
  int i;
  printf(", \"%s\": {\"loss\": %.9g, \"ns\": [", name, loss);
  for (i = 0; i < steps; i++) printf("%s%lld", i ? "," : "", ns[i]);
  printf("]}");
}

/* The steps are timed one by one; the one after them tells the loss. */
static void measure(const char *name, loop *l, void (*one)(loop *), int warmup,
                    int steps) {
  long long *ns = calloc((size_t)steps, sizeof *ns), before;
  int i;
  if (ns == NULL) stop("out of memory");
  for (i = 0; i < warmup; i++) one(l);
  for (i = 0; i < steps; i++) {
    before = now();
    one(l);
    ns[i] = now() - before;
  }
  l->out[l->net->loss] = &l->loss;
  one(l);
  if (one == step &&
      l->shim->flush(l->session, l->net->outputs, l->late ? l->out : NULL) != 0)
    stop("a flush failed");
  report(name, ns, steps, (double)l->loss);
  free(ns);
}

static iree_ffi_session_t *create(const shim *s, const net *n) {
  iree_ffi_session_t *session = s->create(n->path);
  if (session == NULL) stop("no session");
  return session;
}

/* a and b: everything stays on the device. */
static void run_resident(const shim *s, const net *n, int warmup, int steps) {
  loop l = {0};
  int i;
  l.session = create(s, n);
  for (i = 0; i < n->inputs; i++)
    l.roles[i] = n->roles[i] == PJRT_FFI_SEND ? PJRT_FFI_HOLD : n->roles[i];
  begin(&l, s, n, 0, 0);
  measure("a", &l, step, warmup, steps);
  begin(&l, s, n, IN_FLIGHT, 0);
  measure("b", &l, step, warmup, steps);
  s->release(l.session);
}

/* d and e: the batch comes from the host, the loss is read back. */
static void run_training(const shim *s, const net *n, int warmup, int steps) {
  loop l = {0};
  l.session = create(s, n);
  memcpy(l.roles, n->roles, sizeof l.roles);
  begin(&l, s, n, 0, 0);
  l.out[n->loss] = &l.loss;
  measure("d", &l, step, warmup, steps);
  begin(&l, s, n, 1, 1);
  l.out[n->loss] = &l.loss;
  measure("e", &l, step, warmup, steps);
  s->release(l.session);
}

/* c comes last, since it writes over the net's own parameters. */
static void run_copying(const shim *s, const net *n, int warmup, int steps) {
  loop l = {0};
  int i;
  l.session = create(s, n);
  begin(&l, s, n, 0, 0);
  for (i = 0; i < n->outputs; i++) l.out[i] = l.spare[i] = room(n->totals[i]);
  l.out[n->loss] = &l.loss;
  measure("c", &l, copying_step, warmup, steps);
  s->release(l.session);
}

int main(int argc, char **argv) {
  static char facts[1 << 16], entry[256];
  static net n;
  char *name, *dot;
  int warmup, steps;
  shim s;
  if (argc != 6) stop("usage: step_driver SHIM NET.mlir NET.bin WARMUP STEPS");
  s = open_shim(argv[1]);
  name = strrchr(argv[2], '/');
  snprintf(entry, sizeof entry, "%s", name == NULL ? argv[2] : name + 1);
  dot = strrchr(entry, '.');
  if (dot != NULL) *dot = '\0';
  n.path = argv[2];
  n.entry = entry;
  read_net(argv[3], &n);
  warmup = atoi(argv[4]);
  steps = atoi(argv[5]);
  if (s.describe(facts, sizeof facts) != 0) stop("no client");
  printf("{\"facts\": %s", facts);
  run_resident(&s, &n, warmup, steps);
  run_training(&s, &n, warmup, steps);
  run_copying(&s, &n, warmup, steps);
  printf("}\n");
  return 0;
}
