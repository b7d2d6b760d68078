#include <iree/runtime/api.h>

iree_status_t iree_hal_register_all_available_drivers(
    iree_hal_driver_registry_t *registry);
