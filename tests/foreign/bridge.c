/* A shim of another house, for tests: it carries a graph's whole step and
 * nothing more. It has no train verb, no extras, no settings and no marker.
 * Its parts lie in parts/ under names of their own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdint.h>

typedef struct iree_ffi_session_t iree_ffi_session_t;
/* The parts know loops that stay on the device; nobody asks this shim. */
enum { PJRT_FFI_SEND = -1, PJRT_FFI_HOLD = -2 };

#include "parts/rt_client.c"
#include "parts/rt_session.c"

#include "parts/rt_guard.c"

#include "parts/rt_move.c"

#include "parts/rt_keep.c"

#include "parts/rt_invoke.c"

#define NOT_HERE(verb) \
  int verb(void) { return 99; }

static void say(const char *line) { fprintf(stderr, "bridge: %s\n", line); }

static client *only_client(failure *why) {
  static client one;
  if (one.handle == NULL && client_open(&one, say, why) != 0) return NULL;
  return &one;
}

static module *opened(const char *path, failure *why) {
  module *s = calloc(1, sizeof *s);
  artifact text = {NULL, 0};
  int rc = -1;
  if (s != NULL && read_file(path, &text, why) == 0 &&
      refuse_binary(&text, why) == 0 &&
      signature_parse(text.text, text.size, &s->sig, why) == 0 &&
      (s->client = only_client(why)) != NULL)
    rc = session_build(s, &text, why);
  free(text.text);
  return rc == 0 ? s : NULL;
}

iree_ffi_session_t *iree_ffi_session_create(const char *path) {
  failure why = {0, ""};
  module *s = path != NULL ? opened(path, &why) : NULL;
  if (s == NULL) say(why.text);
  return s;
}

void iree_ffi_session_release(iree_ffi_session_t *s) {
  if (s == NULL) return;
  program_close(s, &s->plain);
  signature_free(&s->sig);
  free(s->copies);
  free(s->text.text);
  free(s);
}

int iree_ffi_invoke_f32(iree_ffi_session_t *s, const char *name, int inputs,
                        const int32_t *ranks, const int64_t *dims,
                        const float *const *in, int outputs,
                        const int64_t *totals, float *const *out) {
  failure why = {0, ""};
  const request asked = {.function = name,      .replicas = 1,
                         .num_inputs = inputs,  .num_outputs = outputs,
                         .ranks = ranks,        .dims = dims,
                         .inputs = in,          .totals = totals,
                         .outputs = out};
  if (invoke(s, &asked, &why) == 0) return 0;
  say(why.text);
  return why.code;
}

NOT_HERE(iree_ffi_train_step_mlp)
NOT_HERE(iree_ffi_train_step_generic)
NOT_HERE(iree_ffi_train_step_adam)
NOT_HERE(iree_ffi_train_step_adam_seg)
NOT_HERE(iree_ffi_train_step_adam_softlabel)
NOT_HERE(iree_ffi_train_step_adam_ddpm)
NOT_HERE(iree_ffi_train_step_adam_yolov1)
