// HIP's functions for modules, without a GPU: launches are written down, with the first bytes of their parameters.
#include <stdio.h>
#include <string.h>

static char written[1 << 12];
static int launch_fails;

const char *fake_written(void) { return written; }
void fake_begin(int failing) {
  written[0] = 0;
  launch_fails = failing;
}
int hipDeviceSynchronize(void) { return 0; }
int hipGetDevice(int *found) { return *found = 0, 0; }
int hipSetDevice(int device) { return (void)device, 0; }
int hipGetLastError(void) { return 0; }
const char *hipGetErrorName(int error) { return error ? "hipErrorName" : ""; }
const char *hipGetErrorString(int error) { return error ? "what HIP says" : ""; }
int hipModuleLoadData(void **module, const void *image) { return *module = (void *)image, 0; }
int hipModuleUnload(void *module) { return (void)module, 0; }
int hipModuleGetFunction(void **function, void *module, const char *name) { return (void)name, *function = module, 0; }
int hipModuleLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **values, void **extra) {
  (void)function, (void)by, (void)bz, (void)shared, (void)extra;
  char *at = written + strlen(written);
  at += sprintf(at, "grid=%u,%u,%u block=%u stream=%p", x, y, z, bx, stream);
  for (int i = 0; i < 2; ++i) at += sprintf(at, " p%d=%llx", i, *(unsigned long long *)values[i]);
  return launch_fails;
}
