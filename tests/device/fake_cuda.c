/* Just enough of libcuda for a pin to be proved without a card. The variable
 * FAKE_CUDA_INIT is what cuInit answers, FAKE_CUDA_DEVICES how many cards
 * there are, FAKE_CUDA_FAIL names a function that fails with 999. */
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int unset) {
  const char *text = getenv(name);
  return text == NULL ? unset : atoi(text);
}

static int status_of(const char *function) {
  const char *failing = getenv("FAKE_CUDA_FAIL");
  return failing != NULL && strcmp(failing, function) == 0 ? 999 : 0;
}

int cuInit(unsigned flags) {
  (void)flags;
  return number("FAKE_CUDA_INIT", 0);
}

int cuDriverGetVersion(int *version) {
  *version = 12090;
  return status_of("cuDriverGetVersion");
}

int cuDeviceGetCount(int *count) {
  *count = number("FAKE_CUDA_DEVICES", 1);
  return status_of("cuDeviceGetCount");
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal + 40;
  return status_of("cuDeviceGet");
}

#ifndef OLD_DRIVER
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  int i;
  for (i = 0; i < 16; i++) uuid[i] = (unsigned char)(i * 16 + device - 40);
  return status_of("cuDeviceGetUuid_v2");
}
#endif

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  *bytes = (size_t)16724000000;
  return status_of("cuDeviceTotalMem_v2");
}

int cuDeviceGetName(char *name, int size, int device) {
  (void)device;
  strncpy(name, "Fake Card", (size_t)size);
  return status_of("cuDeviceGetName");
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = device == 41;
  return status_of("cuDevicePrimaryCtxGetState");
}

int cuGetErrorName(int status, const char **name) {
  *name = status == 999 ? "CUDA_ERROR_UNKNOWN" : NULL;
  return status == 999 ? 0 : 1;
}
