/* A runtime in name only, so that the shim's guards and its give-backs can be
 * seen where no IREE was built. It computes nothing: a function returns its
 * inputs. A module is a text between the marks of an archive: its name, then
 * one line a function, `name|declaration`. FAKE_IREE_FAIL names the call that
 * fails; fake_iree_held() counts what was handed out and not given back. */
#include <iree/hal/drivers/init.h>
#include <iree/runtime/api.h>
#include <stdio.h>
#include <stdlib.h>

enum { FUNCTIONS = 4, HEAD = 30, TAIL = 22 };

struct fake_status { char text[200]; };
struct fake_registry { int registered; };
struct fake_device { int open; };
struct fake_instance { int open; };
struct fake_view { int references, element; size_t size; char data[]; };
struct fake_session {
  size_t count;
  char *text; /* a copy, cut into strings */
  iree_string_view_t module, name[FUNCTIONS], declaration[FUNCTIONS];
};

static long held;
long fake_iree_held(void);
long fake_iree_held(void) { return held; }

static void *take(size_t size) {
  held++;
  return calloc(1, size);
}

static void give(void *memory) {
  if (memory != NULL) held--;
  free(memory);
}

static iree_status_t failure_at(const char *call, const char *text) {
  const char *wanted = getenv("FAKE_IREE_FAIL");
  iree_status_t status;
  if (wanted == NULL || strcmp(wanted, call) != 0) return NULL;
  status = take(sizeof *status);
  snprintf(status->text, sizeof status->text, "%s:1: INTERNAL;\n  %s", call,
           text);
  return status;
}

iree_allocator_t iree_allocator_null(void) { return (iree_allocator_t){0}; }
void iree_allocator_free(iree_allocator_t a, void *memory) {
  (void)a;
  give(memory);
}
iree_timeout_t iree_infinite_timeout(void) { return (iree_timeout_t){0}; }
bool iree_status_is_ok(iree_status_t status) { return status == NULL; }
bool iree_status_format(iree_status_t status, iree_host_size_t room, char *text,
                        iree_host_size_t *size) {
  *size = (size_t)snprintf(text, room, "%s", status->text);
  return *size < room;
}
int iree_status_code(iree_status_t status) { return status != NULL; }
const char *iree_status_code_string(int code) { return code ? "NO" : "OK"; }
void iree_status_free(iree_status_t status) { give(status); }

iree_string_view_t iree_make_cstring_view(const char *text) {
  return (iree_string_view_t){text, strlen(text)};
}
bool iree_string_view_starts_with(iree_string_view_t text,
                                  iree_string_view_t prefix) {
  return text.size >= prefix.size &&
         memcmp(text.data, prefix.data, prefix.size) == 0;
}
iree_const_byte_span_t iree_make_const_byte_span(const void *data,
                                                 iree_host_size_t size) {
  return (iree_const_byte_span_t){data, size};
}

iree_status_t iree_hal_driver_registry_allocate(
    iree_allocator_t a, iree_hal_driver_registry_t **out) {
  (void)a;
  *out = take(sizeof **out);
  return NULL;
}
void iree_hal_driver_registry_free(iree_hal_driver_registry_t *registry) {
  give(registry);
}
iree_status_t iree_hal_register_all_available_drivers(
    iree_hal_driver_registry_t *registry) {
  registry->registered = 1;
  return failure_at("register", "no drivers today");
}
iree_status_t iree_hal_driver_registry_enumerate(
    iree_hal_driver_registry_t *registry, iree_allocator_t a,
    iree_host_size_t *count, iree_hal_driver_info_t **list) {
  (void)a;
  *count = registry->registered ? 2 : 0;
  *list = take(2 * sizeof **list);
  (*list)[0].driver_name = IREE_SV("cuda");
  (*list)[1].driver_name = IREE_SV("local-task");
  return NULL;
}
iree_status_t iree_hal_create_device(iree_hal_driver_registry_t *registry,
                                     iree_string_view_t uri,
                                     iree_allocator_t a,
                                     iree_hal_device_t **out) {
  (void)registry, (void)uri, (void)a;
  *out = NULL;
  iree_status_t status = failure_at("device", "no such card");
  if (status == NULL) *out = take(sizeof **out);
  return status;
}
void iree_hal_device_release(iree_hal_device_t *device) { give(device); }
iree_hal_allocator_t *iree_hal_device_allocator(iree_hal_device_t *device) {
  (void)device;
  return NULL;
}

void iree_runtime_instance_options_initialize(
    iree_runtime_instance_options_t *options) {
  options->driver_registry = NULL;
}
iree_status_t iree_runtime_instance_create(
    const iree_runtime_instance_options_t *options, iree_allocator_t a,
    iree_runtime_instance_t **out) {
  (void)options, (void)a;
  *out = take(sizeof **out);
  return NULL;
}
void iree_runtime_instance_release(iree_runtime_instance_t *instance) {
  give(instance);
}

void iree_runtime_session_options_initialize(
    iree_runtime_session_options_t *options) {
  options->flags = 0;
}
iree_status_t iree_runtime_session_create_with_device(
    iree_runtime_instance_t *instance,
    const iree_runtime_session_options_t *options, iree_hal_device_t *device,
    iree_allocator_t a, iree_runtime_session_t **out) {
  (void)instance, (void)options, (void)device, (void)a;
  *out = NULL;
  iree_status_t status = failure_at("session", "no session today");
  if (status == NULL) *out = take(sizeof **out);
  return status;
}
void iree_runtime_session_release(iree_runtime_session_t *session) {
  free(session->text);
  give(session);
}
iree_status_t iree_runtime_session_append_bytecode_module_from_memory(
    iree_runtime_session_t *s, iree_const_byte_span_t data,
    iree_allocator_t a) {
  size_t size = data.data_length - HEAD - TAIL;
  char *line, *rest;
  (void)a;
  s->text = strndup((const char *)data.data + HEAD, size);
  s->module = iree_make_cstring_view(strtok_r(s->text, "\n", &rest));
  while ((line = strtok_r(NULL, "\n", &rest)) && s->count < FUNCTIONS) {
    char *bar = strchr(line, '|');
    *bar = '\0';
    s->name[s->count] = iree_make_cstring_view(line);
    s->declaration[s->count++] = iree_make_cstring_view(bar + 1);
  }
  return failure_at("append", "required module 'hal' version mismatch");
}
iree_vm_context_t *iree_runtime_session_context(
    const iree_runtime_session_t *session) {
  return (iree_vm_context_t *)session;
}
iree_host_size_t iree_vm_context_module_count(
    const iree_vm_context_t *context) {
  (void)context;
  return 2; /* the HAL's is the first one */
}
iree_vm_module_t *iree_vm_context_module_at(const iree_vm_context_t *context,
                                            iree_host_size_t i) {
  return i == 1 ? (iree_vm_module_t *)context : NULL;
}
iree_vm_module_signature_t iree_vm_module_signature(
    const iree_vm_module_t *module) {
  return (iree_vm_module_signature_t){module->count};
}
iree_string_view_t iree_vm_module_name(const iree_vm_module_t *module) {
  return module->module;
}
iree_status_t iree_vm_module_lookup_function_by_ordinal(
    const iree_vm_module_t *module, int linkage, iree_host_size_t ordinal,
    iree_vm_function_t *out) {
  (void)linkage;
  *out = (iree_vm_function_t){(iree_vm_module_t *)module, ordinal};
  return failure_at("lookup", "no such function");
}
iree_string_view_t iree_vm_function_name(const iree_vm_function_t *function) {
  return function->module->name[function->ordinal];
}
iree_string_view_t iree_vm_function_lookup_attr_by_name(
    const iree_vm_function_t *function, iree_string_view_t key) {
  int known = strcmp(key.data, "iree.abi.declaration") == 0;
  return known ? function->module->declaration[function->ordinal] : IREE_SV("");
}

iree_status_t iree_hal_buffer_view_allocate_buffer_copy(
    iree_hal_device_t *device, iree_hal_allocator_t *allocator,
    iree_host_size_t rank, const iree_hal_dim_t *dims, int element,
    int encoding, iree_hal_buffer_params_t params, iree_const_byte_span_t data,
    iree_hal_buffer_view_t **out) {
  iree_status_t status = failure_at("upload", "out of memory");
  (void)device, (void)allocator, (void)rank, (void)dims, (void)encoding;
  (void)params;
  if (status != NULL) return status;
  *out = take(sizeof **out + data.data_length);
  (*out)->references = 1;
  (*out)->element = element;
  (*out)->size = data.data_length;
  if (data.data_length > 0)
    memcpy((*out)->data, data.data, data.data_length);
  return NULL;
}
void iree_hal_buffer_view_release(iree_hal_buffer_view_t *view) {
  if (view != NULL && --view->references == 0) give(view);
}
iree_device_size_t iree_hal_buffer_view_byte_length(
    const iree_hal_buffer_view_t *view) {
  const char *wanted = getenv("FAKE_IREE_FAIL");
  int shrunk = wanted != NULL && strcmp(wanted, "size") == 0;
  return shrunk ? view->size - 4 : view->size;
}
int iree_hal_buffer_view_element_type(const iree_hal_buffer_view_t *view) {
  const char *wanted = getenv("FAKE_IREE_FAIL");
  return wanted != NULL && strcmp(wanted, "element") == 0 ? 0 : view->element;
}
iree_hal_buffer_t *iree_hal_buffer_view_buffer(
    const iree_hal_buffer_view_t *view) {
  return (iree_hal_buffer_t *)view;
}
iree_status_t iree_hal_device_transfer_d2h(
    iree_hal_device_t *device, iree_hal_buffer_t *source,
    iree_device_size_t offset, void *target, iree_device_size_t size, int flags,
    iree_timeout_t timeout) {
  iree_status_t status = failure_at("download", "the link is down");
  (void)device, (void)offset, (void)flags, (void)timeout;
  if (status == NULL) memcpy(target, source->data, size);
  return status;
}

iree_status_t iree_runtime_call_initialize(iree_runtime_session_t *session,
                                           iree_vm_function_t function,
                                           iree_runtime_call_t *out) {
  (void)session, (void)function;
  memset(out, 0, sizeof *out);
  return failure_at("call", "no call today");
}
void iree_runtime_call_deinitialize(iree_runtime_call_t *call) {
  while (call->inputs > 0)
    iree_hal_buffer_view_release(call->list[--call->inputs]);
}
iree_status_t iree_runtime_call_inputs_push_back_buffer_view(
    iree_runtime_call_t *call, iree_hal_buffer_view_t *view) {
  iree_status_t status = failure_at("push", "the list is full");
  if (status != NULL) return status;
  view->references++;
  call->list[call->inputs++] = view;
  return NULL;
}
iree_status_t iree_runtime_call_outputs_pop_front_buffer_view(
    iree_runtime_call_t *call, iree_hal_buffer_view_t **out) {
  iree_status_t status = failure_at("pop", "the list is empty");
  if (status != NULL) return status;
  *out = call->list[call->popped++];
  (*out)->references++;
  return NULL;
}
iree_status_t iree_runtime_call_invoke(iree_runtime_call_t *call, int flags) {
  (void)call, (void)flags;
  return failure_at("invoke", "the kernel trapped");
}
