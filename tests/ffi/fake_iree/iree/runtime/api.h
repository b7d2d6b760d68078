/* As much of IREE's C API as the shim calls, for fake_iree.c: the names and the
 * order of arguments are IREE's, what is behind them is ours. */
#ifndef FAKE_IREE_H
#define FAKE_IREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef size_t iree_host_size_t;
typedef uint64_t iree_device_size_t;
typedef struct fake_status *iree_status_t; /* NULL is OK */
typedef struct {
  const char *data;
  iree_host_size_t size;
} iree_string_view_t;
typedef struct {
  const uint8_t *data;
  iree_host_size_t data_length;
} iree_const_byte_span_t;
typedef struct {
  int kind;
} iree_allocator_t;
typedef struct {
  int kind;
} iree_timeout_t;

#ifdef IREE_ALLOCATOR_SYSTEM_CTL
static inline iree_allocator_t iree_allocator_system(void) {
  return (iree_allocator_t){1};
}
#endif
iree_allocator_t iree_allocator_null(void);
void iree_allocator_free(iree_allocator_t allocator, void *memory);
iree_timeout_t iree_infinite_timeout(void);

bool iree_status_is_ok(iree_status_t status);
bool iree_status_format(iree_status_t status, iree_host_size_t room,
                        char *text, iree_host_size_t *size);
int iree_status_code(iree_status_t status);
const char *iree_status_code_string(int code);
void iree_status_free(iree_status_t status);

#define IREE_SV(text) iree_make_cstring_view(text)
iree_string_view_t iree_make_cstring_view(const char *text);
bool iree_string_view_starts_with(iree_string_view_t text,
                                  iree_string_view_t prefix);
iree_const_byte_span_t iree_make_const_byte_span(const void *data,
                                                 iree_host_size_t size);

typedef struct fake_registry iree_hal_driver_registry_t;
typedef struct fake_device iree_hal_device_t;
typedef struct fake_allocator iree_hal_allocator_t;
typedef struct {
  iree_string_view_t driver_name;
} iree_hal_driver_info_t;
iree_status_t iree_hal_driver_registry_allocate(
    iree_allocator_t allocator, iree_hal_driver_registry_t **out);
void iree_hal_driver_registry_free(iree_hal_driver_registry_t *registry);
iree_status_t iree_hal_driver_registry_enumerate(
    iree_hal_driver_registry_t *registry, iree_allocator_t allocator,
    iree_host_size_t *count, iree_hal_driver_info_t **list);
iree_status_t iree_hal_create_device(iree_hal_driver_registry_t *registry,
                                     iree_string_view_t uri,
                                     iree_allocator_t allocator,
                                     iree_hal_device_t **out);
void iree_hal_device_release(iree_hal_device_t *device);
iree_hal_allocator_t *iree_hal_device_allocator(iree_hal_device_t *device);

typedef struct fake_instance iree_runtime_instance_t;
typedef struct {
  iree_hal_driver_registry_t *driver_registry;
} iree_runtime_instance_options_t;
void iree_runtime_instance_options_initialize(
    iree_runtime_instance_options_t *options);
iree_status_t iree_runtime_instance_create(
    const iree_runtime_instance_options_t *options, iree_allocator_t allocator,
    iree_runtime_instance_t **out);
void iree_runtime_instance_release(iree_runtime_instance_t *instance);

typedef struct fake_session iree_runtime_session_t;
typedef struct fake_session iree_vm_context_t;
typedef struct fake_session iree_vm_module_t;
typedef struct {
  int flags;
} iree_runtime_session_options_t;
typedef struct {
  iree_vm_module_t *module;
  iree_host_size_t ordinal;
} iree_vm_function_t;
typedef struct {
  iree_host_size_t export_function_count;
} iree_vm_module_signature_t;
enum { IREE_VM_FUNCTION_LINKAGE_EXPORT = 2 };
void iree_runtime_session_options_initialize(
    iree_runtime_session_options_t *options);
iree_status_t iree_runtime_session_create_with_device(
    iree_runtime_instance_t *instance,
    const iree_runtime_session_options_t *options, iree_hal_device_t *device,
    iree_allocator_t allocator, iree_runtime_session_t **out);
void iree_runtime_session_release(iree_runtime_session_t *session);
iree_status_t iree_runtime_session_append_bytecode_module_from_memory(
    iree_runtime_session_t *session, iree_const_byte_span_t data,
    iree_allocator_t allocator);
iree_vm_context_t *iree_runtime_session_context(
    const iree_runtime_session_t *session);
iree_host_size_t iree_vm_context_module_count(const iree_vm_context_t *context);
iree_vm_module_t *iree_vm_context_module_at(const iree_vm_context_t *context,
                                            iree_host_size_t i);
iree_vm_module_signature_t iree_vm_module_signature(
    const iree_vm_module_t *module);
iree_string_view_t iree_vm_module_name(const iree_vm_module_t *module);
iree_status_t iree_vm_module_lookup_function_by_ordinal(
    const iree_vm_module_t *module, int linkage, iree_host_size_t ordinal,
    iree_vm_function_t *out);
iree_string_view_t iree_vm_function_name(const iree_vm_function_t *function);
iree_string_view_t iree_vm_function_lookup_attr_by_name(
    const iree_vm_function_t *function, iree_string_view_t key);

typedef struct fake_view iree_hal_buffer_view_t;
typedef struct fake_view iree_hal_buffer_t;
typedef uint64_t iree_hal_dim_t;
typedef struct {
  int usage, access, type;
} iree_hal_buffer_params_t;
enum {
  IREE_HAL_MEMORY_TYPE_DEVICE_LOCAL = 1,
  IREE_HAL_BUFFER_USAGE_DEFAULT = 1,
  IREE_HAL_ELEMENT_TYPE_FLOAT_32 = 1,
  IREE_HAL_ELEMENT_TYPE_INT_32,
  IREE_HAL_ENCODING_TYPE_DENSE_ROW_MAJOR = 1,
  IREE_HAL_TRANSFER_BUFFER_FLAG_DEFAULT = 0
};
iree_status_t iree_hal_buffer_view_allocate_buffer_copy(
    iree_hal_device_t *device, iree_hal_allocator_t *allocator,
    iree_host_size_t rank, const iree_hal_dim_t *dims, int element,
    int encoding, iree_hal_buffer_params_t params, iree_const_byte_span_t data,
    iree_hal_buffer_view_t **out);
void iree_hal_buffer_view_release(iree_hal_buffer_view_t *view);
iree_device_size_t iree_hal_buffer_view_byte_length(
    const iree_hal_buffer_view_t *view);
int iree_hal_buffer_view_element_type(const iree_hal_buffer_view_t *view);
iree_hal_buffer_t *iree_hal_buffer_view_buffer(
    const iree_hal_buffer_view_t *view);
iree_status_t iree_hal_device_transfer_d2h(
    iree_hal_device_t *device, iree_hal_buffer_t *source,
    iree_device_size_t offset, void *target, iree_device_size_t size,
    int flags, iree_timeout_t timeout);

enum { FAKE_IREE_ARGUMENTS = 8 };
typedef struct {
  iree_hal_buffer_view_t *list[FAKE_IREE_ARGUMENTS];
  int inputs, popped;
} iree_runtime_call_t;
iree_status_t iree_runtime_call_initialize(iree_runtime_session_t *session,
                                           iree_vm_function_t function,
                                           iree_runtime_call_t *out);
void iree_runtime_call_deinitialize(iree_runtime_call_t *call);
iree_status_t iree_runtime_call_inputs_push_back_buffer_view(
    iree_runtime_call_t *call, iree_hal_buffer_view_t *view);
iree_status_t iree_runtime_call_outputs_pop_front_buffer_view(
    iree_runtime_call_t *call, iree_hal_buffer_view_t **out);
iree_status_t iree_runtime_call_invoke(iree_runtime_call_t *call, int flags);

#endif
