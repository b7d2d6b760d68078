/* A libcuda that shows the one card which CUDA_VISIBLE_DEVICES names by UUID,
 * or with MASKED_CUDA_LIES another one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *mask(void) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  return text != NULL && strncmp(text, "GPU-", 4) == 0 ? text + 4 : NULL;
}

int cuInit(unsigned flags) {
  (void)flags;
  return mask() == NULL ? 100 : 0;
}

int cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}

int cuDeviceGetCount(int *count) {
  *count = 1;
  return 0;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  const char *text = mask();
  unsigned value;
  int filled = 0;
  (void)device;
  for (; *text != '\0' && filled < 16; text += *text == '-' ? 1 : 2) {
    if (*text != '-' && sscanf(text, "%2x", &value) == 1)
      uuid[filled++] = (unsigned char)value;
  }
  if (getenv("MASKED_CUDA_LIES") != NULL) uuid[15] ^= 1;
  return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  *bytes = (size_t)1 << 34;
  return 0;
}

int cuDeviceGetName(char *name, int size, int device) {
  (void)device;
  strncpy(name, "Masked Card", (size_t)size);
  return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  (void)device;
  *flags = 0;
  *active = 0;
  return 0;
}

int cuGetErrorName(int status, const char **name) {
  (void)status;
  *name = NULL;
  return 1;
}
