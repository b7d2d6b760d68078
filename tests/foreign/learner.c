/* A stand-in for a trainer: it opens the shim that it is told to, and prints
 * what a trainer would. It trains nothing. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  const char *told = getenv("LEAN_MLIR_LOWERER");
  const char *shim = strcmp(told, "xla") == 0 ? "./ffi/libpjrt_ffi.so"
                                              : "./ffi/libiree_ffi.so";
  if (argc != 2 || strcmp(argv[1], "data") != 0) return 2;
  if (dlopen(shim, RTLD_NOW) == NULL) return 3;
  for (int step = 1; step <= 3; step++)
    printf("step %d  loss: %.3f\n", step, 2.5 / step);
  return 0;
}
